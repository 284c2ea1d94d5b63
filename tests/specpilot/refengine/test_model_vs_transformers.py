"""Logits of the reference target against transformers, for every way of feeding the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.model import TargetModel, load_target
from tests.specpilot.refengine.random_target import SMALL, UNTIED, save_target

transformers = pytest.importorskip("transformers")

CONFIGS = {"tied": SMALL, "untied": UNTIED}
LENGTHS = (1, 63, 64, 65, 200)
LIMIT = 1e-4
"""Largest absolute logit error in float32; the logits have a standard deviation above 1."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Case:
    """A checkpoint in transformers' hands and in ours, with 200 tokens."""

    def __init__(self, folder: Path, config: TargetConfig) -> None:
        save_target(folder, config)
        self.folder, self.config = folder, config
        self.theirs: Any = transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.ids = torch.randint(
            config.vocab_size, (max(LENGTHS),), generator=torch.Generator().manual_seed(7)
        )
        self.expected: dict[int, Tensor] = {}
        self.residuals: dict[int, tuple[Tensor, ...]] = {}
        for length in LENGTHS:
            with torch.no_grad():
                result = self.theirs(self.ids[None, :length], output_hidden_states=True)
            self.expected[length] = result.logits[0]
            self.residuals[length] = tuple(hidden[0] for hidden in result.hidden_states)


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp(request.param), CONFIGS[request.param])


@pytest.fixture(scope="module", params=["serve", "judge"])
def mode(request: pytest.FixtureRequest) -> NumericMode:
    chosen: NumericMode = request.param
    return chosen


@pytest.fixture(scope="module")
def model(case: Case, mode: NumericMode) -> TargetModel:
    return load_target(case.folder, mode=mode)


def feed(model: TargetModel, ids: Tensor, block_sizes: Callable[[int], int]) -> Tensor:
    """Hidden rows of ``ids`` fed in blocks; ``block_sizes`` maps a position to the number of rows to feed
    there."""
    state = model.new_state(512)
    rows = []
    while state.num_tokens < len(ids):
        block = ids[state.num_tokens :][: block_sizes(state.num_tokens)]
        rows.append(model.forward(block, state).hidden)
        state.commit(len(block))
    return torch.cat(rows)


WAYS: dict[str, Callable[[int], int]] = {
    "whole": lambda position: 10_000,
    "chunks of 48": lambda position: 48,
    "uneven chunks": lambda position: 1 + position * 7 % 70,
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("way", WAYS)
def test_logits_in_chunks(model: TargetModel, case: Case, length: int, way: str) -> None:
    got = model.logits(feed(model, case.ids[:length], WAYS[way]))
    expected = case.expected[length]
    assert expected.std() > 1
    assert got.dtype == torch.float32 and got.shape == expected.shape
    assert (got - expected).abs().max() <= LIMIT


def test_logits_token_by_token(model: TargetModel, case: Case) -> None:
    got = model.logits(feed(model, case.ids, lambda position: 1))
    for length in LENGTHS:
        assert (got[:length] - case.expected[length]).abs().max() <= LIMIT


def test_rejected_rows_leave_no_trace(model: TargetModel, case: Case) -> None:
    """Verify steps of up to 8 rows, wrong tokens behind the accepted prefix, as in speculative decoding."""
    generator = torch.Generator().manual_seed(3)
    state = model.new_state(512)
    rows = []
    length = 65
    while state.num_tokens < length:
        num_rows = min(int(torch.randint(1, 9, (), generator=generator)), length - state.num_tokens)
        num_accepted = int(torch.randint(0, num_rows + 1, (), generator=generator))
        block = case.ids[state.num_tokens :][:num_rows].clone()
        block[num_accepted:] = (block[num_accepted:] + 1) % case.config.vocab_size
        rows.append(model.forward(block, state).hidden[:num_accepted])
        state.commit(num_accepted)
    assert (model.logits(torch.cat(rows)) - case.expected[length]).abs().max() <= LIMIT


def test_taps_are_layer_outputs(model: TargetModel, case: Case) -> None:
    """transformers lists the embedding first, so the output of layer n is entry n + 1; its last entry is
    normed."""
    taps = (2, 0)
    got = model.forward(case.ids[:65], model.new_state(100), taps=taps).taps
    expected = torch.cat([case.residuals[65][layer + 1] for layer in taps], 1)
    assert got.shape == (65, 2 * case.config.hidden_size)
    assert (got - expected).abs().max() <= LIMIT


def test_embedding(model: TargetModel, case: Case) -> None:
    assert torch.equal(model.embed(case.ids[:9]), case.residuals[63][0][:9])
