"""A chooser treats every row with the tokens before it, and greedy answers are the same with drafts and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import Draft
from specpilot.engines.base import SamplingParams
from specpilot.errors import RequestError, Unsupported
from specpilot.sampling import JsonGrammars, TokenChooser, new_chooser
from tests.oracles.array_grammar import END, SCHEMA, ArrayTokenizer, allowed_ids
from tests.oracles.law_bench import Setting
from tests.oracles.sampling_reference import reference_choice, reference_logits

PROMPT = (1, 3, 3)
GRAMMARS = JsonGrammars(ArrayTokenizer(), 6, [END])


def chooser_of(params: SamplingParams, grammars: JsonGrammars = GRAMMARS) -> TokenChooser:
    return new_chooser(params, PROMPT, vocab_size=6, grammars=grammars)


OPTIONS = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from([1.0, 0.5, 1.25, 2.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.5, -1.0]),
        "presence_penalty": st.sampled_from([0.0, 0.25, -2.0]),
        "logit_bias": st.dictionaries(
            st.integers(0, 5), st.sampled_from([-100.0, -1.0, 0.5, 100.0]), max_size=3
        ),
        "json_schema": st.sampled_from([None, SCHEMA]),
    }
)


@given(OPTIONS, st.integers(0, 10_000), st.lists(st.integers(0, 5), max_size=5))
def test_rows_equal_the_reference(options: dict[str, Any], seed: int, path: list[int]) -> None:
    params = SamplingParams(**options)
    chooser, begun = chooser_of(params), [0, 2]
    chooser.advance(begun)
    rows = Setting(seed).rows((), tuple(path))
    before = rows.clone()
    processed = chooser.process(rows, path)
    assert torch.equal(rows, before)
    assert torch.equal(chooser.process(rows, path), processed)  # nothing was remembered
    for index, row in enumerate(rows):
        said = begun + path[:index]
        allowed = None
        if params.json_schema:
            allowed = allowed_ids(said)
        expected = reference_logits(row.tolist(), params, prompt=PROMPT, said=said, allowed=allowed)
        assert processed[index].tolist() == pytest.approx(expected, abs=1e-12)
        if index < len(path) and allowed is not None and (path[index] not in allowed or path[index] == END):
            break  # no row behind this one is ever used


@given(OPTIONS, st.integers(0, 10_000))
def test_greedy_answers_are_equal_with_drafts_and_without(options: dict[str, Any], seed: int) -> None:
    params = SamplingParams(**options)
    setting = Setting(seed, num_tokens=12, depth=4, eos_ids=(END,))
    plain: list[int] = []
    while len(plain) < 12 and END not in plain:
        allowed = allowed_ids(plain) if params.json_schema else None
        row = setting.logits(tuple(plain)).tolist()
        plain.append(
            reference_choice(reference_logits(row, params, prompt=PROMPT, said=plain, allowed=allowed))
        )
    for is_drafting in (False, True):
        chooser, num_steps = chooser_of(params), 0
        said: tuple[int, ...] = ()
        while not setting.is_over(said):
            draft = None
            if is_drafting and setting.depth_after(said):
                lattice = setting.lattice(said, setting.depth_after(said))
                chain = lattice.greedy_chain()
                if num_steps % 2:  # a drafter that is often right
                    chain = torch.tensor(plain[len(said) : len(said) + len(chain)])
                draft = Draft(chain, None, lattice)
            path = () if draft is None else tuple(draft.token_ids.tolist())
            said += setting.cut(tuple(chooser.choose(setting.rows(said, path), draft)))
            num_steps += 1
        assert list(said)[: len(plain)] == plain


def test_equal_logits_go_to_the_lowest_id_after_all_options() -> None:
    params = SamplingParams(logit_bias={4: 1.0, 2: 1.0}, frequency_penalty=0.5)
    chooser = chooser_of(params)
    assert [chooser.choose(torch.zeros(1, 6)) for _ in range(4)] == [[2], [4], [2], [4]]


def test_seeds_repeat_and_differ() -> None:
    def run(seed: int | None) -> list[int]:
        chooser = chooser_of(SamplingParams(temperature=1.0, seed=seed))
        return [chooser.choose(torch.zeros(1, 6))[0] for _ in range(24)]

    assert run(5) == run(5) != run(6)
    assert run(None) != run(None)


@pytest.mark.parametrize("options", [{"logit_bias": {6: 1.0}}, {"logit_bias": {0: 1.0, 900: 1.0}}])
def test_unknown_ids_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="logit_bias") as refused:
        chooser_of(SamplingParams(**options))
    assert refused.value.param == "logit_bias"


def test_a_model_without_end_of_text_cannot_end_such_an_answer() -> None:
    with pytest.raises(Unsupported, match="end-of-text"):
        chooser_of(SamplingParams(json_schema=SCHEMA), JsonGrammars(ArrayTokenizer(), 6, []))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_k": -1}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"min_p": float("nan")}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": 2.5}, "repetition_penalty"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": float("-inf")}, "presence_penalty"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: 101.0}}, "logit_bias"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias"),
        ({"json_schema": SCHEMA, "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_options_out_of_range_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as refused:
        SamplingParams(**fields)
    assert refused.value.param == param
