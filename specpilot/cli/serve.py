"""``specpilot serve``, ``sidecar`` and ``up``: start a process of the service in place of this one."""

from __future__ import annotations

import importlib.util
import os
import sys

import typer

from specpilot.errors import Unsupported

__all__ = ["DEFAULT_PROFILE", "add_to"]

_SERVICE = "specpilot_service"

DEFAULT_PROFILE = "cpu/bundled--dflash2--chain"
"""What ``up`` starts first: the bundled model with its own drafter, which runs on every machine."""


def add_to(app: typer.Typer) -> None:
    # Every flag belongs to the service, which knows its settings; --help is answered there too.
    passing_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    for name, verb in (("serve", _serve), ("sidecar", _sidecar), ("up", _up)):
        app.command(name, context_settings=passing_on, add_help_option=False)(verb)


def _serve(context: typer.Context) -> None:
    """Serve the OpenAI endpoint of one engine; `specpilot serve --help` lists the settings."""
    _become(_SERVICE, context.args)


def _sidecar(context: typer.Context) -> None:
    """Gateway and admin API in front of supervised engines; `specpilot sidecar --help` lists the settings."""
    _become(f"{_SERVICE}.sidecar", context.args)


def _up(context: typer.Context) -> None:
    """The sidecar, and at its first start the bundled model's profile; takes the settings of `specpilot sidecar`."""
    arguments = list(context.args)
    names = {argument.partition("=")[0] for argument in arguments}
    if not names & {"--profile", "--engine-url"} and not {"SPECPILOT_PROFILE", "SPECPILOT_ENGINE_URL"} & set(
        os.environ
    ):
        arguments += ["--profile", DEFAULT_PROFILE]
    _become(f"{_SERVICE}.sidecar", arguments)


def _become(module: str, arguments: list[str]) -> None:
    # The library never imports the service. The process is replaced, so signals reach the server itself.
    if importlib.util.find_spec(_SERVICE) is None:
        raise Unsupported(f"{module}: the package {_SERVICE} is not installed; install specpilot[serve]")
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
