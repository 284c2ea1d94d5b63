"""The compiled GDN rows against plain torch, and what judge mode needs of them, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specpilot_kernels.gdn_rows import GdnWeights, Written, gdn_replay_, gdn_rows
from specpilot_kernels.gdn_rows.reference import gdn_replay_reference, gdn_rows_reference

Shape = tuple[int, int, int, int, int]

SHAPES: list[Shape] = [(1, 2, 128, 128, 4), (2, 6, 32, 48, 3), (3, 3, 7, 5, 2)]
"""(key heads, value heads, d_k, d_v, conv size): the bundled target's layer, grouped heads, odd sizes."""


def make(shape: Shape, num_rows: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, GdnWeights]:
    groups, heads, key_dim, value_dim, size = shape
    channels = 2 * groups * key_dim + heads * value_dim
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    weights = GdnWeights(
        taps=normal(size, channels),
        rate=-torch.rand(heads, generator=generator) * 4,
        dt_bias=normal(heads),
        norm_weight=1 + 0.3 * normal(value_dim),
        num_groups=groups,
        unit_eps=1e-6,
        norm_eps=1e-6,
    )
    projected = normal(num_rows, channels + heads * (value_dim + 2))
    inputs = torch.cat((normal(size - 1, channels), projected[:, :channels]))
    return projected, inputs, 0.3 * normal(groups, key_dim, heads // groups * value_dim), weights


def reference(
    projected: Tensor, inputs: Tensor, state: Tensor, weights: GdnWeights, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    window = inputs[: len(inputs) - len(projected)]
    tensors = (projected, window, state, weights.taps, weights.rate, weights.dt_bias, weights.norm_weight)
    return gdn_rows_reference(
        *(tensor.to(dtype) for tensor in tensors),
        num_groups=weights.num_groups,
        unit_eps=weights.unit_eps,
        norm_eps=weights.norm_eps,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_rows", [1, 2, 8, 33])
def test_error_is_at_most_twice_that_of_torch(shape: Shape, num_rows: int) -> None:
    projected, inputs, state, weights = make(shape, num_rows)
    out, written = gdn_rows(projected, inputs, state, weights)
    exact = reference(projected, inputs, state, weights, torch.float64)
    plain = reference(projected, inputs, state, weights, torch.float32)
    for ours, theirs, truth in zip(
        (out, written.keys, written.values, written.decay), plain, exact, strict=True
    ):
        scale = truth.abs().max()
        allowed = 2 * (theirs.double() - truth).abs().max() + 1e-7 * scale
        assert (ours.double() - truth).abs().max() <= allowed


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_does_not_depend_on_the_rows_after_it(shape: Shape) -> None:
    projected, inputs, state, weights = make(shape, 12)
    whole, written = gdn_rows(projected, inputs, state, weights)
    size = weights.taps.shape[0]
    for num_rows in range(1, 12):
        part, part_written = gdn_rows(projected[:num_rows], inputs[: size - 1 + num_rows], state, weights)
        assert torch.equal(part, whole[:num_rows])
        assert torch.equal(part_written.values, written.values[:, :num_rows])


@pytest.mark.parametrize("shape", SHAPES)
def test_replaying_a_prefix_is_running_it_row_by_row(shape: Shape) -> None:
    projected, inputs, state, weights = make(shape, 9)
    before = state.clone()
    whole, written = gdn_rows(projected, inputs, state, weights)
    assert torch.equal(state, before)
    size = weights.taps.shape[0]
    stepped = state.clone()
    for row in range(9):
        out, one = gdn_rows(projected[row : row + 1], inputs[row : row + size], stepped, weights)
        assert torch.equal(out[0], whole[row])
        gdn_replay_(stepped, one, 1)
        replayed = state.clone()
        gdn_replay_(replayed, written, row + 1)
        assert torch.equal(replayed, stepped)
    expected = gdn_replay_reference(
        state.double(), written.keys.double(), written.values.double(), written.decay.double(), 9
    )
    torch.testing.assert_close(replayed.double(), expected, atol=1e-5, rtol=1e-5)


def test_strong_decay_and_large_gates_stay_finite() -> None:
    projected, inputs, state, weights = make(SHAPES[0], 4)
    projected[:, -4:] = torch.tensor([90.0, -90.0, 90.0, -90.0])
    out, written = gdn_rows(projected, inputs, state, replace(weights, rate=torch.tensor([-50.0, -50.0])))
    assert out.isfinite().all() and written.values.isfinite().all()
    assert written.decay[0, 0, 0] == 0.0 and written.decay[0, 0, 1] == 1.0


def test_wrong_shapes_are_refused_with_both_values() -> None:
    projected, inputs, state, weights = make(SHAPES[0], 3)
    for arguments, message in (
        ((projected[:, 1:].contiguous(), inputs, state), "projected"),
        ((projected, inputs[1:], state), r"inputs: got \(5, 512\)"),
        ((projected.double(), inputs, state), "float64"),
        ((projected, inputs, state.transpose(1, 2).contiguous()), "state"),
        ((projected, inputs, state[:, :64].contiguous()), "taps"),
    ):
        with pytest.raises(ValueError, match=message):
            gdn_rows(*arguments, weights)
    _, written = gdn_rows(projected, inputs, state, weights)
    with pytest.raises(ValueError, match="got 4, expected 0 to 3"):
        gdn_replay_(state, written, 4)
    with pytest.raises(ValueError, match="written"):
        gdn_replay_(state, Written(written.keys[..., 1:], written.values, written.decay), 1)
