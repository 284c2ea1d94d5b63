"""The public functions of the operation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.cpu_pool import pool_for
from specpilot_kernels.gdn_rows.cpu_numba import commit_rows, run_rows
from specpilot_kernels.gdn_rows.memory import GdnPart, GdnSegments, GdnShape
from specpilot_kernels.row_tree import is_path

__all__ = ["GdnWeights", "gdn_commit", "gdn_rows"]


@dataclass(frozen=True, eq=False)
class GdnWeights:
    """What a layer needs besides its projections; float32, contiguous, CPU.

    Attributes
    ----------
    taps : Tensor, (conv size, C)
        Short convolution, oldest token first. Channels: query and key (d_k each) of every group in turn, then the
        values of all heads.
    rate, dt_bias : Tensor, (H,)
        -exp(A_log), and what is added before the softplus.
    norm_weight : Tensor, (d_v,)
        Scale of the norm before the output gate.
    num_groups : int
        G key heads; H is a multiple of it.
    unit_eps, norm_eps : float
        Added to the squared length of queries and keys, and to the mean square of the read-out.
    """

    taps: Tensor
    rate: Tensor
    dt_bias: Tensor
    norm_weight: Tensor
    num_groups: int
    unit_eps: float
    norm_eps: float

    @functools.cached_property
    def arrays(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """The kernel's arguments; made once, a view costs as much as a thousand multiplications."""
        taps, rate, dt_bias, norm_weight = self.taps, self.rate, self.dt_bias, self.norm_weight
        return taps.numpy(), rate.numpy(), dt_bias.numpy(), norm_weight.numpy(), self.unit_eps, self.norm_eps

    @functools.cached_property
    def shape(self) -> GdnShape:
        num_taps, channels = self.taps.shape
        num_heads, value_dim = self.rate.shape[0], self.norm_weight.shape[0]
        key_dim = (channels - num_heads * value_dim) // (2 * self.num_groups)
        return GdnShape(self.num_groups, num_heads // self.num_groups, key_dim, value_dim, num_taps)

    def __post_init__(self) -> None:
        for name in ("taps", "rate", "dt_bias", "norm_weight"):
            tensor = getattr(self, name)
            if tensor.dtype is not torch.float32 or not tensor.is_contiguous() or not tensor.is_cpu:
                raise ValueError(
                    f"{name}: got {tensor.dtype} on {tensor.device}, expected contiguous float32 on the CPU"
                )
        if self.shape.num_channels != self.taps.shape[1] or self.shape.num_heads != self.rate.shape[0]:
            raise ValueError(
                f"taps: got {self.taps.shape[1]} channels for {self.num_groups} groups and {self.rate.shape[0]} heads "
                f"of {self.norm_weight.shape[0]}; expected 2 G d_k + H d_v, H a multiple of G"
            )


def gdn_rows(
    projected: NDArray[np.float32], segments: GdnSegments, layer: int, weights: GdnWeights
) -> NDArray[np.float32]:
    """Run rows of several sequences through a Gated DeltaNet layer, between its input and its output projection.

        x = silu(conv(inputs));  q, k = unit(x_q) / sqrt(d_k), unit(x_k);  v = x_v
        h = exp(rate softplus(a + dt_bias)) h;  w = sigmoid(b) (v - k h);  h = h + k^T w;  o = q h
        out = rms_norm(o) norm_weight silu(z)

    A row depends on the rows of its sequence before it and on nothing else: its bits change neither with the other
    sequences nor with how many rows run at once. In a tree, "before" means its ancestors: convolution and recurrence
    run along its root path, from the committed state, with the bits of that path as a chain. In the form "wy" they are
    those of that path in the form "wy": the same numbers but for rounding.

    Parameters
    ----------
    projected : array, float32, (M, C + H d_v + 2 H), contiguous
        Convolution input, gate z, b and a side by side; the rows of a sequence in order.
    segments
        Which rows are whose. States and windows of decided rows are advanced; what undecided rows wrote goes into
        the sequences' pending memory, their states stay.
    layer : int
        Index into the sequences' memory.

    Returns
    -------
    array, float32, (M, H d_v)

    Raises
    ------
    ValueError
        Shapes that do not belong together, or a dtype or layout that is not as stated.
    """
    shape = weights.shape
    num_heads, value_dim = shape.num_heads, shape.value_dim
    expected = (segments.num_rows, shape.num_channels + num_heads * (value_dim + 2))
    if projected.shape != expected or projected.dtype != np.float32 or not projected.flags.c_contiguous:
        raise ValueError(
            f"projected: got {projected.shape} {projected.dtype} {projected.strides}, expected {expected} float32, "
            "contiguous"
        )
    if segments.shape != shape or not 0 <= layer < len(segments.tables):
        raise ValueError(
            f"segments: got memory of {len(segments.tables)} layers of {segments.shape}, expected {shape} and a layer "
            f"{layer}"
        )
    out = np.empty((expected[0], num_heads * value_dim), np.float32)
    work = 4 * expected[0] * num_heads * shape.key_dim * value_dim
    run_rows(projected, segments.tables[layer], shape.num_groups, *weights.arrays, out, pool_for(work))
    return out


def gdn_commit(segments: GdnSegments, kept: Sequence[int | NDArray[np.int64]]) -> None:
    """Decide pending rows of every sequence in all layers, and drop the others.

    State and window are then bit for bit what running these rows alone would have left; after the form "wy", running
    them in it, and no other, for the state is rebuilt from what rows wrote. Sequences whose rows were
    decided from the start stay as they are.

    Parameters
    ----------
    segments
        Those that the rows ran with.
    kept
        Of every sequence, how many of its rows, from the first on, or which ones: an increasing int64 array, from the
        root from parent to child.

    Raises
    ------
    ValueError
        Not one entry a sequence, a number of rows that it did not run or that is no path of its tree, or rows that
        are none.
    """
    counts = segments.tables[0, :, 1].tolist()
    if len(kept) != len(counts):
        raise ValueError(f"kept: got {len(kept)} entries, expected {len(counts)}, one a sequence")
    paths = [_kept_rows(part, rows) for part, rows in zip(segments.parts, kept, strict=True)]
    num_kept = np.array([len(path) for path in paths], np.int64)
    shape = segments.shape
    work = 2 * int(num_kept.sum()) * len(segments.tables) * shape.num_groups * shape.key_dim * shape.width
    commit_rows(
        segments.tables,
        num_kept,
        np.concatenate(paths),
        shape.num_groups,
        shape.per_group,
        shape.key_dim,
        shape.value_dim,
        shape.conv_size - 1,
        pool_for(work),
    )


def _kept_rows(part: GdnPart, kept: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Row numbers; ValueError if they are not a path from the sequence's first row on."""
    if not isinstance(kept, np.ndarray):
        if not 0 <= kept <= part.num_rows:
            raise ValueError(f"kept: got {kept}, expected 0 to {part.num_rows}, the rows of the sequence")
        kept = np.arange(kept)
    if not is_path(kept, part.num_rows, part.tree):
        raise ValueError(
            f"kept: got rows {kept.tolist()} of {part.num_rows}, expected int64 numbers from 0, the root, on, each the "
            "parent of the next"
        )
    return kept
