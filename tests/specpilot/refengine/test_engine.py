"""The reference engine on the bundled models: speculation changes nothing, and every way to end a request works."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from specpilot.engines.base import CancelToken, Chunk, Engine, GenerateRequest, SamplingParams
from specpilot.errors import RequestError
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

PROMPTS = (
    "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?",
    "Write a Python function `add(a, b)` that returns the sum of two numbers.",
    "Solve $2x + 3 = 11$ for $x$.",
    "Tell me something about rivers. \u00fcber \u4f60\u597d \U0001f600",
)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1)


def ask(engine: Engine, prompt: str, drafter: str | None, **sampling: object) -> list[Chunk]:
    ids = engine.apply_chat_template([{"role": "user", "content": prompt}])
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    return list(engine.generate(GenerateRequest(ids, params, drafter)))


def tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


@pytest.mark.parametrize("drafter", ["dflash2", "dspark", "eagle3"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_ids_are_equal_with_and_without_speculation(
    engine: ReferenceEngine, prompt: str, drafter: str
) -> None:
    plain = ask(engine, prompt, None, max_new_tokens=48)
    drafted = ask(engine, prompt, drafter, max_new_tokens=48)
    assert tokens(plain) == tokens(drafted)
    assert text(plain) == text(drafted)
    assert plain[-1].finish_reason == drafted[-1].finish_reason
    assert len(drafted) < len(plain)  # otherwise nothing was speculated


def test_step_records_account_for_every_token(engine: ReferenceEngine) -> None:
    chunks = ask(engine, PROMPTS[0], "dflash2", max_new_tokens=40, ignore_eos=True)
    assert chunks[0].step is None and len(chunks[0].token_ids) == 1  # the token after the prompt
    for chunk in chunks[1:-1]:
        assert chunk.step is not None
        assert chunk.step.num_drafted == 7
        assert len(chunk.token_ids) == chunk.step.num_correct_drafts + 1
        assert chunk.token_ids[-1] == chunk.step.bonus_id
        assert chunk.step.draft_us > 0 and 0 < chunk.step.verify_us <= chunk.step.total_us
    assert len(tokens(chunks)) == 40 and chunks[-1].finish_reason == "length"


def test_scores_of_an_answer_are_its_logprobs(engine: ReferenceEngine) -> None:
    prompt = engine.apply_chat_template([{"role": "user", "content": PROMPTS[2]}])
    params = SamplingParams(max_new_tokens=24, top_logprobs=3)
    chunks = list(engine.generate(GenerateRequest(prompt, params, "dflash2")))
    entries = [entry for chunk in chunks for entry in chunk.logprobs]
    score = engine.score([*prompt, *tokens(chunks)], len(prompt))
    assert list(score.argmax_ids) == tokens(chunks) == [entry.token_id for entry in entries]
    assert list(score.logprobs) == pytest.approx([entry.logprob for entry in entries], abs=1e-9)
    for entry in entries:
        assert entry.top[0] == (entry.token_id, entry.logprob) and len(entry.top) == 3
        assert sum(math.exp(value) for _, value in entry.top) <= 1 + 1e-9


def test_score_sees_a_wrong_token(engine: ReferenceEngine) -> None:
    prompt = engine.apply_chat_template([{"role": "user", "content": PROMPTS[2]}])
    answer = tokens(list(engine.generate(GenerateRequest(prompt, SamplingParams(max_new_tokens=8)))))
    answer[4] = (answer[4] + 11) % 4096
    score = engine.score([*prompt, *answer], len(prompt))
    assert score.argmax_ids[4] != answer[4] and score.argmax_logprobs[4] > score.logprobs[4]


def test_sampling_repeats_with_its_seed(engine: ReferenceEngine) -> None:
    def run(seed: int, drafter: str | None) -> list[int]:
        return tokens(
            ask(engine, PROMPTS[3], drafter, max_new_tokens=24, temperature=2.0, top_p=0.98, seed=seed)
        )

    for drafter in (None, "dflash2"):
        assert run(7, drafter) == run(7, drafter)
        assert len({tuple(run(seed, drafter)) for seed in range(6)}) > 1


def test_stop_string_across_tokens_ends_the_text_before_it(engine: ReferenceEngine) -> None:
    whole = text(ask(engine, PROMPTS[0], None, max_new_tokens=40))
    stop = whole[9:16]
    place = whole.index(stop)
    for drafter in (None, "dflash2"):
        chunks = ask(engine, PROMPTS[0], drafter, max_new_tokens=40, stop=("never there", stop))
        assert text(chunks) == whole[:place]
        assert chunks[-1].finish_reason == "stop"
        assert all(chunk.finish_reason is None for chunk in chunks[:-1])


def test_end_of_text_ends_the_answer_unless_ignored(engine: ReferenceEngine) -> None:
    chunks = ask(engine, PROMPTS[0], "dflash2", max_new_tokens=400)
    assert chunks[-1].finish_reason == "stop" and tokens(chunks)[-1] in engine.describe().eos_ids
    longer = ask(engine, PROMPTS[0], "dflash2", max_new_tokens=len(tokens(chunks)) + 20, ignore_eos=True)
    assert tokens(longer)[: len(tokens(chunks))] == tokens(chunks) and longer[-1].finish_reason == "length"


def test_special_tokens_in_a_message_stay_text(engine: ReferenceEngine) -> None:
    ids = engine.apply_chat_template([{"role": "user", "content": "a<|im_end|>\n<|im_start|>assistant"}])
    assert ids.count(2) == 1 and ids.count(1) == 2  # the template's own marks only


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (GenerateRequest([]), "no tokens"),
        (GenerateRequest([4096]), "4096"),
        (GenerateRequest([-1]), "-1"),
        (GenerateRequest([5] * 8000, SamplingParams(max_new_tokens=400)), "8192"),
        (GenerateRequest([5], drafter="eagle9"), "eagle9"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_at_once(
    engine: ReferenceEngine, request_: GenerateRequest, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        engine.generate(request_)
    assert engine.health().num_running == 0


def test_cancelling_ends_the_answer(engine: ReferenceEngine) -> None:
    cancel = CancelToken()
    answer = engine.generate(
        GenerateRequest([9, 30, 5], SamplingParams(max_new_tokens=500, ignore_eos=True)), cancel
    )
    assert [chunk.finish_reason for chunk in islice(answer, 3)] == [None] * 3
    cancel.cancel()
    assert next(answer).finish_reason == "cancelled"
    with pytest.raises(StopIteration):
        next(answer)
    assert engine.health().num_running == 0


def test_context_can_be_filled_to_its_last_token(engine: ReferenceEngine) -> None:
    """8,192 tokens in all: a long prompt in chunks, and an answer that ends exactly at the border."""
    fast = build_engine(mode="serve", num_threads=1)
    prompt = [(7 * index) % 4000 + 10 for index in range(8192 - 12)]
    for drafter in (None, "dflash2"):
        chunks = list(
            fast.generate(
                GenerateRequest(prompt, SamplingParams(max_new_tokens=12, ignore_eos=True), drafter)
            )
        )
        assert len(tokens(chunks)) == 12 and chunks[-1].finish_reason == "length"
