"""The compiled attention against plain torch, and a row's independence of the rows that ride along, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments, batch_attention, chain_attention
from specpilot_kernels.chain_attention.memory import KV_BLOCK_TOKENS
from specpilot_kernels.chain_attention.reference import chain_attention_reference

EPS = 1e-6
SHAPES = [(4, 2, 64, 8), (6, 1, 16, 3), (3, 3, 80, 0), (2, 1, 128, 64)]
"""(query heads, key heads, head size, rotated pairs): the bundled target's layer, then odd ones."""
POSITIONS = (0, 1, 15, 63, 64, 130)
CAPACITY = 160


@dataclass
class Case:
    keys: Tensor
    values: Tensor
    scales: Tensor
    rotation: Tensor
    num_heads: int

    def rows(self, num_rows: int, seed: int = 1, is_gated: bool = True) -> Tensor:
        num_groups, _, dim = self.keys.shape
        width = ((1 + is_gated) * self.num_heads + 2 * num_groups) * dim
        return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))

    def run(self, rows: Tensor, position: int, is_block: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Output, keys and values; the case's own stay as they are."""
        keys, values = self.keys.clone(), self.values.clone()
        scales, rotation = self.scales.numpy(), self.rotation.numpy()
        cache = keys.numpy(), values.numpy()
        out = chain_attention(rows.numpy(), *cache, position, scales, rotation, EPS, is_block=is_block)
        return torch.from_numpy(out), keys, values

    def memory(self, num_layers: int = 1, max_tokens: int | None = None) -> KvMemory:
        """The case's cache in every layer."""
        num_groups, capacity, dim = self.keys.shape
        memory = KvMemory(num_layers, num_groups, dim, capacity)
        memory.buffer[:, 0], memory.buffer[:, 1] = self.keys.numpy(), self.values.numpy()
        memory._max_tokens = max_tokens or capacity
        return memory

    def reference(
        self, rows: Tensor, position: int, dtype: torch.dtype, is_block: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, keys, values, scales, rotation = (
            x.to(dtype) for x in (rows, self.keys, self.values, self.scales, self.rotation)
        )
        return chain_attention_reference(
            rows, keys, values, position, scales, rotation, EPS, self.num_heads, is_block
        )


def make(shape: tuple[int, int, int, int], capacity: int = CAPACITY) -> Case:
    num_heads, num_groups, dim, pairs = shape
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(2, num_groups, CAPACITY, dim, generator=generator)
    scales = torch.randn(num_heads + num_groups, dim, generator=generator)
    scales[:num_heads] *= dim**-0.5
    angles = torch.randn(CAPACITY, pairs, generator=generator)
    room = torch.zeros(2, num_groups, capacity - CAPACITY, dim)
    keys, values = torch.cat((cache, room), 2)
    return Case(keys, values, scales, torch.stack((angles.cos(), angles.sin()), -1), num_heads)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("num_rows", [1, 8, 19])
@pytest.mark.parametrize(("is_gated", "is_block"), [(True, False), (False, False), (False, True)])
def test_error_is_at_most_twice_that_of_torch(
    shape: tuple[int, int, int, int], position: int, num_rows: int, is_gated: bool, is_block: bool
) -> None:
    """Root mean square over at least 16 rows, of the output and of what the cache got: one row is a matter of luck."""
    case = make(shape)
    errors = torch.zeros(2, 3, dtype=torch.float64)
    for seed in range(1 + 16 // num_rows):
        rows = case.rows(num_rows, seed, is_gated)
        truth = case.reference(rows, position, torch.float64, is_block)
        results = (
            case.run(rows, position, is_block),
            case.reference(rows, position, torch.float32, is_block),
        )
        for sums, result in zip(errors, results, strict=True):
            sums += torch.stack([(x - exact).square().sum() for x, exact in zip(result, truth, strict=True)])
    assert (errors[0] <= 2**2 * errors[1]).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("position", POSITIONS)
def test_rows_at_once_are_rows_one_by_one(shape: tuple[int, int, int, int], position: int) -> None:
    case = make(shape)
    rows = case.rows(20)
    out, keys, values = case.run(rows, position)
    stepped = Case(case.keys, case.values, case.scales, case.rotation, case.num_heads)
    for row in range(20):
        one, stepped.keys, stepped.values = stepped.run(rows[row : row + 1], position + row)
        assert same_bits(one[0], out[row])
    assert same_bits(stepped.keys, keys) and same_bits(stepped.values, values)
    for num_rows in (2, 3, 7, 8, 9, 16, 17):
        assert same_bits(case.run(rows[:num_rows], position)[0], out[:num_rows])


@pytest.mark.parametrize("shape", SHAPES)
def test_neither_the_capacity_nor_stale_tokens_behind_matter(shape: tuple[int, int, int, int]) -> None:
    case, wide = make(shape), make(shape, CAPACITY + 77)
    rows = case.rows(5)
    out, keys, values = case.run(rows, 90)
    assert same_bits(wide.run(rows, 90)[0], out)
    for before, after in ((case.keys, keys), (case.values, values)):
        assert same_bits(before[:, :90], after[:, :90]) and same_bits(before[:, 95:], after[:, 95:])
    case.keys[:, 95:], case.values[:, 95:] = torch.nan, torch.inf
    assert same_bits(case.run(rows, 90)[0], out)


def test_rows_of_a_block_see_each_other_and_rows_of_a_chain_do_not_see_what_comes() -> None:
    """Changing the last row changes all rows of a block, and the last one alone of a chain."""
    case = make(SHAPES[0])
    rows = case.rows(9, is_gated=False)
    other = torch.cat((rows[:-1], case.rows(1, 5, is_gated=False)))
    for is_block, num_changed in ((False, 1), (True, 9)):
        before, after = case.run(rows, 60, is_block)[0], case.run(other, 60, is_block)[0]
        assert (before != after).any(-1).sum() == num_changed


def test_large_scores_do_not_overflow() -> None:
    case = make(SHAPES[0])
    case.scales *= 1e4
    rows = case.rows(8)
    out, _, _ = case.run(rows, 64)
    torch.testing.assert_close(out.double(), case.reference(rows, 64, torch.float64)[0], atol=1e-3, rtol=1e-3)


def test_a_broken_row_spoils_only_itself_and_the_rows_behind() -> None:
    case = make(SHAPES[0])
    rows = case.rows(6)
    clean, _, _ = case.run(rows, 30)
    rows[3] = torch.nan
    out, _, _ = case.run(rows, 30)
    assert same_bits(out[:3], clean[:3]) and out[3:].isnan().all()


def test_out_is_filled_and_returned() -> None:
    case = make(SHAPES[0])
    rows = case.rows(3)
    expected, _, _ = case.run(rows, 7)
    out = np.full((3, 256), 7, np.float32)
    arrays = (case.keys.numpy(), case.values.numpy())
    result = chain_attention(rows.numpy(), *arrays, 7, case.scales.numpy(), case.rotation.numpy(), EPS, out)
    assert result is out and same_bits(torch.from_numpy(out), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_sequences_at_once_are_sequences_alone(
    shape: tuple[int, int, int, int], threads: int, kernel_threads: Callable[[int], None]
) -> None:
    """Parts of 1 to 19 rows at different positions, in either order, with caches of different capacity."""
    kernel_threads(threads)
    parts = [(1, 130), (8, 3), (19, 64), (1, 0), (3, 63), (8, 100)]
    case, wide = make(shape), make(shape, CAPACITY + 77)
    rows = [case.rows(num_rows, seed) for seed, (num_rows, _) in enumerate(parts)]
    scales, rotation = case.scales.numpy(), case.rotation.numpy()
    alone = [
        (case if i % 2 else wide).run(part_rows, position)
        for i, (part_rows, (_, position)) in enumerate(zip(rows, parts, strict=True))
    ]
    for order in (range(6), range(5, -1, -1)):
        memories = [(case if i % 2 else wide).memory(num_layers=3) for i in order]
        segments = KvSegments([KvPart(memory, *parts[i]) for memory, i in zip(memories, order, strict=True)])
        together = torch.cat([rows[i] for i in order]).numpy()
        out = torch.from_numpy(batch_attention(together, segments, 1, scales, rotation, EPS))
        for part_out, memory, i in zip(out.split([parts[i][0] for i in order]), memories, order, strict=True):
            assert same_bits(part_out, alone[i][0])
            assert same_bits(torch.from_numpy(memory.buffer[1]), torch.stack(alone[i][1:]))
            untouched = torch.stack(((case if i % 2 else wide).keys, (case if i % 2 else wide).values))
            for layer in (0, 2):
                assert same_bits(torch.from_numpy(memory.buffer[layer]), untouched)


def test_a_grown_cache_keeps_its_tokens() -> None:
    case = make(SHAPES[0])
    memory = case.memory(max_tokens=1000)
    memory.reserve(CAPACITY + 1)
    assert memory.capacity == 2 * KV_BLOCK_TOKENS
    rows = case.rows(4).numpy()
    segments = KvSegments([KvPart(memory, 4, CAPACITY - 4)])
    out = batch_attention(rows, segments, 0, case.scales.numpy(), case.rotation.numpy(), EPS)
    assert same_bits(torch.from_numpy(out), case.run(case.rows(4), CAPACITY - 4)[0])


def test_wrong_arguments_are_refused_with_all_shapes() -> None:
    case = make(SHAPES[0])
    rows, keys, values = case.rows(3).numpy(), case.keys.numpy(), case.values.numpy()
    scales, rotation = case.scales.numpy(), case.rotation.numpy()
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((rows[:, 1:], keys, values, 0, scales, rotation, EPS), r"projected \(3, 767\)"),
        ((rows[:0], keys, values, 0, scales, rotation, EPS), "got 0 rows at 0"),
        ((rows, keys, values[:, 1:], 0, scales, rotation, EPS), r"values: got \(2, 159, 64\)"),
        ((rows, keys, values, 0, scales[1:], rotation, EPS), r"scales \(5, 64\)"),
        ((rows, keys, values, 0, scales, rotation[:, :, :1], EPS), r"rotation \(160, 8, 1\)"),
        ((rows, keys, values, 158, scales, rotation, EPS), "got 3 rows at 158, expected rows from 0 to 160"),
        ((rows, keys, values, -1, scales, rotation, EPS), "got 3 rows at -1"),
        ((rows, keys, values, 20, scales, rotation[:21], EPS), "expected rows from 0 to 21"),
        ((rows.astype(np.float64), keys, values, 0, scales, rotation, EPS), "projected float64"),
        ((rows, keys[:, ::2], values[:, ::2], 0, scales, rotation, EPS), "contiguous"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            chain_attention(*arguments)
    odd = np.zeros((1, 8, 24), np.float32)
    with pytest.raises(ValueError, match="d of 16"):
        chain_attention(
            np.zeros((1, 96), np.float32),
            odd,
            odd.copy(),
            0,
            np.ones((2, 24), np.float32),
            rotation[:, :0],
            EPS,
        )


def test_wrong_batches_are_refused() -> None:
    case = make(SHAPES[0])
    rows, memory = case.rows(3).numpy(), case.memory()
    scales, rotation = case.scales.numpy(), case.rotation.numpy()
    segments = KvSegments([KvPart(memory, 3, 20)])
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((rows[:, 1:], segments, 0, scales, rotation, EPS), r"projected \(3, 767\)"),
        ((rows[:2], segments, 0, scales, rotation, EPS), "got 2 rows, expected 3"),
        ((rows, segments, 1, scales, rotation, EPS), "layer 1, expected .* layers below 1"),
        ((rows, segments, 0, scales, rotation[:21], EPS), "position 22 .* expected positions below 21"),
        ((rows.astype(np.float64), segments, 0, scales, rotation, EPS), "projected float64"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            batch_attention(*arguments)
    for num_rows, position in ((3, 158), (3, -1), (0, 5)):
        with pytest.raises(
            ValueError, match=f"got {num_rows} rows at {position}, expected rows from 0 to 160"
        ):
            KvSegments([KvPart(memory, num_rows, position)])
    with pytest.raises(ValueError, match="expected the same but for the capacity"):
        KvSegments([KvPart(memory, 1, 0), KvPart(make(SHAPES[1]).memory(), 1, 0)])
