"""``python -m specpilot.bench.certified_head``: the certified LM head beside the full one, and how many rows survive.

Hidden rows are those of the exact pass over answers of the model itself. Both heads take turns on the same rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from specpilot.bench.answer import decode_answer
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.errors import EngineError
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns

__all__ = ["head_report", "main"]

_PROMPTS = ("What is 12 times 7?", "Write a Python function that adds two numbers.", "Tell me about rivers.")


@torch.inference_mode()
def head_report(
    engine: ReferenceEngine, num_rows: list[int], num_tokens: int, samples: int
) -> dict[str, Any]:
    """Times in microseconds (p20, p50, p80) by rows of a call, and survivors over all hidden rows.

    Raises
    ------
    EngineError
        The heads disagree.
    """
    target, head = engine.target, engine.copies.certified_head()
    hidden = torch.cat([_hidden(engine, prompt, num_tokens) for prompt in _PROMPTS])
    result = head.rows(hidden)
    full = target.logits(hidden).numpy().argmax(1)
    if not np.array_equal(result.argmax_ids, full):
        raise EngineError("certified head: got another argmax than the full head's; its bound is wrong")
    times = {}
    for rows in num_rows:
        part = hidden[-rows:].contiguous()
        calls: dict[str, Callable[[], object]] = {
            "certified": lambda part=part: head.rows(part),  # type: ignore[misc]
            "full": lambda part=part: target.logits(part),  # type: ignore[misc]
        }
        taken = time_in_turns(calls, 3, samples)
        times[str(rows)] = {
            name: [round(quantile(values, share), 1) for share in (0.2, 0.5, 0.8)]
            for name, values in taken.items()
        }
    counts = result.num_survivors
    return {
        "cpu": cpu_name(),
        "model": engine.describe().model_id,
        "vocab_size": target.config.vocab_size,
        "hidden_size": target.config.hidden_size,
        "memory_bytes": head.memory_bytes,
        "num_hidden_rows": len(hidden),
        "survivors_mean": float(counts.mean()),
        "survivors_p50_p99_max": [int(np.quantile(counts, share)) for share in (0.5, 0.99, 1.0)],
        "num_full": int(result.is_full.sum()),
        "us_by_rows": times,
    }


def _hidden(engine: ReferenceEngine, prompt: str, num_tokens: int) -> torch.Tensor:
    ids = engine.apply_chat_template([{"role": "user", "content": prompt}])
    answer = decode_answer(engine, GenerateRequest(ids, SamplingParams(max_new_tokens=num_tokens)))
    text = torch.tensor([*ids, *answer.token_ids])
    return engine.target.forward(text, engine.target.new_state(len(text))).hidden


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m specpilot.bench.certified_head", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--model", help="model folder or GGUF file; default: the bundled models")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16], help="hidden rows of a call")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of an answer, at most")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--num-threads", type=int, default=1)
    options = parser.parse_args()
    engine = build_engine(options.model, mode="judge", num_threads=options.num_threads, max_running=1)
    report = head_report(engine, options.rows, options.max_tokens, options.samples)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
