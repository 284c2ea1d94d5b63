"""``specpilot serve``: start the HTTP service in place of this process."""

from __future__ import annotations

import importlib.util
import os
import sys

import typer

from specpilot.errors import Unsupported

__all__ = ["add_to"]

_SERVICE = "specpilot_service"


def add_to(app: typer.Typer) -> None:
    # Every flag belongs to the service, which knows its settings; --help is answered there too.
    passing_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("serve", context_settings=passing_on, add_help_option=False)(_serve)


def _serve(context: typer.Context) -> None:
    """Serve the OpenAI endpoint; `specpilot serve --help` lists the settings."""
    # The library never imports the service. The process is replaced, so signals reach the server itself.
    if importlib.util.find_spec(_SERVICE) is None:
        raise Unsupported(f"serve: the package {_SERVICE} is not installed; install specpilot[serve]")
    os.execv(sys.executable, [sys.executable, "-P", "-m", _SERVICE, *context.args])
