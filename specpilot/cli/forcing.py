"""``specpilot forcing``: is a system's output the target's own, and what would an audit find?"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from specpilot.cli.options import (
    BuilderName,
    CertifiedHeadFlag,
    CostAware,
    Drafter,
    DrafterBlocks,
    GdnFormName,
    Json,
    MaxTokens,
    Mode,
    Model,
    NodeBudget,
    Nodes,
    Positions,
    PromptRows,
    QGateFlag,
    QWeightsName,
    Threads,
    WholePromptRows,
    batch_of,
    mechanisms_of,
    open_engine,
    resolve_drafter,
)
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar
from specpilot.errors import ConfigError, RequestError

__all__ = ["add_to"]

_Report = Annotated[Path | None, typer.Option(help="Folder for report.html, report.png and verdict.json.")]
_Key = Annotated[
    Path | None, typer.Option("--key-file", help="File with the server's API key. Default: no key.")
]


def add_to(app: typer.Typer) -> None:
    verbs = typer.Typer(
        help="Token forcing: audit a system's output against its target, and the power of such audits.",
        no_args_is_help=True,
    )
    verbs.command("audit")(_audit)
    verbs.command("power")(_power)
    app.add_typer(verbs, name="forcing")


def _audit(
    url: Annotated[
        str | None,
        typer.Option(
            help="Audit this server: an OpenAI-style endpoint, /v1/completions with return_token_ids."
        ),
    ] = None,
    scored_by: Annotated[
        Literal["second", "live"],
        typer.Option(help="With --url: by a second engine, or in the live one with mechanisms bypassed."),
    ] = "second",
    probe: Annotated[
        Path | None,
        typer.Option(help="With --scored-by live: probe set of the model. Default: the bundled one's."),
    ] = None,
    key_file: _Key = None,
    model: Model = None,
    prompts: Annotated[int, typer.Option(min=8, help="Prompts, of a fixed sequence.")] = 64,
    max_tokens: MaxTokens = 128,
    seed: Annotated[int, typer.Option(help="Which sequence, and which events are audited.")] = 0,
    delta: Annotated[
        float | None, typer.Option(help="Near-tie threshold, a multiple of 1/8 nat. Default: calibrated.")
    ] = None,
    report: _Report = None,
    drafter: Drafter = None,
    mode: Mode = "serve",
    builder: BuilderName = "chain",
    nodes: Nodes = None,
    positions: Positions = None,
    cost_aware: CostAware = False,
    gdn_form: GdnFormName = "path",
    q_weights: QWeightsName = None,
    q_gate: QGateFlag = False,
    certified_head: CertifiedHeadFlag = False,
    node_budget: NodeBudget = None,
    drafter_blocks: DrafterBlocks = False,
    whole_prompt_rows: WholePromptRows = 0,
    prompt_rows: PromptRows = None,
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Accepted, rejected or unavailable. Without --url the embedded engine runs with the mechanisms named here.

    Exit code 0 only for accepted: an audit that was unavailable is not passed.
    """
    from specpilot.forcing import Rules
    from specpilot.forcing.live import LiveAudit, run_live_audit
    from specpilot.forcing.local import run_local_audit
    from specpilot.forcing.report.verdict_page import write_report

    mechanisms = mechanisms_of(
        builder, nodes, positions, cost_aware, gdn_form, q_weights, q_gate, certified_head
    )
    batch = batch_of(node_budget, drafter_blocks, whole_prompt_rows, prompt_rows)
    least = Rules().min_tokens
    if prompts * max_tokens < least:
        raise RequestError(
            f"audit: got {prompts} prompts of at most {max_tokens} tokens, expected enough for the {least} that a "
            "verdict takes; ask for more --prompts or --max-tokens"
        )
    folder = None if model is None else str(model)
    show = _progress(json)
    if url is not None:
        if mechanisms != mechanisms_of() or batch != batch_of(None, False, 0, None) or drafter is not None:
            raise RequestError("audit: got mechanisms with --url, expected none: a server has its own")
        key = None if key_file is None else _read_key(key_file)
        what = LiveAudit(url, folder, scored_by, prompts, max_tokens, seed, probe, delta, key)
        verdict, texts = run_live_audit(what, show), None
    else:
        engine = open_engine(model, mode, num_threads, max_running=8, batch=batch, has_step_costs=cost_aware)
        name = resolve_drafter(engine, drafter)
        verdict = run_local_audit(
            engine, folder, name, mechanisms, prompts, max_tokens, seed, delta, on_progress=show
        )
        texts = engine.detokenize
    row: dict[str, Any] = {"verdict": verdict.to_json()}
    if report is not None:
        row["report"] = [str(path) for path in write_report(report, {"system": verdict}, texts)]
    if not json:
        print(verdict.word)
        for line in (*verdict.reasons, *verdict.notes):
            print(line)
        for arm, counts in verdict.counts.items():
            print(f"{arm}: {dict(counts)}")
    return Outcome(row, is_ok=verdict.passed is True)


def _read_key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"key-file: cannot read {path}: {error.strerror}") from None


def _progress(is_json: bool) -> Callable[[str, int, int], None]:
    last = ""

    def show(stage: str, done: int, total: int) -> None:
        nonlocal last
        if stage != last or done == total:
            print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)
        last = stage

    return show


def _power(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few prompts, tokens and trials: minutes, and rough.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run every system again instead of reading recorded rows.")
    ] = False,
    recorded: Annotated[
        Path | None, typer.Option(help="Recorded rows. Default: those of the bundled model.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=50, help="Trials a point. Default: 400; --quick 200.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write detection against tokens as .svg or .png.")
    ] = None,
    json: Json = False,
) -> Outcome:
    """False rejection of lossless systems, and detection of real injected faults, against tokens."""
    from specpilot.forcing.power.record import record
    from specpilot.forcing.power.recorded import BUNDLED, read_recording
    from specpilot.forcing.power.table import TOKENS, num_rows, power_table
    from specpilot.forcing.report.power_picture import power_picture
    from specpilot.forcing.rules import Rules

    if picture is not None and picture.suffix not in (".svg", ".png"):
        raise RequestError(f"picture: got {picture}, expected a name that ends with .svg or .png")
    if fresh:
        if recorded is not None:
            raise RequestError("power: got --fresh with --recorded, expected one of them")
        size = (32, 32, 128) if quick else (220, 32, 160)
        with tempfile.TemporaryDirectory() as folder:
            recording = record(Path(folder) / "recorded.json", *size, Rules())
    else:
        recording = read_recording(recorded or BUNDLED)
    tokens = TOKENS[:4] if quick else TOKENS
    num_trials = trials or (200 if quick else 400)
    with progress_bar("power", num_rows(recording, tokens)) as advance:
        table = power_table(recording, num_trials, tokens=tokens, on_row=advance)
    if picture is not None:
        canvas = power_picture(table)
        if picture.suffix == ".png":
            canvas.write_png(picture)
        else:
            picture.write_text(canvas.svg(), encoding="utf-8")
        table["picture"] = str(picture)
    if not json:
        _show_power(table)
    return Outcome(table, is_ok=bool(table["ok"]))


def _show_power(table: dict[str, Any]) -> None:
    print(f"largest false rejection: {table['false_rejection']:.2%} of {table['num_trials']} trials")
    tokens = sorted({row["tokens"] for row in table["faults"]})
    print("detection at tokens       " + "".join(f"{count:>9,}" for count in tokens))
    for name in dict.fromkeys(row["fault"] for row in table["faults"]):
        found = {row["tokens"]: row["detection"] for row in table["faults"] if row["fault"] == name}
        print(f"{name:26}" + "".join(f"{found[count]:9.0%}" for count in tokens))
    for row in table["audits"]:
        reach = "" if row["kind"] == "lossless" else f", detection {row['detection']:.0%} at this size"
        print(f"{row['system']}: {row['verdict']} over {row['tokens']:,} tokens{reach}")
