"""Gated full attention with query and key norms and partial rotary embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection, Rows
from specpilot.refengine.rope import pair_order, rotate_
from specpilot.refengine.state import KvCache
from specpilot_kernels.chain_attention import chain_attention

__all__ = ["Block", "GatedAttention"]


@dataclass(frozen=True)
class Block:
    """Rows that run through the layers together.

    ``num_rows`` tokens from ``position`` on; tensors may carry filler rows behind them. ``rotation`` has one
    row of the rotary table for each row, fillers included.
    """

    position: int
    num_rows: int
    rotation: Tensor


class GatedAttention:
    """One attention layer.

    The checkpoint's query projection holds query and gate of each head in turn; here one product gives all
    queries, then keys, values and gates. The score scale 1/sqrt(head_dim) is part of the query norm.

    Parameters
    ----------
    weights
        Tensors of ``model.layers.N.self_attn``.
    by_row
        Judge mode: attend row by row, in shapes that depend on the position alone.
    """

    def __init__(self, weights: Mapping[str, Tensor], config: TargetConfig, by_row: bool) -> None:
        self._num_heads, self._num_kv_heads, self._dim = (
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
        )
        self._by_row = by_row
        order = pair_order(config.head_dim, config.rotary_dim)
        query_gate = weights["q_proj.weight"].view(config.num_heads, 2, config.head_dim, config.hidden_size)
        keys = weights["k_proj.weight"].view(config.num_kv_heads, config.head_dim, config.hidden_size)
        self._input = Projection(
            torch.cat(
                (
                    query_gate[:, 0, order].flatten(0, 1),
                    keys[:, order].flatten(0, 1),
                    weights["v_proj.weight"],
                    query_gate[:, 1].flatten(0, 1),
                )
            )
        )
        query_scale = (1 + weights["q_norm.weight"][order]) * config.head_dim**-0.5
        key_scale = 1 + weights["k_norm.weight"][order]
        scales = torch.cat(
            (query_scale.expand(config.num_heads, -1), key_scale.expand(config.num_kv_heads, -1))
        )
        self._norm = RmsNorm(scales, config.norm_eps)
        self._scales, self._eps = scales.contiguous().numpy(), config.norm_eps
        self._output = Projection(weights["o_proj.weight"])
        self._hidden = config.hidden_size

    def __call__(self, x: Tensor, block: Block, cache: KvCache) -> Tensor:
        """(rows, hidden) -> (rows, hidden); keys and values of the block's rows go into the cache."""
        queries_keys, values, gates = self._project(x, block.rotation)
        queries, keys = queries_keys.split((self._num_heads, self._num_kv_heads), 1)
        all_keys, all_values = cache.write(block.position, keys[: block.num_rows], values[: block.num_rows])
        attend = self._attend_by_row if self._by_row else self._attend
        return self._finish(attend(queries, all_keys, all_values, block), gates)

    def arrays(
        self, x: NDArray[np.float32], position: int, rotation: NDArray[np.float32], cache: KvCache
    ) -> NDArray[np.float32]:
        """The same in compiled kernels: a row's bits depend on the row and the tokens before it alone.

        ``rotation`` is the whole table, cosine and sine side by side: (positions, rotated pairs, 2).
        """
        keys, values = cache.reserve(position + len(x))
        projected = self._input.arrays(x)
        return self._output.arrays(
            chain_attention(projected, keys, values, position, self._scales, rotation, self._eps)
        )

    def row_functions(self) -> list[tuple[Rows, int]]:
        def project(x: Tensor) -> Tensor:
            angle = torch.ones(x.shape[0], 1, 1, dtype=x.dtype)
            queries_keys, values, gates = self._project(x, torch.polar(angle, angle))
            return torch.cat((queries_keys.flatten(1), values.flatten(1), gates), 1)

        width = self._num_heads * self._dim
        return [
            (project, self._hidden),
            (lambda x: self._finish(x[:, :width].contiguous(), x[:, width:]), 2 * width),
        ]

    def _project(self, x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys (T, heads + kv heads, dim), values (T, kv heads, dim), gates (T, heads *
        dim)."""
        projected = self._input(x)
        num_normed, dim = self._num_heads + self._num_kv_heads, self._dim
        border = num_normed * dim
        queries_keys = self._norm(projected[:, :border].view(-1, num_normed, dim))
        rotate_(queries_keys, rotation)
        values = projected[:, border : border + self._num_kv_heads * dim].view(-1, self._num_kv_heads, dim)
        return queries_keys, values, projected[:, border + self._num_kv_heads * dim :]

    def _finish(self, attended: Tensor, gates: Tensor) -> Tensor:
        return self._output(attended.mul_(torch.sigmoid(gates)))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, block: Block) -> Tensor:
        """All rows at once; query heads of a key head lie side by side as extra rows."""
        num_rows, groups = block.num_rows, self._num_kv_heads
        queries = queries.view(num_rows, groups, -1, self._dim).transpose(0, 1)
        scores = torch.bmm(queries.reshape(groups, -1, self._dim), keys.transpose(1, 2))
        if num_rows > 1:
            own = scores.view(groups, num_rows, -1, scores.shape[-1])[..., block.position :]
            future = torch.ones(num_rows, num_rows, dtype=torch.bool).triu_(1)
            own.masked_fill_(future.unsqueeze(1), -torch.inf)
        attended = torch.bmm(torch.softmax(scores, -1), values)
        return attended.view(groups, num_rows, -1, self._dim).transpose(0, 1).reshape(num_rows, -1)

    def _attend_by_row(self, queries: Tensor, keys: Tensor, values: Tensor, block: Block) -> Tensor:
        """Row by row and key head by key head: two-dimensional products whose shapes the position fixes."""
        attended = torch.zeros_like(queries)
        per_group = self._num_heads // self._num_kv_heads
        for row in range(block.num_rows):
            end = block.position + row + 1
            for group in range(self._num_kv_heads):
                heads = slice(group * per_group, (group + 1) * per_group)
                scores = torch.mm(queries[row, heads], keys[group, :end].t())
                attended[row, heads] = torch.mm(torch.softmax(scores, -1), values[group, :end])
        return attended.flatten(1)
