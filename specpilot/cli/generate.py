"""``specpilot generate``: one answer."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.options import (
    BuilderName,
    Chat,
    CostAware,
    Drafter,
    GdnFormName,
    Json,
    MaxTokens,
    Mode,
    Model,
    Nodes,
    Positions,
    Temperature,
    Threads,
    mechanisms_of,
    open_engine,
    resolve_drafter,
)
from specpilot.cli.outcome import Outcome
from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.errors import RequestError
from specpilot.metrics import AcceptCounter

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command("generate")(_generate)


def _generate(
    prompt: Annotated[str, typer.Argument(help="What to answer, or with --raw what to continue.")],
    model: Model = None,
    drafter: Drafter = None,
    mode: Mode = "serve",
    chat: Chat = True,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw among the k most likely tokens; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Nucleus mass.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Drop tokens less likely than this times the most likely one.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Weakens tokens of prompt and answer; 1 changes nothing.")
    ] = 1.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Taken from a token's logit for each time the answer has it.")
    ] = 0.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Taken from a token's logit once if the answer has it.")
    ] = 0.0,
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=BIAS", help="Added to a token's logit; any number of times."),
    ] = None,
    json_schema: Annotated[
        Path | None, typer.Option(help="File with the JSON Schema that the answer follows.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Ends the answer; up to 16 times.")] = None,
    builder: BuilderName = "chain",
    nodes: Nodes = None,
    positions: Positions = None,
    cost_aware: CostAware = False,
    gdn_form: GdnFormName = "path",
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Decode one answer; without --json it is written as it comes."""
    sampling = SamplingParams(
        max_new_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        logit_bias=_bias_of(logit_bias or ()),
        json_schema=None if json_schema is None else _read_schema(json_schema),
        seed=seed,
        stop=tuple(stop or ()),
    )
    mechanisms = mechanisms_of(builder, nodes, positions, cost_aware, gdn_form)
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise RequestError("prompt: got bytes that are not UTF-8, expected text", param="prompt") from None
    engine = open_engine(model, mode, num_threads, has_step_costs=cost_aware)
    prompt_ids = (
        engine.apply_chat_template([{"role": "user", "content": prompt}]) if chat else engine.tokenize(prompt)
    )
    request = GenerateRequest(prompt_ids, sampling, resolve_drafter(engine, drafter), mechanisms=mechanisms)
    report = _decode(engine, request, is_shown=not json)
    if not json:
        tau = "-" if report["tau"] is None else f"{report['tau']:.2f}"
        facts = f"{report['completion_tokens']} tokens, {report['tok_s']:.1f} tokens/s, tau {tau}"
        print(f"\n[{report['drafter']}: {facts}]", file=sys.stderr)
    return Outcome(report)


def _bias_of(pairs: Sequence[str]) -> dict[int, float]:
    """``ID=BIAS`` of each; ranges are checked with the other options."""
    bias: dict[int, float] = {}
    for pair in pairs:
        token_id, sign, value = pair.partition("=")
        try:
            bias[int(token_id)] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise RequestError(
                f"logit_bias: got {pair!r}, expected ID=BIAS, such as 50=-1.5", param="logit_bias"
            )
    return bias


def _read_schema(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"json_schema: cannot read {path}: {error}", param="json_schema") from None


def _decode(engine: Engine, request: GenerateRequest, *, is_shown: bool) -> dict[str, Any]:
    began = time.perf_counter()
    first_token_s: float | None = None
    token_ids: list[int] = []
    texts: list[str] = []
    steps = AcceptCounter()
    names: Counter[str] = Counter()
    finish_reason = None
    for chunk in engine.generate(request):
        if first_token_s is None:
            first_token_s = time.perf_counter() - began
        token_ids += chunk.token_ids
        texts.append(chunk.text)
        if chunk.step is not None:
            steps.add(chunk.step)
            names[chunk.step.mechanism] += 1
        if is_shown:
            sys.stdout.write(chunk.text)
            sys.stdout.flush()
        finish_reason = chunk.finish_reason
    total_s = time.perf_counter() - began
    if is_shown:
        print()
    return {
        "text": "".join(texts),
        "finish_reason": finish_reason,
        "token_ids": token_ids,
        "prompt_tokens": len(request.prompt_ids),
        "completion_tokens": len(token_ids),
        "drafter": request.drafter or "none",
        "num_steps": steps.num_steps,
        "tau": steps.tau,
        "mechanisms": dict(names),
        "first_token_s": first_token_s,
        "total_s": total_s,
        "tok_s": len(token_ids) / total_s,
    }
