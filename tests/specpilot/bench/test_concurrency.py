"""Several requests at once beside one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from specpilot.bench.concurrency import run_concurrency
from specpilot.bench.pairs import BenchOptions
from specpilot.engines.base import CancelToken, Chunk, GenerateRequest
from specpilot.errors import EngineError, RequestError
from specpilot.requests.reading import BenchRequest
from tests.service.tiny_engine import TinyEngine

REQUESTS = [
    BenchRequest(str(index), (text,))
    for index, text in enumerate(("Tom has 3", "The owl", "So he", "Ann", "7"))
]
OPTIONS = BenchOptions("bigram", max_new_tokens=24)


class CountingEngine(TinyEngine):
    """Counts how many answers are read at the same moment, and in what order requests came."""

    def __init__(self) -> None:
        super().__init__(max_concurrency=4, step_delay_s=0.002)
        self.most = self._now = 0
        self.requests: list[GenerateRequest] = []
        self._lock = threading.Lock()

    def generate(self, request: GenerateRequest, cancel: CancelToken | None = None) -> Iterator[Chunk]:
        with self._lock:
            self.requests.append(request)
            self._now += 1
            self.most = max(self.most, self._now)
        yield from super().generate(request, cancel)
        with self._lock:
            self._now -= 1


def test_groups_run_alone_and_together_in_both_arms() -> None:
    engine = CountingEngine()
    summary = run_concurrency(engine, REQUESTS, OPTIONS, 2)
    assert (summary.concurrency, summary.num_groups) == (2, 2)  # the fifth request is left out
    assert set(summary.ratio) == {"plain", "bigram"}
    assert summary.num_diverged == {"plain": 0, "bigram": 0}
    assert engine.most == 2
    drafters = [request.drafter for request in engine.requests[4:]]  # after a warm-up of each arm
    assert drafters == [None] * 4 + ["bigram"] * 8 + [None] * 4
    assert all(request.sampling.ignore_eos for request in engine.requests)
    for name, ratio in summary.ratio.items():
        assert ratio == pytest.approx(summary.together_tok_s[name] / summary.alone_tok_s[name])


def test_few_requests_are_repeated() -> None:
    summary = run_concurrency(TinyEngine(max_concurrency=4), REQUESTS[:1], OPTIONS, 4)
    assert summary.num_groups == 1


def test_company_that_changes_an_answer_shows() -> None:
    class Sociable(CountingEngine):
        def _decode(self, ids: list[int], *rest: object) -> Iterator[Chunk]:
            if self._now > 1:
                ids = [*ids, 84]
            return super()._decode(ids, *rest)  # type: ignore[arg-type]

    assert sum(run_concurrency(Sociable(), REQUESTS, OPTIONS, 2).num_diverged.values()) > 0


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(RequestError, match="got 1, expected at least 2"):
        run_concurrency(TinyEngine(), REQUESTS, OPTIONS, 1)
    with pytest.raises(RequestError, match="max_tokens: got 3"):
        run_concurrency(TinyEngine(), REQUESTS, BenchOptions("bigram", max_new_tokens=3), 2)
    with pytest.raises(EngineError, match="secret detail"):
        run_concurrency(TinyEngine(fail_after_steps=3), REQUESTS, OPTIONS, 2)
