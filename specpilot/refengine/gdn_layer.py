"""Gated DeltaNet token mixer: projections, short convolution, gated delta rule, gated norm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.gdn import L2_EPS
from specpilot.refengine.gdn_rules import DeltaRule, Written
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection, Rows
from specpilot.refengine.state import SequenceState
from specpilot_kernels.gdn_rows import GdnWeights, gdn_rows

__all__ = ["GatedDeltaNet"]


class GatedDeltaNet:
    """One GDN layer; ``index`` counts GDN layers and names its part of a sequence's state.

    Unit length and query scale are one :class:`RmsNorm`: x / sqrt(sum(x^2) + e) = x / sqrt(mean(x^2) + e / d)
    / sqrt(d).

    Parameters
    ----------
    weights
        Tensors of ``model.layers.N.linear_attn``.
    """

    def __init__(self, weights: Mapping[str, Tensor], config: TargetConfig, index: int) -> None:
        self._index = index
        self._hidden = config.hidden_size
        self._num_groups = config.gdn_num_key_heads
        self._per_group = config.gdn_num_value_heads // config.gdn_num_key_heads
        self._num_heads = config.gdn_num_value_heads
        self._key_dim, self._value_dim = config.gdn_key_dim, config.gdn_value_dim
        self._channels = config.gdn_conv_channels
        self._key_width = 2 * self._num_groups * self._key_dim
        self._value_width = self._num_heads * self._value_dim
        mixed = self._pair_up(weights["in_proj_qkv.weight"])
        others = [weights[f"in_proj_{name}.weight"] for name in ("z", "b", "a")]
        self._input = Projection(torch.cat([mixed, *others]))
        self._splits = (self._channels, self._value_width, self._num_heads, self._num_heads)
        self._taps = self._pair_up(weights["conv1d.weight"].squeeze(1)).t().contiguous()
        self._rate, self._dt_bias = -weights["A_log"].exp(), weights["dt_bias"]
        scale = self._rate.new_full((2, self._key_dim), self._key_dim**-0.5)
        scale[0] *= self._key_dim**-0.5
        self._unit_norm = RmsNorm(scale, L2_EPS / self._key_dim)
        self._norm = RmsNorm(weights["norm.weight"], config.norm_eps)
        self._output = Projection(weights["out_proj.weight"])
        self._kernel_weights = None
        if self._taps.dtype == torch.float32:
            self._kernel_weights = GdnWeights(
                self._taps,
                self._rate,
                self._dt_bias.contiguous(),
                weights["norm.weight"].contiguous(),
                self._num_groups,
                L2_EPS,
                config.norm_eps,
            )

    def arrays(self, x: NDArray[np.float32], state: SequenceState) -> NDArray[np.float32]:
        """The layer in compiled kernels: a row's bits depend on the row and the tokens before it alone."""
        projected = torch.from_numpy(self._input.arrays(x))
        inputs = state.extend_conv(self._index, projected[:, : self._channels])
        start = state.recurrent_start(self._index)
        assert self._kernel_weights is not None
        out, written = gdn_rows(projected, inputs, start, self._kernel_weights)
        state.extend_recurrent(self._index, Written(start, written.keys, written.values, written.decay))
        return self._output.arrays(out.numpy())

    def __call__(self, x: Tensor, num_rows: int, state: SequenceState, rule: DeltaRule) -> Tensor:
        """(rows, hidden) -> (rows, hidden); rows beyond ``num_rows`` are fillers and leave no trace."""
        num_fillers = x.shape[0] - num_rows
        mixed, z, g, beta = self._project(x)
        inputs = state.extend_conv(self._index, mixed[:num_rows] if num_fillers else mixed)
        if num_fillers:  # They come back, so that judge mode keeps one shape.
            inputs = F.pad(inputs, (0, 0, 0, num_fillers))
        queries_keys, values = self._activate(inputs.unfold(0, len(self._taps), 1).transpose(1, 2))
        reads = []
        for first in range(0, num_rows, rule.max_rows):
            rows = slice(first, min(first + rule.max_rows, num_rows))
            parts = (queries_keys, values, g, beta)
            if rows != slice(0, x.shape[0]):
                parts = (queries_keys[rows], values[rows], g[rows], beta[rows])
            read, run = rule.run(*parts, state.recurrent_start(self._index))
            state.extend_recurrent(self._index, run)
            reads.append(read)
        read = reads[0] if len(reads) == 1 else torch.cat(reads)
        return self._finish(F.pad(read, (0,) * 7 + (num_fillers,)) if num_fillers else read, z)

    def row_functions(self) -> list[tuple[Rows, int]]:
        def project(x: Tensor) -> Tensor:
            return torch.cat([part.flatten(1) for part in self._project(x)], 1)

        def activate(x: Tensor) -> Tensor:
            queries_keys, values = self._activate(x.view(x.shape[0], -1, self._channels))
            return torch.cat((queries_keys.flatten(1), values.flatten(1)), 1)

        def finish(x: Tensor) -> Tensor:
            read = x[:, :width].contiguous().view(-1, self._num_groups, self._per_group, self._value_dim)
            return self._finish(read, x[:, width:])

        width = self._value_width
        return [
            (project, self._hidden),
            (activate, len(self._taps) * self._channels),
            (finish, 2 * width),
        ]

    def _pair_up(self, mixed: Tensor) -> Tensor:
        """Rows of all queries, all keys, values -> query and key of each group in turn, values."""
        pairs = mixed[: self._key_width].view(2, self._num_groups, self._key_dim, -1).transpose(0, 1)
        return torch.cat((pairs.reshape(self._key_width, -1), mixed[self._key_width :]))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Convolution input and output gate (rows, width), log decay and beta (rows, G, R)."""
        mixed, z, b, a = self._input(x).split(self._splits, 1)
        g = F.softplus(a + self._dt_bias).mul_(self._rate)
        shape = (-1, self._num_groups, self._per_group)
        return mixed, z, g.view(shape), torch.sigmoid(b).view(shape)

    def _activate(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Convolution windows (rows, taps, channels) -> unit queries and keys (rows, G, 2, d_k), values."""
        activated = F.silu((windows * self._taps).sum(1), inplace=True)
        queries_keys = activated[:, : self._key_width].view(-1, self._num_groups, 2, self._key_dim)
        values = activated[:, self._key_width :]
        return self._unit_norm(queries_keys), values.view(
            -1, self._num_groups, self._per_group, self._value_dim
        )

    def _finish(self, read: Tensor, z: Tensor) -> Tensor:
        normed = self._norm(read).view(-1, self._value_width)
        return self._output(normed.mul_(F.silu(z)))
