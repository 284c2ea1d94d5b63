"""Gated full attention with query and key norms and partial rotary embedding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.config import TargetConfig
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import pair_order
from specpilot.refengine.state import Batch
from specpilot_kernels.chain_attention import batch_attention

__all__ = ["GatedAttention"]


class GatedAttention:
    """One attention layer.

    The checkpoint's query projection holds query and gate of each head in turn; here one product gives all
    queries, then keys, values and gates. The score scale 1/sqrt(head_dim) is part of the query norm.

    Parameters
    ----------
    weights
        Tensors of ``model.layers.N.self_attn``.
    index
        Counts attention layers and names this one's part of a sequence's state.
    rotation : array, (positions, rotated pairs, 2)
        Cosine and sine, from :func:`specpilot.refengine.rope.rotation_table`.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        config: TargetConfig,
        index: int,
        rotation: NDArray[np.float32],
    ) -> None:
        self._index, self._rotation, self._eps = index, rotation, config.norm_eps
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
        scales = (query_scale.expand(config.num_heads, -1), key_scale.expand(config.num_kv_heads, -1))
        self._scales = torch.cat(scales).contiguous().numpy()
        self._output = Projection(weights["o_proj.weight"])

    def add_to(self, x: NDArray[np.float32], norm: RmsNorm, batch: Batch) -> None:
        """Add the layer's output for normed rows to x, (rows, hidden); their keys and values go into their caches.

        A row's bits depend on the row and the tokens of its sequence before it alone.
        """
        attended = batch_attention(
            self._input.of_normed(x, norm), batch.kv, self._index, self._scales, self._rotation, self._eps
        )
        self._output.add_to(x, attended)
