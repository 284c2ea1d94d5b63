"""Gated DeltaNet token mixer: projections, short convolution, gated delta rule, gated norm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.gdn import L2_EPS, decay_and_beta
from specpilot.refengine.gdn_rules import DeltaRule
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection, Rows
from specpilot.refengine.state import SequenceState

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

    def __init__(
        self, weights: Mapping[str, Tensor], config: TargetConfig, rule: DeltaRule, index: int
    ) -> None:
        self._rule, self._index = rule, index
        self._hidden = config.hidden_size
        self._num_groups, self._num_heads = config.gdn_num_key_heads, config.gdn_num_value_heads
        self._key_dim, self._value_dim = config.gdn_key_dim, config.gdn_value_dim
        self._channels = config.gdn_conv_channels
        self._value_width = config.gdn_num_value_heads * config.gdn_value_dim
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        self._input = Projection(torch.cat([weights[f"{name}.weight"] for name in names]))
        self._splits = (self._channels, self._value_width, self._num_heads, self._num_heads)
        self._taps = weights["conv1d.weight"].squeeze(1).t().contiguous()
        self._a_log, self._dt_bias = weights["A_log"], weights["dt_bias"]
        scale = self._a_log.new_full((2 * self._num_groups, self._key_dim), self._key_dim**-0.5)
        scale[: self._num_groups] *= self._key_dim**-0.5
        self._unit_norm = RmsNorm(scale, L2_EPS / self._key_dim)
        self._norm = RmsNorm(weights["norm.weight"], config.norm_eps)
        self._output = Projection(weights["out_proj.weight"])

    def __call__(self, x: Tensor, num_rows: int, state: SequenceState) -> Tensor:
        """(rows, hidden) -> (rows, hidden); rows beyond ``num_rows`` are fillers and leave no trace."""
        mixed, z, g, beta = self._project(x)
        convolved = self._convolve(state.extend_conv(self._index, mixed[:num_rows]))
        # Fillers come back, so that judge mode keeps one shape.
        queries_keys, values = self._activate(F.pad(convolved, (0, 0, 0, x.shape[0] - num_rows)))
        read = self._recur(queries_keys[:num_rows], values[:num_rows], g[:num_rows], beta[:num_rows], state)
        return self._finish(F.pad(read, (0, 0, 0, x.shape[0] - num_rows)), z)

    def row_functions(self) -> list[tuple[Rows, int]]:
        def activate(x: Tensor) -> Tensor:
            queries_keys, values = self._activate(x.clone())
            return torch.cat((queries_keys.flatten(1), values), 1)

        width = self._value_width
        return [
            (lambda x: torch.cat(self._project(x), 1), self._hidden),
            (activate, self._channels),
            (lambda x: self._finish(x[:, :width].contiguous(), x[:, width:]), 2 * width),
        ]

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Convolution input, output gate, log decay and beta, each (rows, its width)."""
        mixed, z, b, a = self._input(x).split(self._splits, 1)
        g, beta = decay_and_beta(a, b, self._a_log, self._dt_bias)
        return mixed, z, g, beta

    def _convolve(self, inputs: Tensor) -> Tensor:
        """Causal depthwise convolution of rows that have their window in front."""
        size = self._taps.shape[0]
        num_rows = inputs.shape[0] - size + 1
        if num_rows == 1:
            return (inputs * self._taps).sum(0, keepdim=True)
        convolved = inputs[:num_rows] * self._taps[0]
        for tap in range(1, size):
            convolved += inputs[tap : tap + num_rows] * self._taps[tap]
        return convolved

    def _activate(self, convolved: Tensor) -> tuple[Tensor, Tensor]:
        """Unit queries and keys (rows, 2 G, d_k), values (rows, width); the argument is used up."""
        activated = F.silu(convolved, inplace=True)
        border = 2 * self._num_groups * self._key_dim
        queries_keys = activated[:, :border].view(-1, 2 * self._num_groups, self._key_dim)
        return self._unit_norm(queries_keys), activated[:, border:]

    def _recur(
        self, queries_keys: Tensor, values: Tensor, g: Tensor, beta: Tensor, state: SequenceState
    ) -> Tensor:
        groups = self._num_groups
        per_head = (groups, self._num_heads // groups)
        by_group = queries_keys.transpose(0, 1)
        q, k = by_group[:groups], by_group[groups:]
        v = values.unflatten(1, (*per_head, self._value_dim)).transpose(0, 1)
        g, beta = g.unflatten(1, per_head).transpose(0, 1), beta.unflatten(1, per_head).transpose(0, 1)
        reads = []
        for first in range(0, values.shape[0], self._rule.max_rows):
            rows = slice(first, first + self._rule.max_rows)
            start = state.recurrent_start(self._index)
            read, run = self._rule.run(q[:, rows], k[:, rows], v[:, rows], g[:, rows], beta[:, rows], start)
            state.extend_recurrent(self._index, run)
            reads.append(read)
        read = reads[0] if len(reads) == 1 else torch.cat(reads, 1)
        return read.transpose(0, 1).reshape(values.shape[0], -1)

    def _finish(self, read: Tensor, z: Tensor) -> Tensor:
        normed = self._norm(read.view(-1, self._num_heads, self._value_dim)).view(-1, self._value_width)
        return self._output(normed.mul_(F.silu(z)))
