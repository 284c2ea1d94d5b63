"""Every sampling option keeps its law with drafts: enumerated on six tokens, by chi-square on two hundred.

Each test of losslessness has negative controls that must fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from specpilot.engines.base import SamplingParams
from specpilot.errors import EngineError
from specpilot.sampling import JsonGrammars, TokenChooser, new_chooser
from tests.oracles.array_grammar import END, SCHEMA, ArrayTokenizer, allowed_ids
from tests.oracles.law_bench import (
    Law,
    Setting,
    Tokens,
    drawn_counts,
    emitted_law,
    plain_law,
    total_variation,
)
from tests.oracles.sampling_reference import reference_law, reference_logits
from tests.oracles.statistics import chi_square_p_value

PROMPT = (1, 1)
# Said before the answers that are compared, so that counts and grammar do not begin at nothing.
BEGUN = (0, 2)

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "truncations": {"temperature": 0.8, "top_k": 4, "top_p": 0.85, "min_p": 0.1},
    "repetition": {"repetition_penalty": 1.7},
    "repetition below 1": {"repetition_penalty": 0.6},
    "frequency": {"frequency_penalty": 1.1},
    "presence": {"presence_penalty": -0.9},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.7, "presence_penalty": 0.4},
    "bias": {"logit_bias": {0: 2.0, 4: -3.0}},
    "ban": {"logit_bias": {2: -100.0, 3: 100.0}, "top_p": 0.9999},
    "grammar": {"json_schema": SCHEMA},
    "all": {
        "temperature": 0.8,
        "top_k": 4,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.7,
        "presence_penalty": 0.4,
        "logit_bias": {1: -1.0, 4: 1.5},
        "json_schema": SCHEMA,
    },
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These rows are short: a second thread only costs time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@lru_cache
def grammars() -> JsonGrammars:
    return JsonGrammars(ArrayTokenizer(), 6, [END])


def params_of(name: str) -> SamplingParams:
    return SamplingParams(**({"temperature": 1.0} | OPTIONS[name]))


def setting_of(params: SamplingParams, seed: int = 0, **fields: Any) -> Setting:
    temperature = params.temperature
    return Setting(
        seed,
        eos_ids=(END,) if params.json_schema else (),
        drawn=lambda scores: torch.softmax(scores.double() / temperature, -1),
        **fields,
    )


def begun(
    params: SamplingParams, kind: Callable[..., TokenChooser] | None = None
) -> Callable[[], TokenChooser]:
    """Makes choosers with ``BEGUN`` said already; ``kind`` makes them faulty."""

    def new() -> TokenChooser:
        chooser = new_chooser(params, PROMPT, vocab_size=6, grammars=grammars())
        if kind is not None:
            chooser.__class__ = kind  # type: ignore[assignment]
        chooser.advance(BEGUN)
        return chooser

    return new


def reference(setting: Setting, params: SamplingParams) -> Law:
    def next_law(logits: Tensor, said: Tokens) -> Sequence[float]:
        said = BEGUN + said
        allowed = allowed_ids(said) if params.json_schema else None
        rows = reference_logits(logits.tolist(), params, prompt=PROMPT, said=said, allowed=allowed)
        return reference_law(rows, params)

    return plain_law(setting, next_law)


def distance(params: SamplingParams, kind: Callable[..., TokenChooser] | None = None, **fields: Any) -> float:
    setting = setting_of(params, **fields)
    return total_variation(emitted_law(setting, begun(params, kind)), reference(setting, params))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", OPTIONS)
def test_law_with_drafts_is_exactly_the_law_without(name: str, seed: int) -> None:
    params = params_of(name)
    law = reference(setting_of(params, seed), params)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    assert distance(params, seed=seed) < 1e-12


def test_every_option_changes_the_law() -> None:
    """Otherwise the test above would also pass without them."""
    plain = reference(setting_of(params_of("plain")), params_of("plain"))
    for name in OPTIONS.keys() - {"plain"}:
        params = params_of(name)
        assert total_variation(reference(setting_of(params), params), plain) > 0.01, name


class BiasOnFirstRowOnly(TokenChooser):
    def process(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        biased = super().process(logits, path)
        return torch.cat((biased[:1], logits[1:]))


class PenaltiesOfFirstRow(TokenChooser):
    def process(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        return torch.cat([super(PenaltiesOfFirstRow, self).process(row[None], ()) for row in logits])


class GrammarOfFirstRow(PenaltiesOfFirstRow):
    """The same fault: here what does not follow the draft is the grammar."""


class GrammarNotRolledBack(TokenChooser):
    def process(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        out = super().process(logits, path)
        assert self._grammar is not None
        for token in path:
            if token not in allowed_ids(self._said) or token == END:
                break
            self._grammar.advance([token])
            self._said = (*self._said, token)
        return out

    _said: Tokens = BEGUN


class TopPBeforeTemperature(TokenChooser):
    def law(self, rows: Tensor) -> Tensor:
        params = self._params
        kept = TokenChooser.law(_with(self, replace(params, temperature=1.0)), rows)
        weights = kept.pow(1.0 / params.temperature)
        return weights / weights.sum(-1, keepdim=True)


def _with(chooser: TokenChooser, params: SamplingParams) -> TokenChooser:
    other = TokenChooser.__new__(TokenChooser)
    other.__dict__.update(chooser.__dict__, _params=params)
    return other


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bias", BiasOnFirstRowOnly),
        ("frequency", PenaltiesOfFirstRow),
        ("presence", PenaltiesOfFirstRow),
        ("repetition", PenaltiesOfFirstRow),
        ("truncations", TopPBeforeTemperature),
    ],
)
def test_control_faulty_chooser_changes_the_law(name: str, kind: type[TokenChooser]) -> None:
    assert distance(params_of(name), kind) > 0.001


@pytest.mark.parametrize("kind", [GrammarNotRolledBack, GrammarOfFirstRow])
def test_control_grammar_at_the_wrong_place_breaks(kind: type[TokenChooser]) -> None:
    """Sooner or later a token is committed that cannot follow, and the grammar says so."""
    with pytest.raises(EngineError, match="grammar"):
        distance(params_of("grammar"), kind)


def truncated(law: Tensor, top_p: float) -> Tensor:
    ranked, order = law.sort(descending=True, stable=True)
    kept = torch.zeros_like(law).scatter(0, order, ranked * (ranked.cumsum(0) - ranked < top_p))
    return kept / kept.sum()


def test_control_drafts_scored_in_another_precision_change_the_law() -> None:
    """Drawn from float32 scores, scored as bfloat16: a small difference, far above the rounding of the test."""
    params = params_of("plain")
    claimed = lambda scores: torch.softmax(scores.bfloat16().double(), -1)  # noqa: E731
    setting = replace(setting_of(params), claimed=claimed)
    found = total_variation(emitted_law(setting, begun(params)), reference(setting, params))
    assert 1e-5 < found < 0.01


def test_control_q_truncated_in_another_order_changes_the_law() -> None:
    """Drawn by temperature then top-p, scored by top-p then temperature."""
    params = params_of("plain")
    one = lambda scores: truncated(torch.softmax(scores.double() / 2.0, -1), 0.7)  # noqa: E731
    other = lambda scores: torch.softmax(truncated(torch.softmax(scores.double(), -1), 0.95).log() / 2.0, -1)  # noqa: E731
    setting = replace(setting_of(params), drawn=one)
    assert total_variation(emitted_law(setting, begun(params)), reference(setting, params)) < 1e-12
    wrong = replace(setting, claimed=other)
    assert total_variation(emitted_law(wrong, begun(params)), reference(setting, params)) > 0.01


LARGER = Setting(3, vocab_size=200, num_tokens=2, depth=1, width=16, spread=1.5, is_informed=True)
LARGER_OPTIONS = SamplingParams(
    temperature=0.7,
    top_k=30,
    top_p=0.98,
    min_p=0.01,
    repetition_penalty=1.2,
    # Below 0 they favour what was said, which no chooser that forgets to count can imitate.
    frequency_penalty=-2.0,
    presence_penalty=-1.5,
    logit_bias={token: 1.0 for token in range(0, 200, 7)},
)


def chi_square_on_larger(kind: Callable[..., TokenChooser] | None = None, **fields: Any) -> float:
    params = LARGER_OPTIONS
    setting = replace(setting_of(params), **(LARGER.__dict__ | {"drawn": setting_of(params).drawn} | fields))

    def new() -> TokenChooser:
        chooser = new_chooser(params, PROMPT, vocab_size=200, grammars=grammars())
        if kind is not None:
            chooser.__class__ = kind  # type: ignore[assignment]
        return chooser

    def next_law(logits: Tensor, said: Tokens) -> Sequence[float]:
        return reference_law(reference_logits(logits.tolist(), params, prompt=PROMPT, said=said), params)

    law = plain_law(setting, next_law)
    return chi_square_p_value(*drawn_counts(setting, new, law, 2_500, seed=2024))


def test_drawn_answers_on_200_tokens_pass_chi_square() -> None:
    """2,500 answers of two tokens with every option but grammar, fixed seed, level 0.001."""
    assert chi_square_on_larger() > 0.001


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (PenaltiesOfFirstRow, {}),
        (BiasOnFirstRowOnly, {}),
        (None, {"claimed": lambda scores: torch.softmax(scores.double() / 2.0, -1)}),
    ],
)
def test_control_chi_square_rejects(kind: Callable[..., TokenChooser] | None, fields: dict[str, Any]) -> None:
    assert chi_square_on_larger(kind, **fields) < 1e-6
