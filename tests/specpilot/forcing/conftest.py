"""The bundled engine in judge mode, and its answers to a few prompts of our own."""

from __future__ import annotations

import pytest

from specpilot.bench.demo_prompts import DEMO_PROMPTS
from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.forcing import Answer
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

MAX_TOKENS = 48


def answer_all(engine: ReferenceEngine, drafter: str | None, **sampling) -> list[Answer]:
    """Two answers to every demo prompt, asked in two ways."""
    answers = []
    for number, prompt in enumerate(DEMO_PROMPTS):
        for name, text in (("chat", prompt), ("slow", f"Explain every step slowly. {prompt}")):
            ids = engine.apply_chat_template([{"role": "user", "content": text}])
            params = SamplingParams(max_new_tokens=MAX_TOKENS, **sampling)
            chunks = list(engine.generate(GenerateRequest(ids, params, drafter)))
            output = [token_id for chunk in chunks for token_id in chunk.token_ids]
            reason = chunks[-1].finish_reason
            answers.append(Answer(f"{name}-{number}", ids, output, reason, MAX_TOKENS))
    return answers


@pytest.fixture(scope="package")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, max_running=4)


@pytest.fixture(scope="package")
def scorer(engine) -> EngineScorer:
    return EngineScorer(engine, drafter="dflash2")


@pytest.fixture(scope="package")
def stock(engine) -> list[Answer]:
    return answer_all(engine, "dflash2")
