"""The one layer of the EAGLE-3 drafter: pairs of committed tokens into the cache, and one drafted row at a time.

Weights are packed once, queries, keys and values and gate and up side by side, the channels of every head in the order
:func:`specpilot.refengine.rope.pair_order` gives. Everything is float32 and runs in compiled kernels, whose rows do not
depend on how many are computed together: pairs may come in any chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.refengine.eagle3_config import Eagle3Config
from specpilot.refengine.mlp import Mlp
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import pair_order, rotation_table
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments, batch_attention, chain_attention
from specpilot_kernels.context_write import context_write

__all__ = ["Eagle3Layer"]

_Array = NDArray[np.float32]


class Eagle3Layer:
    """The drafter without embedding and head. ``tensors`` as :func:`eagle3_shapes` names them."""

    def __init__(self, config: Eagle3Config, tensors: dict[str, Tensor]) -> None:
        self._config = config
        attention, mlp, eps = "midlayer.self_attn", "midlayer.mlp", config.rms_norm_eps
        order = pair_order(config.head_dim, config.head_dim)
        query, key = (
            tensors[f"{attention}.{name}_proj.weight"]
            .unflatten(0, (-1, config.head_dim))[:, order]
            .flatten(0, 1)
            for name in ("q", "k")
        )
        value = tensors[f"{attention}.v_proj.weight"]
        self._features = Projection(tensors["fc.weight"])
        self._embedding_norm = RmsNorm(tensors["midlayer.input_layernorm.weight"], eps)
        self._hidden_norm = RmsNorm(tensors["midlayer.hidden_norm.weight"], eps)
        self._query_key_value = Projection(torch.cat((query, key, value)))
        self._key_value = Projection(torch.cat((key, value)))
        # There is no norm of queries and keys; the queries carry the scale of the scores.
        key_scales = torch.ones(config.num_kv_heads, config.head_dim)
        query_scales = torch.full((config.num_heads, config.head_dim), config.head_dim**-0.5)
        self._scales: _Array = torch.cat((query_scales, key_scales)).numpy()
        self._key_scales: _Array = key_scales.numpy()
        self._out = Projection(tensors[f"{attention}.o_proj.weight"])
        self._post_norm = RmsNorm(tensors["midlayer.post_attention_layernorm.weight"], eps)
        self._mlp = Mlp(*(tensors[f"{mlp}.{name}_proj.weight"] for name in ("gate", "up", "down")))
        self._norm = RmsNorm(tensors["norm.weight"], eps)
        self._rotation, self._rotation_grows = self._rotation_table(0), threading.Lock()

    def _rotation_table(self, num_positions: int) -> _Array:
        """Cosine and sine side by side, (positions, head_dim / 2, 2)."""
        config = self._config
        table = rotation_table(num_positions, config.head_dim, config.rope_theta, torch.float32)
        pairs: _Array = torch.view_as_real(table).contiguous().numpy()
        return pairs

    def new_cache(self, max_pairs: int) -> KvMemory:
        """Room for so many pairs, drafted rows included."""
        with self._rotation_grows:  # requests begin on several threads
            if max_pairs > len(self._rotation):
                self._rotation = self._rotation_table(max_pairs)
        return KvMemory(1, self._config.num_kv_heads, self._config.head_dim, max_pairs)

    def features(self, taps: _Array) -> _Array:
        """Outputs of the tapped layers (n, taps * H), n >= 1 -> features (n, H)."""
        return self._features.arrays(taps)

    def write_pairs(self, cache: KvMemory, position: int, embedded: _Array, features: _Array) -> None:
        """Keys and values of pairs from ``position`` on; both (n, H), n >= 1."""
        cache.reserve(position + len(embedded))
        projected = self._key_value.arrays(self._fuse(embedded, features))
        context_write(projected, cache.buffer, position, self._key_scales, self._rotation, None)

    def step(
        self, caches: Sequence[KvMemory], positions: Sequence[int], embedded: _Array, hidden: _Array
    ) -> _Array:
        """One row of each of S chains: embeddings and hidden states (S, H) -> the next hidden states (S, H), before the
        final norm.

        A row sees the pairs before its position and itself; its own key and value go into its cache there.
        """
        parts = []
        for cache, position in zip(caches, positions, strict=True):
            cache.reserve(position + 1)
            parts.append(KvPart(cache, 1, position))
        projected = self._query_key_value.arrays(self._fuse(embedded, hidden))
        attended = batch_attention(projected, KvSegments(parts), 0, self._scales, self._rotation, None)
        hidden = hidden.copy()
        self._out.add_to(hidden, attended)
        self._mlp.add_to(hidden, self._post_norm)
        return hidden

    def step_paths(
        self, cache: KvMemory, position: int, embedded: _Array, hidden: _Array, paths: Sequence[_Array]
    ) -> tuple[_Array, list[_Array]]:
        """One row for each of several paths that part below the same pairs, each with the bits it has alone.

        Parameters
        ----------
        position
            Of all rows; the t rows before it are scratch and are written.
        embedded, hidden : array, (R, H)
        paths : sequence of R arrays, float32, (2, G, t, d)
            Keys and values of the t rows of each path, as returned for the row before.

        Returns
        -------
        hidden : array, (R, H)
            Before the final norm.
        paths : list of R arrays, float32, (2, G, t + 1, d)
        """
        cache.reserve(position + 1)
        keys, values = cache.buffer[0]
        projected = self._query_key_value.arrays(self._fuse(embedded, hidden))
        attended, longer = [], []
        for row, path in zip(np.split(projected, len(projected)), paths, strict=True):
            begin = position - path.shape[2]
            cache.buffer[0][:, :, begin:position] = path
            attended.append(chain_attention(row, keys, values, position, self._scales, self._rotation, None))
            longer.append(cache.buffer[0][:, :, begin : position + 1].copy())
        hidden = hidden + self._out.arrays(np.concatenate(attended))
        return hidden + self._mlp.arrays(self._post_norm.arrays(hidden)), longer

    def normed(self, hidden: _Array) -> _Array:
        """What the target's head reads."""
        return self._norm.arrays(hidden)

    def _fuse(self, embedded: _Array, hidden: _Array) -> _Array:
        """(n, H) twice -> (n, 2 H), each under its own norm."""
        return np.concatenate((self._embedding_norm.arrays(embedded), self._hidden_norm.arrays(hidden)), 1)
