"""Trees in the engine on the bundled models: answers are those of plain decoding, whatever else is asked for.

Judge mode; short answers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from specpilot.draft import Draft, ProposeRequest
from specpilot.engines.base import CancelToken, Chunk, GenerateRequest, SamplingParams, StepRecord
from specpilot.engines.mechanisms import STOCK, Builder, Mechanisms
from specpilot.errors import EngineError
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine
from tests.specpilot.refengine.engine_probe import Probe, tokens

BUILDERS: tuple[Builder, ...] = ("chain", "best_first", "ddtree", "eagle2", "sequoia")
DRAFTERS = ("dflash2", "dspark", "eagle3", "suffix")
QUESTIONS = (
    "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens does she have now?",
    "Copy this list:\n\n- green lamp\n- wooden ladder\n- three silver spoons",
    "Tell me something about rivers.",
)
TREE = Mechanisms("best_first", 16)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"steps": {"type": "array", "items": {"type": "string"}}, "pens": {"type": "integer"}},
        "required": ["steps", "pens"],
    }
)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge", num_threads=1, has_step_costs=True)


def request(
    engine: ReferenceEngine,
    question: str,
    drafter: str | None,
    mechanisms: Mechanisms = STOCK,
    **sampling: Any,
) -> GenerateRequest:
    ids = engine.apply_chat_template([{"role": "user", "content": question}])
    params = SamplingParams(**{"max_new_tokens": 24, **sampling})
    return GenerateRequest(ids, params, drafter, mechanisms=mechanisms)


def ask(engine: ReferenceEngine, *arguments: Any, **sampling: Any) -> list[Chunk]:
    return list(engine.generate(request(engine, *arguments, **sampling)))


def facts(chunks: list[Chunk]) -> tuple[list[int], str, str | None]:
    return tokens(chunks), "".join(chunk.text for chunk in chunks), chunks[-1].finish_reason


def steps_of(chunks: list[Chunk]) -> list[StepRecord]:
    return [chunk.step for chunk in chunks if chunk.step is not None]


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_answers_are_plain_ones(engine: ReferenceEngine, drafter: str, builder: Builder) -> None:
    for question in QUESTIONS[:2]:
        chunks = ask(engine, question, drafter, Mechanisms(builder, 16))
        assert facts(chunks) == facts(ask(engine, question, None))
        assert builder in {step.mechanism for step in steps_of(chunks)} or drafter == "suffix"


def test_step_records_say_what_was_verified(engine: ReferenceEngine) -> None:
    chunks = ask(engine, QUESTIONS[0], "dflash2", TREE, ignore_eos=True)
    for chunk in chunks[1:-1]:
        step = chunk.step
        assert step is not None and step.mechanism == "best_first" and step.fallback == ""
        assert step.num_rows == 16 == step.num_drafted + 1
        assert step.num_correct_drafts <= step.depth <= 7
        assert len(chunk.token_ids) == step.num_correct_drafts + 1 and chunk.token_ids[-1] == step.bonus_id
        assert step.draft_us > 0 and 0 < step.verify_us <= step.total_us
        assert (step.num_q_rows, step.q_us) == (0, 0.0)
    assert max(step.num_correct_drafts for step in steps_of(chunks)) > 1


def test_one_node_is_plain_decoding(engine: ReferenceEngine) -> None:
    for builder in ("chain", "best_first"):
        chunks = ask(engine, QUESTIONS[0], "dflash2", Mechanisms(builder, 1))
        assert facts(chunks) == facts(ask(engine, QUESTIONS[0], None))
        assert {(step.mechanism, step.num_rows) for step in steps_of(chunks)} == {("plain", 1)}


def test_trees_stop_by_cost(engine: ReferenceEngine) -> None:
    """Fewer rows than asked for in some steps: how many depends on the machine, the answer does not."""
    chunks = ask(engine, QUESTIONS[2], "dflash2", Mechanisms("best_first", 64, is_cost_aware=True))
    assert facts(chunks) == facts(ask(engine, QUESTIONS[2], None))
    assert all(1 <= step.num_rows <= 64 for step in steps_of(chunks))
    assert min(step.num_rows for step in steps_of(chunks)) < 64


def test_several_at_once_mix_builders_drafters_and_temperatures(engine: ReferenceEngine) -> None:
    """Each is what it is alone, step by step."""
    asked = [
        request(engine, question, drafter, mechanisms, temperature=temperature, seed=5, top_logprobs=2)
        for question, (drafter, mechanisms, temperature) in zip(
            itertools.cycle(QUESTIONS),
            [
                (None, STOCK, 0.0),
                ("dflash2", TREE, 0.0),
                ("dflash2", STOCK, 0.9),
                ("dspark", Mechanisms("ddtree", 12, 5), 0.9),
                ("eagle3", Mechanisms("eagle2", 20), 0.0),
                ("suffix", Mechanisms("best_first", 8), 0.0),
                ("dflash2", Mechanisms("sequoia", 32), 1.3),
            ],
            strict=False,
        )
    ]
    alone = [list(engine.generate(one)) for one in asked]
    probe = Probe(engine)
    try:
        together = [list(answer) for answer in [engine.generate(one) for one in asked]]
    finally:
        probe.remove()
    for got, expected in zip(together, alone, strict=True):
        assert facts(got) == facts(expected)
        assert [chunk.logprobs for chunk in got] == [chunk.logprobs for chunk in expected]
        for one, other in zip(steps_of(got), steps_of(expected), strict=True):
            assert (one.num_drafted, one.num_correct_drafts) == (other.num_drafted, other.num_correct_drafts)
    assert max(len(step) for step in probe.steps) == len(asked)


@pytest.mark.parametrize("builder", BUILDERS[1:])
def test_sampled_answers_over_trees_are_plain_ones_with_the_same_seed(
    engine: ReferenceEngine, builder: Builder
) -> None:
    options = {"temperature": 1.0, "top_p": 0.97, "seed": 11, "frequency_penalty": 0.4, "top_logprobs": 1}
    plain = ask(engine, QUESTIONS[2], None, **options)
    for drafter in DRAFTERS:
        chunks = ask(engine, QUESTIONS[2], drafter, Mechanisms(builder, 16), **options)
        assert facts(chunks) == facts(plain)
        assert [entry for chunk in chunks for entry in chunk.logprobs] == [
            entry for chunk in plain for entry in chunk.logprobs
        ]
    assert facts(plain) != facts(ask(engine, QUESTIONS[2], None))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "options",
    [
        {"json_schema": SCHEMA},
        {"json_schema": SCHEMA, "frequency_penalty": 0.5, "logit_bias": {9: 2.0}},
        {"repetition_penalty": 1.6, "presence_penalty": 1.0},
    ],
)
def test_grammar_and_penalties_inside_branches(
    engine: ReferenceEngine, options: dict[str, Any], temperature: float
) -> None:
    options = {"max_new_tokens": 40, "temperature": temperature, "seed": 3} | options
    plain = ask(engine, QUESTIONS[0], None, **options)
    for drafter in ("dflash2", "eagle3"):
        chunks = ask(engine, QUESTIONS[0], drafter, TREE, **options)
        assert facts(chunks) == facts(plain)
    assert facts(plain) != facts(ask(engine, QUESTIONS[0], None, max_new_tokens=40))


def test_stop_strings_inside_branches(engine: ReferenceEngine) -> None:
    whole = facts(ask(engine, QUESTIONS[0], None))[1]
    for start, size in itertools.product(range(0, len(whole) - 9, 6), (1, 7)):
        stop = whole[start : start + size]
        chunks = ask(engine, QUESTIONS[0], "dflash2", TREE, stop=(stop,))
        assert facts(chunks)[1:] == (whole[: whole.index(stop)], "stop")


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_leaving_in_a_tree_step_disturbs_no_other(engine: ReferenceEngine, how: str) -> None:
    """The request leaves while its tree is being verified: the others go on as if alone."""
    stays = [request(engine, question, "dflash2", TREE) for question in QUESTIONS[:2]]
    expected = [facts(list(engine.generate(one))) for one in stays]
    cancel, probe = CancelToken(), Probe(engine)
    leaving = engine.generate(
        request(engine, QUESTIONS[2], "dflash2", TREE, max_new_tokens=300, ignore_eos=True), cancel
    )

    def leave(num_done: int) -> None:
        if num_done >= 4 and 16 in probe.steps[-1].values():
            cancel.cancel() if how == "cancel" else leaving.close()  # type: ignore[attr-defined]

    probe.before_step = leave
    try:
        answers = [engine.generate(one) for one in stays]
        assert [facts(list(answer)) for answer in answers] == expected
    finally:
        probe.remove()
    if how == "cancel":
        assert [chunk.finish_reason for chunk in leaving][-1] == "cancelled"
    assert engine.health().num_running == 0


def test_a_drafter_that_fails_for_a_tree_ends_its_request_alone(engine: ReferenceEngine) -> None:
    """Scores that are none, in the third draft of one request of three."""
    inner = engine.drafters["dflash2"]

    class Failing:
        def __init__(self) -> None:
            self.victim: object = None
            self.num_drafts = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def propose_many(self, requests: Sequence[ProposeRequest]) -> list[Draft]:
            self.victim = self.victim or requests[0].state
            drafts = inner.propose_many(requests)  # type: ignore[attr-defined]
            for index, one in enumerate(requests):
                self.num_drafts += one.state is self.victim
                if one.state is self.victim and self.num_drafts > 2:
                    lattice = drafts[index].lattice
                    nothing = replace(lattice, edge_scores=lattice.edge_scores * float("nan"))
                    drafts[index] = replace(drafts[index], lattice=nothing)
            return drafts

    asked = [request(engine, question, "dflash2", TREE) for question in QUESTIONS]
    expected = [facts(list(engine.generate(one))) for one in asked]
    engine.drafters["dflash2"] = Failing()
    try:
        answers = [engine.generate(one) for one in asked]
        errors = []
        for answer, want in zip(answers, expected, strict=True):
            try:
                assert facts(list(answer)) == want
            except EngineError as error:
                errors.append(str(error))
        assert len(errors) == 1 and "got nan" in errors[0]
    finally:
        engine.drafters["dflash2"] = inner
    assert engine.health().num_running == 0


def test_wy_form_in_serve_mode_departs_at_near_ties_only() -> None:
    """This form of Gated DeltaNet rounds otherwise: every token is the target's, or as likely but for 0.02 nats."""
    engine = build_engine(mode="serve", num_threads=1)
    for question in QUESTIONS:
        asked = request(engine, question, "dflash2", replace(TREE, gdn_form="wy"), max_new_tokens=40)
        chunks = list(engine.generate(asked))
        score = engine.score([*asked.prompt_ids, *tokens(chunks)], len(asked.prompt_ids))
        margins = [best - own for best, own in zip(score.argmax_logprobs, score.logprobs, strict=True)]
        assert max(margins) < 0.02
        assert {step.mechanism for step in steps_of(chunks)} == {"best_first"}
        assert len(chunks) < len(tokens(chunks))


OPTIONS: dict[str, dict[str, Any]] = {
    "nodes": {"num_nodes": 24},
    "positions": {"num_positions": 11},
    "cost": {"is_cost_aware": True},
    "two levels": {"q_weights": "int8"},
    "gate": {"q_weights": "int6", "is_q_gated": True},
    "certified head": {"has_certified_head": True},
}


@pytest.mark.parametrize("names", [*itertools.combinations(OPTIONS, 2), tuple(OPTIONS)], ids=" + ".join)
def test_options_of_a_request_together_change_no_answer(
    engine: ReferenceEngine, names: tuple[str, ...]
) -> None:
    fields = {key: value for name in names for key, value in OPTIONS[name].items()}
    pairs: tuple[tuple[Builder, str], ...] = (("best_first", "dflash2"), ("ddtree", "eagle3"))
    for builder, drafter in pairs:
        chunks = ask(engine, QUESTIONS[0], drafter, Mechanisms(builder=builder, **fields))
        assert facts(chunks) == facts(ask(engine, QUESTIONS[0], None))
        assert builder in {step.mechanism for step in steps_of(chunks)}
