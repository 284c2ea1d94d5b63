"""``specpilot serve``, ``sidecar``, ``up``, ``console``, ``admin``: a process of another package in place of this."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import subprocess
import sys

import typer

from specpilot.errors import ConfigError, Unsupported

__all__ = ["DEFAULT_PROFILE", "add_to"]

_SERVICE = "specpilot_service"
_CONSOLE = "specpilot_console"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

DEFAULT_PROFILE = "cpu/bundled--dflash2--chain"
"""What ``up`` starts first: the bundled model with its own drafter, which runs on every machine."""


def add_to(app: typer.Typer) -> None:
    # Every flag belongs to the service, which knows its settings; --help is answered there too.
    passing_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    verbs = (("serve", _serve), ("sidecar", _sidecar), ("up", _up), ("console", _console), ("admin", _admin))
    for name, verb in verbs:
        app.command(name, context_settings=passing_on, add_help_option=False)(verb)


def _serve(context: typer.Context) -> None:
    """Serve the OpenAI endpoint of one engine; `specpilot serve --help` lists the settings."""
    _become(_SERVICE, context.args)


def _sidecar(context: typer.Context) -> None:
    """Gateway and admin API in front of supervised engines; `specpilot sidecar --help` lists the settings."""
    _become(f"{_SERVICE}.sidecar", context.args)


def _up(context: typer.Context) -> None:
    """The sidecar, and at its first start the bundled model's profile; takes the settings of `specpilot sidecar`.

    With --console the web console too, on 127.0.0.1:7860.
    """
    arguments = list(context.args)
    if {"-h", "--help"} & set(arguments):
        typer.echo(
            f"specpilot up: the sidecar as below, with --profile {DEFAULT_PROFILE} where none is named.\n"
            "  --console    the web console too, on 127.0.0.1:7860\n"
        )
    has_console = "--console" in arguments
    if has_console:
        arguments.remove("--console")
    names = {argument.partition("=")[0] for argument in arguments}
    if not names & {"--profile", "--engine-url"} and not {"SPECPILOT_PROFILE", "SPECPILOT_ENGINE_URL"} & set(
        os.environ
    ):
        arguments += ["--profile", DEFAULT_PROFILE]
    if has_console:
        _start_console(_value_of(arguments, "--port", "8000"), _value_of(arguments, "--admin-port", "8001"))
    _become(f"{_SERVICE}.sidecar", arguments)


def _value_of(arguments: list[str], name: str, default: str) -> str:
    """Of ``--name VALUE`` or ``--name=VALUE``; else of the variable that stands for the flag."""
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
        if argument == name and index + 1 < len(arguments):
            return arguments[index + 1]
    return os.environ.get("SPECPILOT_" + name.removeprefix("--").replace("-", "_").upper(), default)


def _start_console(port: str, admin_port: str) -> None:
    """Beside the sidecar that this process becomes; the kernel ends it with that process."""
    if "0" in (port, admin_port):
        raise ConfigError("--console: got port 0, expected ports that are known before the sidecar starts")
    urls = [f"--admin-url=http://127.0.0.1:{admin_port}", f"--gateway-url=http://127.0.0.1:{port}"]
    module = [sys.executable, "-P", "-m", _CONSOLE]

    def end_with_parent() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    subprocess.Popen([*module, *urls, "--log-level=warning"], preexec_fn=end_with_parent)


def _console(context: typer.Context) -> None:
    """The web console of a sidecar; `specpilot console --help` lists the settings."""
    _become(_CONSOLE, context.args)


def _admin(context: typer.Context) -> None:
    """Everything the console does, as a command; `specpilot admin --help` lists the verbs."""
    _become(f"{_CONSOLE}.command", context.args)


def _become(module: str, arguments: list[str]) -> None:
    # The library never imports the service. The process is replaced, so signals reach the server itself.
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise Unsupported(f"{module}: the package {package} is not installed; install specpilot[serve]")
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
