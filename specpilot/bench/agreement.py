"""``python -m specpilot.bench.agreement --requests SET ... --out REPORT.json``: how often does a copy agree?

Every request is answered greedily by the exact target (with ``--max-tokens 0`` by nobody); prompt and answer are then
run again, teacher-forced, in passes of ``--rows`` rows. Each low-precision copy runs a pass as a Q pass does: on the
exact state, with the pass's own rows before it, and its rows are dropped. A position counts as agreement when the
copy's largest logit is the exact pass's, the lowest id among equals. The 95% interval resamples requests, for positions
of one text are not independent.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from specpilot.bench.answer import decode_answer
from specpilot.bench.provenance import find_commit, find_versions
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import QWeights
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.low_precision import LowPrecisionCopy, low_precision_copy
from specpilot.refengine.target import Target
from specpilot.requests.reading import read_requests

__all__ = ["Agreement", "agreement_report", "count_agreement", "main"]

_NUM_RESAMPLES = 2_000


@dataclass
class Agreement:
    """Counts of one copy, one entry a text.

    Attributes
    ----------
    equal, positions
        All positions but the last of a text, whose next token is not there.
    answer_equal, answer_positions
        Those of them that choose a token of the answer.
    """

    equal: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    answer_equal: list[int] = field(default_factory=list)
    answer_positions: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        low, high = _interval(self.equal, self.positions)
        return {
            "top1": _share(self.equal, self.positions),
            "top1_95": [low, high],
            "top1_answers": _share(self.answer_equal, self.answer_positions),
            "num_positions": sum(self.positions),
            "num_answer_positions": sum(self.answer_positions),
        }


@torch.inference_mode()
def count_agreement(
    target: Target, copies: Sequence[LowPrecisionCopy], token_ids: Sequence[int], num_rows: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each copy's choice after each token but the last is the target's: (copies, tokens - 1)."""
    state = target.new_state(len(token_ids))
    parts = []
    for begin in range(0, len(token_ids) - 1, num_rows):
        ids = torch.tensor(token_ids[begin : min(begin + num_rows, len(token_ids) - 1)])
        chosen = []
        for copy in copies:
            state.open_rows(len(ids))
            chosen.append(_choices(copy.target, ids, state))
            state.commit(0)
        state.open_rows(len(ids), is_decided=True)
        exact = _choices(target, ids, state)
        state.commit(len(ids))
        parts.append(np.stack(chosen) == exact)
    return np.concatenate(parts, 1)


def _choices(target: Target, ids: torch.Tensor, state: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    logits = target.logits(target.forward_batch(ids, [state]).hidden).numpy()
    return np.asarray(logits.argmax(1), np.int64)


def agreement_report(
    engine: ReferenceEngine,
    prompts: Sequence[Sequence[int]],
    kinds: Sequence[QWeights],
    *,
    num_positions: int,
    max_new_tokens: int,
    num_rows: int,
    has_head: bool,
) -> dict[str, Any]:
    """Agreement of copies over texts until ``num_positions`` are counted or the prompts have run out."""
    copies = [low_precision_copy(engine.target, kind, has_head=has_head) for kind in kinds]
    counts = [Agreement() for _ in copies]
    drafter = engine.describe().default_drafter
    for prompt in prompts:
        if sum(counts[0].positions) >= num_positions:
            break
        answer: Sequence[int] = ()
        if max_new_tokens:
            params = SamplingParams(max_new_tokens=max_new_tokens)
            answer = decode_answer(engine, GenerateRequest(prompt, params, drafter)).token_ids
        is_equal = count_agreement(engine.target, copies, [*prompt, *answer], num_rows)
        for count, row in zip(counts, is_equal, strict=True):
            for name, part in (("", row), ("answer_", row[len(prompt) - 1 :])):
                getattr(count, f"{name}equal").append(int(part.sum()))
                getattr(count, f"{name}positions").append(len(part))
    return {
        "num_texts": len(counts[0].positions),
        "rows_a_pass": num_rows,
        "has_head": has_head,
        "copies": {
            kind: count.as_json()
            | {
                "memory_bytes": copy.memory_bytes,
                "format_bytes": copy.format_bytes,
                "exact_bytes": copy.exact_bytes,
            }
            for kind, count, copy in zip(kinds, counts, copies, strict=True)
        },
    }


def _share(equal: Sequence[int], positions: Sequence[int]) -> float | None:
    return sum(equal) / sum(positions) if sum(positions) else None


def _interval(
    equal: Sequence[int], positions: Sequence[int], seed: int = 0
) -> tuple[float, float] | tuple[None, None]:
    if not sum(positions):
        return None, None
    draw = np.random.default_rng(seed).integers(0, len(positions), (_NUM_RESAMPLES, len(positions)))
    shares = np.array(equal)[draw].sum(1) / np.array(positions)[draw].sum(1)
    low, high = np.quantile(shares, (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m specpilot.bench.agreement", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--requests", type=Path, nargs="+", required=True, help="JSON lines with prompts")
    parser.add_argument("--model", help="model folder or GGUF file; default: the bundled models")
    parser.add_argument("--q-weights", nargs="+", choices=get_args(QWeights), default=get_args(QWeights))
    parser.add_argument("--positions", type=int, default=100_000, help="positions to count, at least")
    parser.add_argument(
        "--max-tokens", type=int, default=256, help="tokens of an answer, at most; 0: prompts alone"
    )
    parser.add_argument("--rows", type=int, default=32, help="rows of a pass")
    parser.add_argument("--exact-head", action="store_true", help="copies take the target's own LM head")
    parser.add_argument("--out", type=Path, help="where the report goes; default: standard output")
    options = parser.parse_args()
    engine = build_engine(options.model, mode="judge", max_running=1)
    sets = [read_requests(path) for path in options.requests]
    # In turns, so that a limit takes as many of each set.
    longest = max(map(len, sets))
    chosen = [requests[index] for index in range(longest) for requests in sets if index < len(requests)]
    prompts = [
        engine.apply_chat_template([{"role": "user", "content": request.turns[0]}]) for request in chosen
    ]
    report = agreement_report(
        engine,
        prompts,
        options.q_weights,
        num_positions=options.positions,
        max_new_tokens=options.max_tokens,
        num_rows=options.rows,
        has_head=not options.exact_head,
    )
    report |= {
        "model": engine.describe().model_id,
        "commit": find_commit(),
        "versions": dict(find_versions()),
    }
    text = json.dumps(report, indent=1)
    if options.out is None:
        sys.stdout.write(text + "\n")
    else:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
