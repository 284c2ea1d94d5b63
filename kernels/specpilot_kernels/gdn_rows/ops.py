"""The public functions of the operation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specpilot_kernels.gdn_rows.cpu_numba import replay, run_rows

__all__ = ["GdnWeights", "Written", "gdn_replay_", "gdn_rows"]


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

    def __post_init__(self) -> None:
        for name in ("taps", "rate", "dt_bias", "norm_weight"):
            tensor = getattr(self, name)
            if tensor.dtype is not torch.float32 or not tensor.is_contiguous() or not tensor.is_cpu:
                raise ValueError(
                    f"{name}: got {tensor.dtype} on {tensor.device}, expected contiguous float32 on the CPU"
                )


@dataclass(frozen=True, eq=False)
class Written:
    """What rows wrote, enough to rebuild the state after any of them.

    Attributes
    ----------
    keys : Tensor, (G, T, d_k)
    values : Tensor, (G, T, R * d_v)
        beta (v - k h), the vectors added along the keys.
    decay : Tensor, (G, T, R)
        exp(g), what the state was multiplied by before.
    """

    keys: Tensor
    values: Tensor
    decay: Tensor


def gdn_rows(projected: Tensor, inputs: Tensor, state: Tensor, weights: GdnWeights) -> tuple[Tensor, Written]:
    """Run T rows of a Gated DeltaNet layer after its input projection and before its output projection.

        x = silu(conv(inputs));  q, k = unit(x_q) / sqrt(d_k), unit(x_k);  v = x_v
        h = exp(rate softplus(a + dt_bias)) h;  w = sigmoid(b) (v - k h);  h = h + k^T w;  o = q h
        out = rms_norm(o) norm_weight silu(z)

    Row t depends on the rows before it only; its bits do not depend on T.

    Parameters
    ----------
    projected : Tensor, float32, (T, C + H d_v + 2 H), contiguous, CPU
        Convolution input, gate z, b and a side by side; the first C columns are not read.
    inputs : Tensor, float32, (conv size - 1 + T, C), contiguous, CPU
        Convolution inputs of the rows, and of the tokens before them in front.
    state : Tensor, float32, (G, d_k, R d_v), contiguous, CPU
        State before the first row; left as it is.

    Returns
    -------
    out : Tensor, (T, H d_v)
    written : Written

    Raises
    ------
    ValueError
        Shapes that do not belong together, or a dtype or layout that is not as stated.
    """
    num_taps, channels = weights.taps.shape
    num_rows, num_heads, value_dim = projected.shape[0], weights.rate.shape[0], weights.norm_weight.shape[0]
    per_group = num_heads // weights.num_groups
    expected = {
        "projected": (projected, (num_rows, channels + num_heads * (value_dim + 2))),
        "inputs": (inputs, (num_taps - 1 + num_rows, channels)),
        "state": (state, (weights.num_groups, state.shape[1], per_group * value_dim)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape or tensor.dtype is not torch.float32 or not tensor.is_contiguous():
            raise ValueError(
                f"{name}: got {tuple(tensor.shape)} {tensor.dtype}, expected {shape} float32, contiguous, on the CPU"
            )
    if channels != 2 * weights.num_groups * state.shape[1] + num_heads * value_dim:
        raise ValueError(
            f"taps: got {channels} channels, which do not hold {state.shape[1]} wide keys beside the values"
        )
    out = np.empty((num_rows, num_heads * value_dim), np.float32)
    keys = np.empty((weights.num_groups, num_rows, state.shape[1]), np.float32)
    written = np.empty((weights.num_groups, num_rows, state.shape[2]), np.float32)
    decay = np.empty((weights.num_groups, num_rows, per_group), np.float32)
    run_rows(
        projected.numpy(),
        inputs.numpy(),
        state.numpy(),
        *weights.arrays,
        out,
        keys,
        written,
        decay,
    )
    return torch.from_numpy(out), Written(*(torch.from_numpy(part) for part in (keys, written, decay)))


def gdn_replay_(state: Tensor, written: Written, num_rows: int) -> None:
    """Advance states in place by the first ``num_rows`` rows of what was written.

    Bit for bit what :func:`gdn_rows` leaves behind after that many rows. ``state`` is (N, d_k, R d_v), float32,
    contiguous, CPU; ``written`` has N in the place of G (several layers may stand one behind the other).

    Raises
    ------
    ValueError
        More rows than were written, or shapes that do not belong together.
    """
    keys, values, decay = written.keys, written.values, written.decay
    most = keys.shape[1]
    if not 0 <= num_rows <= most:
        raise ValueError(f"num_rows: got {num_rows}, expected 0 to {most}, the rows that were written")
    if keys.shape[0] != state.shape[0] or (keys.shape[2], values.shape[2]) != state.shape[1:]:
        raise ValueError(
            f"written: got keys {tuple(keys.shape)} and values {tuple(values.shape)} for states {tuple(state.shape)}"
        )
    replay(state.numpy(), keys.numpy(), values.numpy(), decay.numpy(), num_rows)
