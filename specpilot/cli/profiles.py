"""``specpilot profiles``: what can run here, with which command, and why not."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from specpilot.cli.options import Json
from specpilot.cli.outcome import Outcome
from specpilot.errors import ConfigError, Unsupported
from specpilot.profiles import check, find_machine, load_profiles, resolve
from specpilot.profiles.records import Scalar
from specpilot.profiles.resolve import DEFAULT_MODELS, resolve_profile

__all__ = ["add_to"]

_Folder = Annotated[
    Path | None, typer.Option(help="Folder of profiles. Default: the one of this installation.")
]
_Gpu = Annotated[
    str | None,
    typer.Option(help="Device class in place of the GPU that is here, for a dry run; 'cpu' for none."),
]
_Models = Annotated[Path, typer.Option(help="Folder that holds the folders of targets and drafters.")]
_Reference = Annotated[str, typer.Argument(help="A profile's name, its name without the folder, or its id.")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Profiles: list, show, resolve, check, run.", rich_markup_mode=None)
    group.command("list")(_list)
    group.command("show")(_show)
    group.command("resolve")(_resolve)
    group.command("check")(_check)
    group.command("run")(_run)
    app.add_typer(group, name="profiles")


def _list(
    gpu: _Gpu = None, models: _Models = DEFAULT_MODELS, folder: _Folder = None, json: Json = False
) -> Outcome:
    """All profiles, judged for this machine; needs no GPU and no network."""
    store = load_profiles(folder)
    machine = find_machine(store, gpu)
    verdicts = [(profile, check(profile, machine, models)) for profile in store.profiles]
    rows = [
        verdict.content() | {"title": profile.title, "evidence": profile.content()["evidence"]}
        for profile, verdict in verdicts
    ]
    if not json:
        table = Table(title=f"profiles on {machine.gpu}", title_justify="left")
        for column in ("status", "profile", "id", "GiB", "evidence", "why"):
            table.add_column(column, overflow="fold")
        for row in sorted(rows, key=lambda row: row["status"] != "runnable"):
            evidence, reasons = row["evidence"]["kind"], row["reasons"]
            why = "" if not reasons else reasons[0] + (f" (+{len(reasons) - 1})" if len(reasons) > 1 else "")
            table.add_row(
                row["status"], row["name"], row["profile_id"], f"{row['needed_gib']:.1f}", evidence, why
            )
        # Piped output has no width of its own, and folded ids help nobody.
        Console(width=None if sys.stdout.isatty() else 200).print(table)
    return Outcome({"machine": machine.gpu, "profiles": rows})


def _show(reference: _Reference, gpu: _Gpu = None, folder: _Folder = None, json: Json = False) -> Outcome:
    """What a profile says, with its evidence."""
    profile = load_profiles(folder).find(reference, gpu)
    report = profile.content() | {"profile_id": profile.profile_id}
    if not json:
        for line in _tree(report):
            typer.echo(line)
    return Outcome(report)


def _resolve(
    reference: _Reference,
    gpu: _Gpu = None,
    host: Annotated[str, typer.Option(help="Address the engine listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port the engine listens on.")] = 30000,
    models: _Models = DEFAULT_MODELS,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of an engine argument; may be repeated.")
    ] = None,
    folder: _Folder = None,
    json: Json = False,
) -> Outcome:
    """The exact command, environment and every value's origin; starts nothing (a dry run)."""
    changes: dict[str, Scalar] = dict(map(_read_override, override or []))
    resolved = resolve(
        reference, gpu, host=host, port=port, models=models, overrides=changes, store=load_profiles(folder)
    )
    report = resolved.content()
    if not json:
        if resolved.is_runnable:
            typer.echo(shlex.join(resolved.command))
        else:
            typer.echo(
                f"{resolved.name}: not runnable as specified. Degraded, without what is not available:"
            )
            typer.echo(shlex.join(resolved.degraded_command))
        for line in _tree({key: report[key] for key in ("environment", "origins", "mechanisms")}):
            typer.echo(line)
    return Outcome(report)


def _check(
    reference: _Reference,
    gpu: _Gpu = None,
    models: _Models = DEFAULT_MODELS,
    folder: _Folder = None,
    json: Json = False,
) -> Outcome:
    """Whether a profile can run here; exit code 0 only when it can as specified."""
    store = load_profiles(folder)
    machine = find_machine(store, gpu)
    verdict = check(store.find(reference, machine.gpu), machine, models)
    report = verdict.content()
    if not json:
        typer.echo(f"{verdict.resolved.name}: {verdict.status}")
        for reason in verdict.reasons:
            typer.echo(f"  {reason}")
        for note in verdict.notes:
            typer.echo(f"  note: {note}")
        if report["degraded"]:
            typer.echo(f"  degraded, stock: {shlex.join(verdict.resolved.degraded_command)}")
    return Outcome(report, is_ok=verdict.status == "runnable")


def _run(
    reference: _Reference,
    gpu: _Gpu = None,
    host: Annotated[str, typer.Option(help="Address the engine listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port the engine listens on.")] = 30000,
    models: _Models = DEFAULT_MODELS,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of an engine argument; may be repeated.")
    ] = None,
    degraded: Annotated[
        bool,
        typer.Option(
            "--degraded", help="Without the mechanisms this build lacks, which is otherwise refused."
        ),
    ] = False,
    folder: _Folder = None,
) -> None:
    """Check a profile and start its engine in place of this process."""
    store = load_profiles(folder)
    machine = find_machine(store, gpu)
    profile = store.find(reference, machine.gpu)
    verdict = check(profile, machine, models)
    # What the mechanisms lack is forgiven with --degraded; what the machine lacks never is.
    lacks_only_mechanisms = len(verdict.reasons) == len(verdict.resolved.missing)
    if verdict.status != "runnable" and not (degraded and lacks_only_mechanisms):
        raise Unsupported(f"profile {profile.name}: {verdict.status}: {'; '.join(verdict.reasons)}")
    changes: dict[str, Scalar] = dict(map(_read_override, override or []))
    resolved = resolve_profile(profile, host=host, port=port, models=models, overrides=changes)
    for state in resolved.missing:
        typer.echo(f"specpilot: DEGRADED: {state.id} is not available: {state.reason}", err=True)
    command = resolved.degraded_command if degraded else resolved.command
    os.execve(command[0], command, {**os.environ, **resolved.environment})


def _read_override(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        raise ConfigError(f"--set: got {text!r}, expected NAME=VALUE")
    return name.removeprefix("--"), value


def _tree(value: Any, indent: int = 0) -> list[str]:
    """Nested dicts and lists as indented lines."""
    pad = "  " * indent
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                lines += [f"{pad}{key}:", *_tree(item, indent + 1)]
            else:
                lines.append(f"{pad}{key}: {item}")
        return lines
    if isinstance(value, list):
        return [line for item in value for line in _tree(item, indent)]
    return [f"{pad}{value}"]
