"""The ``specpilot`` command. One file per verb; ``main`` holds the convention all verbs share.

With ``--json`` a verb prints exactly one JSON object on stdout, also when it fails; logs and progress go to
stderr. The exit code is 0 only when all is well, 2 when the call was wrong, 1 for every other failure.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

import typer

import specpilot
from specpilot.cli import (
    bench,
    conformance,
    controller,
    demo,
    forcing,
    generate,
    profiles,
    replay,
    requests,
    serve,
    w12,
)
from specpilot.cli.outcome import Outcome
from specpilot.errors import ConfigError, RequestError, SpecPilotError

__all__ = ["main"]

log = logging.getLogger(__name__)

_app = typer.Typer(
    name="specpilot",
    help="LLM serving with speculative decoding, measured and proved lossless.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
serve.add_to(_app)
generate.add_to(_app)
demo.add_to(_app)
bench.add_to(_app)
replay.add_to(_app)
conformance.add_to(_app)
profiles.add_to(_app)
forcing.add_to(_app)
requests.add_to(_app)
controller.add_to(_app)
w12.add_to(_app)


@_app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version.")
) -> None:
    if version:
        typer.echo(specpilot.__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    is_json = "--json" in arguments
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    stdout = sys.stdout
    # A library that prints would break the one object: with --json its words go where the logs go.
    with contextlib.redirect_stdout(sys.stderr) if is_json else contextlib.nullcontext():
        result, exit_code = _run(arguments)
    if is_json and result is not None:
        print(json.dumps(result, ensure_ascii=False, allow_nan=False), file=stdout)
    return exit_code


def _run(arguments: Sequence[str]) -> tuple[dict[str, Any] | None, int]:
    """The JSON object to print, if any, and the exit code."""
    try:
        result = _app(args=list(arguments), prog_name="specpilot", standalone_mode=False)
    except typer.TyperException as error:
        return _failure(error.format_message(), "UsageError", getattr(error, "exit_code", 2))
    except (ConfigError, RequestError) as error:
        return _failure(str(error), type(error).__name__, 2)
    except SpecPilotError as error:
        return _failure(str(error), type(error).__name__, 1)
    except Exception as error:
        log.error("this is a defect of specpilot", exc_info=error)
        return _failure(f"internal error: {error}", type(error).__name__, 1)
    if isinstance(result, Outcome):
        return result.report, 0 if result.is_ok else 1
    return None, result if isinstance(result, int) else 0


def _failure(message: str, kind: str, exit_code: int) -> tuple[dict[str, Any], int]:
    line = " ".join(message.split())
    print(f"specpilot: {line}", file=sys.stderr)
    return {"error": {"message": line, "type": kind}}, exit_code
