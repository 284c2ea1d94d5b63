"""The compiled GDN rows against plain torch, and what batches and speculation need of them, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot_kernels.gdn_rows import (
    GdnMemory,
    GdnPart,
    GdnSegments,
    GdnShape,
    GdnWeights,
    gdn_commit,
    gdn_rows,
)
from specpilot_kernels.gdn_rows.reference import gdn_replay_reference, gdn_rows_reference

SHAPES = [GdnShape(1, 2, 128, 128, 4), GdnShape(2, 3, 32, 48, 3), GdnShape(3, 1, 7, 5, 2)]
"""The bundled target's layer, grouped heads, odd sizes."""
NUM_LAYERS, LAYER = 3, 1


@dataclass
class Case:
    """One layer and the memory of a sequence that has run before."""

    weights: GdnWeights
    memory: GdnMemory

    @property
    def shape(self) -> GdnShape:
        return self.memory.shape

    def rows(self, num_rows: int, seed: int = 1) -> Tensor:
        width = self.shape.num_channels + self.shape.num_heads * (self.shape.value_dim + 2)
        return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))

    def copy(self) -> GdnMemory:
        memory = GdnMemory(NUM_LAYERS, self.shape)
        memory.recurrent[:], memory.window[:] = self.memory.recurrent, self.memory.window
        return memory

    def run(
        self, rows: Tensor, memory: GdnMemory | None = None, num_kept: int | None = None
    ) -> tuple[Tensor, GdnMemory]:
        """Run rows alone; they are decided, or undecided and ``num_kept`` of them committed."""
        memory = self.copy() if memory is None else memory
        if num_kept is not None:
            memory.make_room(len(rows))
        segments = GdnSegments([GdnPart(memory, len(rows), num_kept is None)])
        out = gdn_rows(rows.numpy(), segments, LAYER, self.weights)
        if num_kept is not None:
            # Layers that ran no rows have rubbish pending.
            others = memory.recurrent.copy(), memory.window.copy()
            gdn_commit(segments, [num_kept])
            for layer in set(range(NUM_LAYERS)) - {LAYER}:
                memory.recurrent[layer], memory.window[layer] = others[0][layer], others[1][layer]
        return torch.from_numpy(out), memory

    def reference(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Output, and the state after all rows."""
        weights, state = self.weights, torch.from_numpy(self.memory.recurrent[LAYER]).to(dtype)
        window = torch.from_numpy(self.memory.window[LAYER])
        tensors = (window, weights.taps, weights.rate, weights.dt_bias, weights.norm_weight)
        window, *others = (tensor.to(dtype) for tensor in tensors)
        out, keys, values, decay = gdn_rows_reference(
            rows.to(dtype),
            window,
            state,
            *others,
            num_groups=weights.num_groups,
            unit_eps=weights.unit_eps,
            norm_eps=weights.norm_eps,
        )
        return out, gdn_replay_reference(state, keys, values, decay, len(rows))


def make(shape: GdnShape, seed: int = 0) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    weights = GdnWeights(
        taps=normal(shape.conv_size, shape.num_channels),
        rate=-torch.rand(shape.num_heads, generator=generator) * 4,
        dt_bias=normal(shape.num_heads),
        norm_weight=1 + 0.3 * normal(shape.value_dim),
        num_groups=shape.num_groups,
        unit_eps=1e-6,
        norm_eps=1e-6,
    )
    assert weights.shape == shape
    memory = GdnMemory(NUM_LAYERS, shape)
    memory.recurrent[:] = 0.3 * normal(*memory.recurrent.shape).numpy()
    memory.window[:] = normal(*memory.window.shape).numpy()
    return Case(weights, memory)


@pytest.fixture(params=SHAPES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return make(request.param)


def assert_same_memory(got: GdnMemory, expected: GdnMemory) -> None:
    assert np.array_equal(got.recurrent, expected.recurrent)
    assert np.array_equal(got.window, expected.window)


@pytest.mark.parametrize("num_rows", [1, 2, 8, 33])
@pytest.mark.parametrize("is_decided", [True, False])
def test_error_is_at_most_twice_that_of_torch(case: Case, num_rows: int, is_decided: bool) -> None:
    """Root mean square over at least 32 rows: the largest error of a few is a matter of luck."""
    errors = torch.zeros(2, 2, dtype=torch.float64)
    for seed in range(1 + 32 // num_rows):
        rows = case.rows(num_rows, seed)
        out, memory = case.run(rows, num_kept=None if is_decided else num_rows)
        truth = case.reference(rows, torch.float64)
        ours = out, torch.from_numpy(memory.recurrent[LAYER])
        for sums, result in zip(errors, (ours, case.reference(rows, torch.float32)), strict=True):
            sums += torch.stack([(x - exact).square().sum() for x, exact in zip(result, truth, strict=True)])
    assert (errors[0] <= 2**2 * errors[1]).all()


def test_rows_at_once_are_rows_one_by_one(case: Case) -> None:
    rows = case.rows(12)
    whole, after = case.run(rows)
    stepped = case.copy()
    for row in range(12):
        out, stepped = case.run(rows[row : row + 1], stepped)
        assert torch.equal(out[0], whole[row])
        prefix, memory = case.run(rows[: row + 1])
        assert torch.equal(prefix, whole[: row + 1])
        assert_same_memory(memory, stepped)
    assert_same_memory(stepped, after)


@pytest.mark.parametrize("num_kept", range(10))
def test_a_committed_prefix_is_the_prefix_alone(case: Case, num_kept: int) -> None:
    rows = case.rows(9)
    out, memory = case.run(rows, num_kept=num_kept)
    assert torch.equal(out, case.run(rows)[0])
    assert_same_memory(memory, case.run(rows[:num_kept])[1] if num_kept else case.memory)


def test_one_row_more_would_show(case: Case) -> None:
    rows = case.rows(9)
    (_, five), (_, six) = case.run(rows, num_kept=5), case.run(rows, num_kept=6)
    assert np.abs(five.recurrent[LAYER] - six.recurrent[LAYER]).max() > 1e-3
    assert np.abs(five.window[LAYER] - six.window[LAYER]).max() > 1e-3


@pytest.mark.parametrize("threads", [1, 2])
def test_sequences_at_once_are_sequences_alone(
    case: Case, threads: int, kernel_threads: Callable[[int], None]
) -> None:
    """Decided and undecided parts of 1 to 19 rows, in either order; each commits another number of rows."""
    kernel_threads(threads)
    parts = [(1, None), (8, 3), (19, None), (1, 0), (3, 3), (8, 8), (1, 1)]
    states = [make(case.shape, seed) for seed in range(len(parts))]
    states = [Case(case.weights, state.memory) for state in states]
    rows = [case.rows(num_rows, seed) for seed, (num_rows, _) in enumerate(parts)]
    alone = [
        state.run(part, num_kept=kept) for state, part, (_, kept) in zip(states, rows, parts, strict=True)
    ]
    for order in (range(7), range(6, -1, -1)):
        memories = [states[i].copy() for i in order]
        for memory, i in zip(memories, order, strict=True):
            memory.make_room(parts[i][0])
        segments = GdnSegments(
            [
                GdnPart(memory, parts[i][0], parts[i][1] is None)
                for memory, i in zip(memories, order, strict=True)
            ]
        )
        together = torch.cat([rows[i] for i in order]).numpy()
        for layer in range(NUM_LAYERS):
            out = gdn_rows(together, segments, layer, case.weights)
            if layer == LAYER:
                split = torch.from_numpy(out).split([parts[i][0] for i in order])
                assert all(torch.equal(part, alone[i][0]) for part, i in zip(split, order, strict=True))
        num_kept = [num_rows if kept is None else kept for num_rows, kept in parts]
        gdn_commit(segments, [num_kept[i] for i in order])
        for memory, i in zip(memories, order, strict=True):
            assert np.array_equal(memory.recurrent[LAYER], alone[i][1].recurrent[LAYER])
            assert np.array_equal(memory.window[LAYER], alone[i][1].window[LAYER])


def test_strong_decay_and_large_gates_stay_finite() -> None:
    case = make(SHAPES[0])
    rows = case.rows(4)
    rows[:, -4:] = torch.tensor([90.0, -90.0, 90.0, -90.0])
    strong = Case(replace(case.weights, rate=torch.tensor([-50.0, -50.0])), case.memory)
    out, memory = strong.run(rows)
    assert out.isfinite().all() and np.isfinite(memory.recurrent).all()


def test_wrong_shapes_are_refused_with_both_values() -> None:
    case = make(SHAPES[0])
    rows, memory = case.rows(3).numpy(), case.copy()
    segments = GdnSegments([GdnPart(memory, 3, True)])
    cases: list[tuple[Any, int, GdnWeights, str]] = [
        (rows[:, 1:], 0, case.weights, r"projected: got \(3, 771\)"),
        (rows[:2], 0, case.weights, r"projected: got \(2, 772\)"),
        (rows.astype(np.float64), 0, case.weights, "float64"),
        (np.asfortranarray(rows), 0, case.weights, "contiguous"),
        (rows, 3, case.weights, "got memory of 3 layers"),
        (make(SHAPES[1]).rows(3).numpy(), 0, make(SHAPES[1]).weights, "key_dim=128"),
    ]
    for projected, layer, weights, message in cases:
        with pytest.raises(ValueError, match=message):
            gdn_rows(projected, segments, layer, weights)
    with pytest.raises(ValueError, match="make_room"):
        GdnSegments([GdnPart(case.copy(), 3, False)])
    with pytest.raises(ValueError, match="expected one shape"):
        GdnSegments([GdnPart(memory, 1, True), GdnPart(make(SHAPES[1]).copy(), 1, True)])
    for kept, message in (
        ([4], "got 4, expected 0 to 3"),
        ([-1], "got -1"),
        ([1, 1], "got 2 entries, expected 1"),
    ):
        with pytest.raises(ValueError, match=message):
            gdn_commit(segments, kept)
    with pytest.raises(ValueError, match="taps: got 512 channels for 3 groups"):
        replace(case.weights, num_groups=3)
