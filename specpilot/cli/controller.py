"""``specpilot controller``: start one, ask it, test it, verify its ledger."""

from __future__ import annotations

import json as json_module
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.options import Json, Model, open_engine
from specpilot.cli.outcome import Outcome
from specpilot.errors import RequestError

__all__ = ["add_to"]

_Socket = Annotated[Path, typer.Option("--socket", help="The controller's socket: <folder>-public/socket.")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        help="The controller that measures, judges and keeps the ledger.", rich_markup_mode=None
    )
    group.command("start")(_start)
    group.command("ask")(_ask)
    group.command("selftest")(_selftest)
    group.command("verify")(_verify)
    app.add_typer(group, name="controller")


def _start(
    config: Annotated[Path, typer.Option(help="The operator's file, see specpilot/controller/DESIGN.md.")],
    allow_unprotected: Annotated[
        bool,
        typer.Option("--allow-unprotected", help="Run where nothing can be protected; every record says so."),
    ] = False,
) -> None:
    """Run a controller until it is ended; as root it works under users of its own."""
    from specpilot.controller.config import read_config
    from specpilot.controller.process import start

    start(read_config(config), is_unprotected_accepted=allow_unprotected)


def _ask(
    socket: _Socket,
    command: Annotated[str, typer.Argument(help="open, time, pair, check, promote, seal, close or status.")],
    arguments: Annotated[str, typer.Argument(help="A JSON object.")] = "{}",
    json: Json = False,
) -> Outcome:
    """Send one command, as the user who calls."""
    from specpilot.controller.client import call

    try:
        fields: Any = json_module.loads(arguments)
    except ValueError as error:
        raise RequestError(f"arguments: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RequestError(f"arguments: got {arguments!r}, expected a JSON object")
    answer = call(socket, command, **fields)
    if not json:
        typer.echo(json_module.dumps(answer, indent=2))
    is_refused = answer.get("is_promoted") is False or answer.get("is_accepted") is False
    return Outcome(answer, is_ok=not is_refused)


def _selftest(model: Model = None, json: Json = False) -> Outcome:
    """An honest candidate must be promoted, every cheat refused, null changes not promoted, tampering seen."""
    from specpilot.controller.selftest.runner import run_selftest

    engine = open_engine(model, "judge", None, max_running=8)
    report = run_selftest(engine, lambda stage: print(f"selftest: {stage}", file=sys.stderr))
    if not json:
        for row in report["cheats"]:
            typer.echo(f"{'refused' if row['refused'] else 'NOT REFUSED'}: {row['cheat']}: {row['reason']}")
        typer.echo(
            f"null changes promoted in {report['aa_promotion_rate']:.1%} of {report['aa_rounds']} rounds"
        )
        typer.echo(
            f"honest candidate promoted: {report['honest_promoted']}; tampering seen: {report['tamper_detected']}"
        )
    return Outcome(report, is_ok=report["ok"])


def _verify(
    export: Annotated[Path, typer.Argument(help="An export, or a ledger file.")],
    receipt: Annotated[
        str | None,
        typer.Option(help="SEQ:HASH of an answer you kept; shows a ledger that was cut or rewritten."),
    ] = None,
    write_export: Annotated[Path | None, typer.Option(help="Write the ledger's export there.")] = None,
    json: Json = False,
) -> Outcome:
    """Recompute all hashes."""
    from specpilot.controller.ledger import Ledger, read_export

    try:
        with export.open("rb") as file:
            is_ledger = file.read(16) == b"SQLite format 3\0"
    except OSError as error:
        raise RequestError(f"verify: cannot read {export}: {error.strerror}") from None
    if not is_ledger:
        entries = read_export(export)
        report = {
            "is_intact": True,
            "num_entries": len(entries),
            "head_hash": entries[-1].hash if entries else None,
        }
        if receipt is not None or write_export is not None:
            name = "write-export" if receipt is None else "receipt"
            raise RequestError(f"{name}: an export is checked against its own header; give the ledger file")
    else:
        kept = None if receipt is None else _parse_receipt(receipt)
        ledger = Ledger(export, is_read_only=True)
        state = ledger.verify(kept)
        if write_export is not None:
            ledger.export(write_export)
        ledger.close()
        report = {"is_intact": state.is_intact, "num_entries": state.num_links, "head_hash": state.head_hash}
    if not json:
        typer.echo(f"{'intact' if report['is_intact'] else 'CHANGED'}: {report['num_entries']} entries")
    return Outcome(report, is_ok=bool(report["is_intact"]))


def _parse_receipt(text: str) -> tuple[int, str]:
    found = re.fullmatch("([0-9]{1,18}):([0-9a-f]{64})", text)
    if found is None:
        raise RequestError(f"receipt: got {text!r}, expected SEQ:HASH")
    return int(found[1]), found[2]
