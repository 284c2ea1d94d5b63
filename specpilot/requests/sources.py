"""Where a set's texts, tokenizer and conversations come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.requests.reading import BenchRequest, read_requests
from specpilot.requests.sets import AnswerText

__all__ = ["bundled_requests", "hash_tokenizer", "stock_answer"]

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def bundled_requests() -> list[BenchRequest]:
    """The repository's own, all benchmarks."""
    folder = Path(__file__).parent / "bundled"
    return [request for file in sorted(folder.glob("*.jsonl")) for request in read_requests(file)]


def hash_tokenizer(folder: Path) -> str:
    """sha256 over the tokenizer's definition and its settings, the chat template among them."""
    digest = hashlib.sha256()
    for name in _TOKENIZER_FILES:
        content = (folder / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def stock_answer(model: Path | None, max_new_tokens: int) -> AnswerText:
    """Greedy answers of plain decoding on the reference engine, which is loaded at the first one."""
    from specpilot.models.build import build_engine

    engines: list[Engine] = []

    def answer(prompt_ids: Sequence[int]) -> str:
        if not engines:
            engines.append(build_engine(None if model is None else str(model)))
        request = GenerateRequest(tuple(prompt_ids), SamplingParams(max_new_tokens=max_new_tokens))
        return "".join(chunk.text for chunk in engines[0].generate(request))

    return answer
