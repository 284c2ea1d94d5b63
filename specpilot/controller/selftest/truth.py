"""Real answers for the test: the bundled target's greedy output, and that of the same target with a biased head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.forcing import Answer, Scorer, ScorerDescription
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.forcing.scores import TokenScores

__all__ = ["BIAS", "BIAS_EVERY", "RememberingScorer", "Truth"]

BIAS, BIAS_EVERY = 2.0, 7
_CONCURRENCY = 8


class RememberingScorer:
    """Scores every answer once; most systems of the test give the same ones."""

    def __init__(self, inner: Scorer) -> None:
        self._inner = inner
        self._scores: dict[tuple[tuple[int, ...], tuple[int, ...]], TokenScores] = {}

    def describe(self) -> ScorerDescription:
        return self._inner.describe()

    def score(
        self, answers: Sequence[Answer], on_scored: Callable[[int], None] = lambda num_tokens: None
    ) -> list[TokenScores]:
        keys = [(tuple(one.prompt_ids), tuple(one.output_ids)) for one in answers]
        missing = {key: one for key, one in zip(keys, answers, strict=True) if key not in self._scores}
        if missing:
            scored = self._inner.score(list(missing.values()), on_scored)
            self._scores.update(zip(missing, scored, strict=True))
        return [self._scores[key] for key in keys]

    def rescore(self, ids: Sequence[int], index: int) -> tuple[int, float]:
        return self._inner.rescore(ids, index)

    def continue_greedily(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        return self._inner.continue_greedily(ids, num_tokens)


class Truth:
    """Answers are decoded once and remembered; ``scorer`` judges with the same engine."""

    def __init__(self, engine: Engine, *, ignore_eos: bool = False) -> None:
        self.engine, self._ignore_eos = engine, ignore_eos
        self.scorer = RememberingScorer(EngineScorer(engine))
        about = engine.describe()
        self.eos_id = about.eos_ids[0]
        self._bias = {token_id: BIAS for token_id in range(0, about.vocab_size, BIAS_EVERY)}
        self._answers: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self._biased: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}

    def prepare(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        """Decode several at once."""
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            list(pool.map(lambda ids: self.answer(ids, max_new_tokens), prompts))

    def prepare_biased(self, prompts: Sequence[Sequence[int]], max_new_tokens: int, after: int = 0) -> None:
        """The same for :meth:`biased`."""
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            list(pool.map(lambda ids: self.biased(ids, max_new_tokens, after), prompts))

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[int, ...]:
        key = (tuple(prompt_ids), max_new_tokens)
        if key not in self._answers:
            self._answers[key] = self._decode(key[0], max_new_tokens, {})
        return self._answers[key]

    def biased(self, prompt_ids: Sequence[int], max_new_tokens: int, after: int = 0) -> tuple[int, ...]:
        """The same with 2 added to the logit of every 7th id once ``after`` tokens are out: the paper's fault (6.2)."""
        prompt_ids = tuple(prompt_ids)
        begin = self.answer(prompt_ids, max_new_tokens)[:after]
        is_ended = begin[-1:] == (self.eos_id,) and not self._ignore_eos
        if len(begin) < after or after >= max_new_tokens or is_ended:
            return begin
        key = ((*prompt_ids, *begin), max_new_tokens - after)
        if key not in self._biased:
            self._biased[key] = self._decode(*key, self._bias)
        return begin + self._biased[key]

    def _decode(
        self, prompt_ids: tuple[int, ...], max_new_tokens: int, bias: dict[int, float]
    ) -> tuple[int, ...]:
        sampling = SamplingParams(max_new_tokens=max_new_tokens, ignore_eos=self._ignore_eos, logit_bias=bias)
        request = GenerateRequest(prompt_ids, sampling, self.engine.describe().default_drafter)
        return tuple(token_id for chunk in self.engine.generate(request) for token_id in chunk.token_ids)
