"""``specpilot generate``: one answer."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from specpilot.cli.options import (
    Chat,
    Drafter,
    Json,
    MaxTokens,
    Mode,
    Model,
    Temperature,
    Threads,
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
    top_p: Annotated[float, typer.Option(help="Nucleus mass.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Ends the answer; up to 16 times.")] = None,
    num_threads: Threads = None,
    json: Json = False,
) -> Outcome:
    """Decode one answer; without --json it is written as it comes."""
    sampling = SamplingParams(
        max_new_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=tuple(stop or ())
    )
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise RequestError("prompt: got bytes that are not UTF-8, expected text", param="prompt") from None
    engine = open_engine(model, mode, num_threads)
    prompt_ids = (
        engine.apply_chat_template([{"role": "user", "content": prompt}]) if chat else engine.tokenize(prompt)
    )
    request = GenerateRequest(prompt_ids, sampling, resolve_drafter(engine, drafter))
    report = _decode(engine, request, is_shown=not json)
    if not json:
        tau = "-" if report["tau"] is None else f"{report['tau']:.2f}"
        facts = f"{report['completion_tokens']} tokens, {report['tok_s']:.1f} tokens/s, tau {tau}"
        print(f"\n[{report['drafter']}: {facts}]", file=sys.stderr)
    return Outcome(report)


def _decode(engine: Engine, request: GenerateRequest, *, is_shown: bool) -> dict[str, Any]:
    began = time.perf_counter()
    first_token_s: float | None = None
    token_ids: list[int] = []
    texts: list[str] = []
    steps = AcceptCounter()
    finish_reason = None
    for chunk in engine.generate(request):
        if first_token_s is None:
            first_token_s = time.perf_counter() - began
        token_ids += chunk.token_ids
        texts.append(chunk.text)
        if chunk.step is not None:
            steps.add(chunk.step)
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
        "first_token_s": first_token_s,
        "total_s": total_s,
        "tok_s": len(token_ids) / total_s,
    }
