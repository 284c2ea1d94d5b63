"""A dense target on compiled kernels: embedding, layers, final norm, head.

Both numeric modes run the same kernels, none of whose results depends on the rows beside a row, so *serve* has
*judge*'s bits here, for a prompt in any parts too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.errors import ConfigError
from specpilot.refengine.checkpoint import read_tensors
from specpilot.refengine.dense_checkpoint import IGNORED_PREFIXES, dense_shapes
from specpilot.refengine.dense_config import DenseConfig
from specpilot.refengine.dense_families import read_dense_config
from specpilot.refengine.dense_layer import DenseLayer
from specpilot.refengine.embedding import EmbeddingTable
from specpilot.refengine.layered import LayeredModel
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import Rope, rotation_of
from specpilot.refengine.state import SequenceState

__all__ = ["DenseModel", "load_dense"]


class DenseModel(LayeredModel):
    """A dense target with its weights. Any number of sequences; one forward at a time.

    The weights are kept once, packed, as BF16 wherever they are BF16 numbers.

    Parameters
    ----------
    config
    tensors
        float32 or BF16, by the names of :func:`specpilot.refengine.dense_checkpoint.dense_shapes`. Every one is asked
        for once, so a mapping may make them on demand.
    mode
        "judge" or "serve": only a label here, see the module.
    """

    def __init__(self, config: DenseConfig, tensors: Mapping[str, Tensor], mode: NumericMode) -> None:
        if mode not in ("judge", "serve"):
            raise ConfigError(f"numeric mode: got {mode!r}, expected 'judge' or 'serve'")
        self.config, self.mode = config, mode
        prefix = config.tensor_prefix
        table = tensors[f"{prefix}embed_tokens.weight"]
        self._head = Projection(table if config.tie_word_embeddings else tensors["lm_head.weight"])
        assert self._head.packed is not None
        self._embedding = EmbeddingTable(self._head.packed if config.tie_word_embeddings else table)
        del table
        final = tensors[f"{prefix}norm.weight"].float()
        self._embedding_norm = RmsNorm(torch.ones(config.hidden_size), config.norm_eps)
        rotations = {rope: _rotation(rope, config) for rope in set(config.ropes)}
        self._dense_layers: list[DenseLayer] = []
        for number, rope in enumerate(config.ropes):

            def weights(name: str, number: int = number) -> Tensor:
                return tensors[f"{prefix}layers.{number}.{name}"]

            window = config.window_of(number)
            self._dense_layers.append(DenseLayer(weights, config, number, rotations[rope], window))
        norm = RmsNorm(config.is_final_norm_centred + final, config.norm_eps)
        super().__init__(self._dense_layers, norm)

    @property
    def architecture(self) -> str:
        """Class name in the checkpoint's ``architectures``; drafters resolve their tap convention from it."""
        return self.config.architecture

    @property
    def memory_bytes(self) -> int:
        """Bytes of the packed weights and of an embedding of its own."""
        return (
            self._head.memory_bytes
            + self._embedding.memory_bytes
            + sum(layer.memory_bytes for layer in self._dense_layers)
        )

    def new_state(self, max_tokens: int) -> SequenceState:
        """Empty state of a sequence of at most ``max_tokens`` tokens; RequestError beyond the context
        length."""
        return SequenceState(self.config, max_tokens)

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """(T,) int64 -> (T, hidden_size), as the first layer gets them; RequestError for an id outside the
        vocabulary."""
        rows = self._embedding.rows(ids)
        if self.config.embedding_scale != 1:
            rows *= np.float32(self.config.embedding_scale)
        return torch.from_numpy(self._embedding_norm.arrays(rows) if self.config.has_embedding_norm else rows)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """(R, hidden_size) -> (R, vocab_size), float32."""
        logits = self._head(hidden)
        scale, cap = self.config.logit_scale, self.config.logit_cap
        if cap is not None:
            return logits.mul_(scale / cap).tanh_().mul_(cap)
        return logits if scale == 1 else logits.mul_(scale)


def load_dense(path: str | Path, *, mode: NumericMode) -> DenseModel:
    """Load a dense target from a model folder in the Hugging Face layout.

    Raises
    ------
    CheckpointError
        The folder is damaged or does not fit; the message names key or tensor.
    """
    config = read_dense_config(path)
    return DenseModel(config, read_tensors(path, dense_shapes(config), None, IGNORED_PREFIXES), mode)


def _rotation(rope: Rope | None, config: DenseConfig) -> NDArray[np.float32]:
    """(positions, pairs, 2): cosine and sine; no pairs without a rotation."""
    if rope is None:
        return np.empty((config.context_length, 0, 2), np.float32)
    table = rotation_of(rope.frequencies(config.head_dim), config.context_length, torch.float32)
    return torch.view_as_real(table).contiguous().numpy()
