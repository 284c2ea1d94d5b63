"""Answers requests and records the drafters' lattices at every position of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specpilot.bench.answer import decode_answer
from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.errors import ConfigError, Unsupported
from specpilot.refengine.engine import ReferenceEngine
from specpilot.replay.every_position import record_every_position
from specpilot.replay.model_hash import hash_model
from specpilot.replay.recorder import FileRecorder
from specpilot.requests.reading import BenchRequest, hash_requests

__all__ = ["record_requests"]


def record_requests(
    engine: Engine,
    requests: Sequence[BenchRequest],
    drafters: Sequence[str],
    folder: Path,
    model: str | Path | None,
    max_new_tokens: int,
    num_positions: int | None = None,
    on_done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Greedy answers to the first turns, up to their loops, each recorded with every drafter.

    ``model`` is what the engine was built from. ``on_done`` is called once an answer and once a recorded drafter of it.
    """
    if not isinstance(engine, ReferenceEngine):
        raise Unsupported(f"record: got engine {engine.describe().engine!r}, expected the reference engine")
    missing = sorted(set(drafters) - set(engine.drafters))
    if missing or not drafters:
        raise ConfigError(
            f"drafter: got {missing or 'none'}, expected one or more of: {', '.join(engine.drafters)}"
        )
    recorder = FileRecorder(
        folder,
        model_id=engine.describe().model_id,
        model_hash=hash_model(None if model is None else str(model)),
    )
    num_steps = num_tokens = 0
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    for request in requests:
        prompt_ids = engine.apply_chat_template([{"role": "user", "content": request.turns[0]}])
        answer = decode_answer(engine, GenerateRequest(prompt_ids, sampling, drafters[0]))
        answer_ids = answer.token_ids[: answer.loop_start]
        num_tokens += len(answer_ids)
        on_done()
        for name in drafters:
            num_steps += record_every_position(
                engine.target,
                engine.drafters[name],
                name,
                prompt_ids,
                answer_ids,
                recorder,
                f"{name}/{request.id}",
                num_positions=num_positions,
            )
            on_done()
    recorder.close()
    return {
        "folder": str(folder),
        "num_requests": len(requests),
        "num_tokens": num_tokens,
        "num_steps": num_steps,
        "drafters": list(drafters),
        "requests_sha256": hash_requests(requests),
    }
