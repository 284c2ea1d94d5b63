"""One layer of a dense target, in compiled kernels: a row's bits depend on the row and the tokens before it alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.dense_config import DenseConfig
from specpilot.refengine.mlp import Mlp
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import pair_order
from specpilot.refengine.state import Batch
from specpilot_kernels.chain_attention import batch_attention

__all__ = ["DenseAttention", "DenseLayer", "Weights"]

Weights = Callable[[str], Tensor]
"""Gives the tensor of a name that is relative to the layer."""


class DenseAttention:
    """Attention over all tokens or a window, between its projections.

    Parameters
    ----------
    index
        The layer's number, which names its part of a sequence's state.
    rotation : array, (positions, rotated pairs, 2)
        Cosine and sine; no pairs for a layer without rotation.
    window : int or None
        Tokens a row sees, itself included; None: all.
    """

    def __init__(
        self,
        weights: Weights,
        config: DenseConfig,
        index: int,
        rotation: NDArray[np.float32],
        window: int | None,
    ) -> None:
        heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        order = pair_order(dim, dim)

        def in_pair_order(name: str) -> Tensor:
            rows = weights(name)
            return rows.view(-1, dim, rows.shape[1])[:, order].flatten(0, 1)

        gates = [weights("self_attn.gate_proj.weight")] if config.has_attention_gate else []
        self._input = Projection(
            in_pair_order("self_attn.q_proj.weight"),
            in_pair_order("self_attn.k_proj.weight"),
            weights("self_attn.v_proj.weight"),
            *gates,
        )
        self._output = Projection(weights("self_attn.o_proj.weight"))
        query_scale, key_scale = torch.ones(2, dim)
        if config.qk_norm == "scaled":
            query_scale, key_scale = (
                config.is_norm_centred + weights(f"self_attn.{name}_norm.weight").float()[order]
                for name in ("q", "k")
            )
        scales = (
            (query_scale * config.score_scale).expand(heads, dim),
            key_scale.expand(kv_heads, dim),
        )
        self._scales = torch.cat(scales).numpy()
        self._eps = None if config.qk_norm == "none" else config.norm_eps
        self._index, self._rotation, self._window = index, rotation, window

    def arrays(self, x: NDArray[np.float32], batch: Batch) -> NDArray[np.float32]:
        """(rows, hidden) -> (rows, hidden); keys and values of the batch's rows go into their caches."""
        attended = batch_attention(
            self._input.arrays(x),
            batch.kv,
            self._index,
            self._scales,
            self._rotation,
            self._eps,
            window=self._window,
        )
        return self._output.arrays(attended)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._input.memory_bytes + self._output.memory_bytes


class DenseLayer:
    """x += post(attention(norm(x))); x += post(mlp(norm(x))), where ``post`` is a norm or nothing."""

    def __init__(
        self,
        weights: Weights,
        config: DenseConfig,
        index: int,
        rotation: NDArray[np.float32],
        window: int | None,
    ) -> None:
        def norm(name: str, eps: float) -> RmsNorm:
            return RmsNorm(config.is_norm_centred + weights(f"{name}_layernorm.weight").float(), eps)

        self._attention = DenseAttention(weights, config, index, rotation, window)
        self._mlp = Mlp(
            *(weights(f"mlp.{name}_proj.weight") for name in ("gate", "up", "down")),
            has_gelu=config.activation == "gelu_tanh",
        )
        self._before_attention = norm("input", config.norm_eps)
        self._after: tuple[RmsNorm, RmsNorm] | None = None
        if config.has_post_norms:
            self._before_mlp = norm("pre_feedforward", config.norm_eps)
            self._after = (
                norm("post_attention", config.post_norm_eps),
                norm("post_feedforward", config.post_norm_eps),
            )
        else:
            self._before_mlp = norm("post_attention", config.norm_eps)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._attention.memory_bytes + self._mlp.memory_bytes

    def arrays(self, x: NDArray[np.float32], batch: Batch) -> None:
        """Advance the batch's rows x, (rows, hidden), in place."""
        attended = self._attention.arrays(self._before_attention.arrays(x), batch)
        x += attended if self._after is None else self._after[0].arrays(attended)
        fed = self._mlp.arrays(self._before_mlp.arrays(x))
        x += fed if self._after is None else self._after[1].arrays(fed)
