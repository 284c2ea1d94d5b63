"""A row's bits never depend on the rows beside it, on its index, on how the sequence was cut, or on other sequences."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.model import TargetModel, load_target
from specpilot.refengine.numerics import Projection
from specpilot_kernels.chain_attention import memory
from specpilot_kernels.cpu_jit import num_threads, set_num_threads
from tests.specpilot.refengine.random_target import SMALL, UNTIED, random_tensors, save_target

CONFIGS = {"tied": SMALL, "untied": UNTIED}
NUM_PROMPT, NUM_TOKENS = 40, 120


@pytest.fixture(scope="module", autouse=True)
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads(), num_threads()
    torch.set_num_threads(1)
    set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    set_num_threads(before[1])


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    save_target(path, CONFIGS[request.param])
    return path


@pytest.fixture(scope="module")
def judge(folder: Path) -> TargetModel:
    return load_target(folder, mode="judge")


@pytest.fixture(scope="module")
def ids(folder: Path) -> Tensor:
    vocab_size = TargetConfig.from_json(folder).vocab_size
    return torch.randint(vocab_size, (NUM_TOKENS,), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def one_by_one(judge: TargetModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden rows and logits of the whole prompt in one call, then one token at a time."""
    return run(judge, ids, [NUM_PROMPT] + [1] * (NUM_TOKENS - NUM_PROMPT))


def run(model: TargetModel, ids: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """Feed ``ids`` in blocks of the given sizes, the head on each block's rows."""
    state = model.new_state(NUM_TOKENS)
    hidden, logits = [], []
    for block in ids.split(sizes):
        hidden.append(model.forward(block, state).hidden)
        logits.append(model.logits(hidden[-1]))
        state.commit(len(block))
    return torch.cat(hidden), torch.cat(logits)


def random_sizes(total: int, largest: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    sizes: list[int] = []
    while sum(sizes) < total:
        drawn = int(torch.randint(1, largest + 1, (), generator=generator))
        sizes.append(min(drawn, total - sum(sizes)))
    return sizes


def speculate(model: TargetModel, ids: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Prompt whole, then blocks of 1 to 8 rows of which a random prefix is right and committed."""
    generator = torch.Generator().manual_seed(seed)
    state = model.new_state(NUM_TOKENS)
    first = model.forward(ids[:NUM_PROMPT], state).hidden
    hidden, logits = [first], [model.logits(first)]
    state.commit(NUM_PROMPT)
    while state.num_tokens < NUM_TOKENS:
        num_rows = min(int(torch.randint(1, 9, (), generator=generator)), NUM_TOKENS - state.num_tokens)
        num_kept = int(torch.randint(0, num_rows + 1, (), generator=generator))
        block = ids[state.num_tokens :][:num_rows].clone()
        block[num_kept:] = (block[num_kept:] + 1) % model.config.vocab_size
        rows = model.forward(block, state).hidden
        hidden.append(rows[:num_kept])
        logits.append(model.logits(rows)[:num_kept])
        state.commit(num_kept)
    return torch.cat(hidden), torch.cat(logits)


def assert_equal_bits(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for rows, wanted in zip(got, expected, strict=True):
        assert rows.shape == wanted.shape
        different = (rows != wanted).any(1).nonzero().flatten().tolist()
        assert different == [], f"rows {different[:5]} differ"


@pytest.mark.parametrize("seed", range(4))
def test_speculation_changes_no_bit(
    judge: TargetModel, ids: Tensor, one_by_one: tuple[Tensor, Tensor], seed: int
) -> None:
    assert_equal_bits(speculate(judge, ids, seed), one_by_one)


@pytest.mark.parametrize(("largest", "seed"), [(5, 0), (20, 1), (60, 2), (NUM_TOKENS, 3)])
def test_prefill_cuts_change_no_bit(
    judge: TargetModel, ids: Tensor, one_by_one: tuple[Tensor, Tensor], largest: int, seed: int
) -> None:
    assert_equal_bits(run(judge, ids, random_sizes(NUM_TOKENS, largest, seed)), one_by_one)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU runs one thread")
def test_threads_change_no_bit() -> None:
    """With products of the bundled target's size, which are large enough to be shared between threads."""
    config = replace(SMALL, vocab_size=4096, hidden_size=256, intermediate_size=704)
    model = TargetModel(config, random_tensors(config), "judge")
    ids = torch.randint(config.vocab_size, (20,), generator=torch.Generator().manual_seed(0))
    expected = run(model, ids, [20])
    torch.set_num_threads(2)
    set_num_threads(2)
    try:
        assert_equal_bits(run(model, ids, [16, 1, 3]), expected)
    finally:
        torch.set_num_threads(1)
        set_num_threads(1)


def test_growth_of_the_cache_changes_no_bit(
    judge: TargetModel, ids: Tensor, one_by_one: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "KV_BLOCK_TOKENS", 16)
    assert_equal_bits(speculate(judge, ids, 1), one_by_one)


def test_head_rows_do_not_depend_on_their_number(judge: TargetModel) -> None:
    hidden = torch.randn(37, judge.config.hidden_size, generator=torch.Generator().manual_seed(0))
    whole = judge.logits(hidden)
    for first, last in ((0, 1), (3, 8), (16, 37), (36, 37)):
        assert torch.equal(judge.logits(hidden[first:last]), whole[first:last])


def test_head_rows_of_a_plain_product_do_depend_on_their_number(folder: Path) -> None:
    """The comparison above can fail: torch's product of the same shape."""
    config = TargetConfig.from_json(folder)
    tensors = random_tensors(config)
    weight = tensors["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    hidden = torch.randn(37, config.hidden_size, generator=torch.Generator().manual_seed(0))
    whole = F.linear(hidden, weight)
    slices = ((0, 1), (3, 8), (16, 37), (36, 37))
    assert any(
        not torch.equal(F.linear(hidden[first:last], weight), whole[first:last]) for first, last in slices
    )


def test_serve_mode_has_the_same_bits(folder: Path, ids: Tensor, one_by_one: tuple[Tensor, Tensor]) -> None:
    serve = load_target(folder, mode="serve")
    assert_equal_bits(run(serve, ids, [NUM_TOKENS]), one_by_one)
    assert_equal_bits(speculate(serve, ids, 0), one_by_one)


def test_a_row_of_a_product_does_not_depend_on_the_row_count() -> None:
    """In both modes; the same row alone and among others gets other bits from torch's product."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(1408, 704, generator=generator), torch.randn(16, 704, generator=generator)

    def depends(product: Callable[[Tensor], Tensor]) -> bool:
        whole = product(x)
        return any(not torch.equal(product(x[:rows]), whole[:rows]) for rows in (1, 2, 3, 4, 5, 8))

    assert not depends(Projection(weight))
    assert depends(lambda rows: F.linear(rows, weight))
