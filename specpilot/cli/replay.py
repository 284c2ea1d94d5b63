"""``specpilot replay``: record lattices, and try tree builders on them without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.options import Json, MaxTokens, Mode, Model, Threads, open_engine
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar
from specpilot.engines.mechanisms import MAX_TREE_NODES
from specpilot.errors import ConfigError

__all__ = ["add_to"]

_Records = Annotated[list[Path], typer.Option(help="Recorded files, or folders of them; may be given again.")]
_Nodes = Annotated[
    list[int] | None,
    typer.Option(
        min=1, max=MAX_TREE_NODES, help="N, verified rows of a step, root included; may be given again."
    ),
]
_OfDrafter = Annotated[
    str | None, typer.Option(help="Only steps of this drafter. Default: all, which must be one.")
]
_Picture = Annotated[Path | None, typer.Option(help="Write tau against N as an SVG file.")]

_NODES = (8, 16, 32, 63)


def add_to(app: typer.Typer) -> None:
    verbs = typer.Typer(
        help="Record lattices, and try tree builders on them without a model.", no_args_is_help=True
    )
    verbs.command("record")(_record)
    verbs.command("run")(_run)
    verbs.command("oracle")(_oracle)
    app.add_typer(verbs, name="replay")


def _record(
    requests: Annotated[
        Path, typer.Option(help="JSON lines with 'prompt' or 'turns'; first turns are asked.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the recording; must hold none yet.")],
    drafter: Annotated[list[str], typer.Option(help="Drafter to record; may be given again.")],
    model: Model = None,
    mode: Mode = "judge",
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many requests.")] = None,
    max_tokens: MaxTokens = 256,
    positions: Annotated[
        int | None, typer.Option(min=1, help="Drafted positions. Default: what the drafter was trained for.")
    ] = None,
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Answer requests and keep the drafter's lattice at every position of the answers.

    Answers are greedy and end where they begin to repeat themselves. `specpilot serve --record DIR` records the verify
    steps of served requests instead.
    """
    from specpilot.bench.record import record_requests
    from specpilot.requests.reading import read_requests

    chosen = read_requests(requests, limit)
    engine = open_engine(model, mode, num_threads)
    with progress_bar("record", len(chosen) * (1 + len(drafter))) as advance:
        report = record_requests(engine, chosen, drafter, out, model, max_tokens, positions, advance)
    if not json:
        print(f"{report['num_steps']} steps of {report['num_requests']} requests in {out}")
    return Outcome(report)


def _run(
    records: _Records,
    builder: Annotated[list[str], typer.Option(help="Tree builder; may be given again.")],
    nodes: _Nodes = None,
    drafter: _OfDrafter = None,
    picture: _Picture = None,
    json: Json = False,
) -> Outcome:
    """Select and accept again with other tree builders: tau, accepted by depth, expected tokens."""
    return _replay(records, builder, nodes, drafter, picture, json)


def _oracle(
    records: _Records,
    nodes: _Nodes = None,
    drafter: _OfDrafter = None,
    picture: _Picture = None,
    json: Json = False,
) -> Outcome:
    """The tau of the best tree there is on every lattice."""
    return _replay(records, (), nodes, drafter, picture, json)


def _replay(
    records: Sequence[Path],
    builders: Sequence[str],
    nodes: Sequence[int] | None,
    drafter: str | None,
    picture: Path | None,
    is_json: bool,
) -> Outcome:
    from specpilot.replay.picture import tau_picture
    from specpilot.replay.report import replay_report

    report, rows = replay_report(records, builders, sorted(set(nodes or _NODES)), drafter=drafter)
    if picture is not None:
        try:
            picture.write_text(
                tau_picture(rows, f"tau by exact replay, {report['drafter']}"), encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"picture: cannot write {picture}: {error.strerror}") from None
        report["picture"] = str(picture)
    if not is_json:
        _show(report)
    return Outcome(report)


def _show(report: dict[str, Any]) -> None:
    print(f"{report['num_steps']} steps of {report['num_requests']} requests, drafter {report['drafter']}")
    print("builder      N     tau  of steps  expected  mean rows  tau of all recorded")
    for row in report["rows"]:
        numbers = [row[name] for name in ("tau", "expected_tokens", "mean_nodes", "tau_recorded")]
        tau, expected, rows, recorded = ["-" if number is None else f"{number:.3f}" for number in numbers]
        print(
            f"{row['builder']:10} {row['nodes']:3} {tau:>7} {row['counted']:>9} {expected:>9} {rows:>10} {recorded:>20}"
        )
