"""Any engine of the contract as scorer; the reference engine is the one to start with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.errors import ForcingError, SpecPilotError
from specpilot.forcing.answer import Answer
from specpilot.forcing.scorers.base import ScorerDescription, hash_tokenizer
from specpilot.forcing.scorers.http import score_many
from specpilot.forcing.scores import TokenScores

__all__ = ["EngineScorer"]


class EngineScorer:
    """Scores by ``Engine.score``, which runs no mechanism of speculation and, on the reference engine, an FP32 head.

    Parameters
    ----------
    concurrency
        Answers in flight; the engine batches them.
    drafter
        What stock speculates with when it goes on from a prefix; None decodes plainly.
    """

    def __init__(self, engine: Engine, *, concurrency: int = 4, drafter: str | None = None) -> None:
        self._engine, self._concurrency, self._drafter = engine, concurrency, drafter
        about = engine.describe()
        head = "fp32" if about.dtype == "float32" else "unknown"
        self._description = ScorerDescription(
            f"{about.engine} engine, {about.numeric_mode} mode",
            about.model_id,
            head,
            about.vocab_size,
            about.eos_ids,
            hash_tokenizer(about.vocab_size, engine.token_bytes),
            about.context_length,
        )

    def describe(self) -> ScorerDescription:
        return self._description

    def score(
        self, answers: Sequence[Answer], on_scored: Callable[[int], None] = lambda num_tokens: None
    ) -> list[TokenScores]:
        return score_many(self._score_one, answers, self._concurrency, on_scored)

    def _score_one(self, answer: Answer) -> TokenScores:
        ids, start = [*answer.prompt_ids, *answer.output_ids], len(answer.prompt_ids)
        try:
            result = self._engine.score(ids, start)
        except SpecPilotError as error:
            raise ForcingError(f"answer {answer.request_id!r}: the scorer refuses it: {error}") from error
        try:
            return TokenScores(
                np.array(result.logprobs, np.float64),
                np.array(result.argmax_ids, np.int64),
                np.array(result.argmax_logprobs, np.float64),
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise ForcingError(
                f"answer {answer.request_id!r}: log-probabilities are missing: {error}"
            ) from None

    def rescore(self, ids: Sequence[int], index: int) -> tuple[int, float]:
        result = self._engine.score(ids, index)
        return result.argmax_ids[0], result.argmax_logprobs[0] - result.logprobs[0]

    def continue_greedily(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        params = SamplingParams(max_new_tokens=num_tokens)
        chunks = self._engine.generate(GenerateRequest(ids, params, self._drafter))
        return [token_id for chunk in chunks for token_id in chunk.token_ids]
