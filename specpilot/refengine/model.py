"""The Qwen3.5 text target: embedding, layers, final norm, head, in compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.errors import ConfigError, RequestError
from specpilot.refengine.attention import GatedAttention
from specpilot.refengine.checkpoint import read_tensors, target_shapes
from specpilot.refengine.config import ARCHITECTURE, TargetConfig
from specpilot.refengine.gdn_layer import GatedDeltaNet
from specpilot.refengine.layered import LayeredModel
from specpilot.refengine.mlp import Mlp
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.rope import rotation_table
from specpilot.refengine.state import Batch, SequenceState

__all__ = ["Layer", "TargetModel", "load_target"]


class Layer:
    """x += mixer(norm(x)); x += mlp(norm(x))."""

    def __init__(
        self, weights: Mapping[str, Tensor], config: TargetConfig, mixer: GatedAttention | GatedDeltaNet
    ) -> None:
        self._mixer = mixer
        self._mlp = Mlp(*(weights[f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down")))
        self._mixer_norm, self._mlp_norm = (
            RmsNorm(1 + weights[f"{name}_layernorm.weight"], config.norm_eps)
            for name in ("input", "post_attention")
        )

    def arrays(self, x: NDArray[np.float32], batch: Batch) -> None:
        """Advance the batch's rows x, (rows, hidden), in place."""
        self._mixer.add_to(x, self._mixer_norm, batch)
        self._mlp.add_to(x, self._mlp_norm)


class TargetModel(LayeredModel):
    """A target with its weights. Any number of sequences; one forward at a time.

    Results are inference tensors: autograd does not take them, and they are changed in place only under
    ``torch.inference_mode``.

    Attributes
    ----------
    config : TargetConfig
    mode : "judge" or "serve"
        Both run the same kernels here; drafters read it (:mod:`specpilot.refengine.numerics`).
    """

    def __init__(self, config: TargetConfig, tensors: Mapping[str, Tensor], mode: NumericMode) -> None:
        if mode not in ("judge", "serve"):
            raise ConfigError(f"numeric mode: got {mode!r}, expected 'judge' or 'serve'")
        self.config, self.mode = config, mode
        self._embedding = tensors["model.embed_tokens.weight"]
        self._head = Projection(self._embedding if config.tie_word_embeddings else tensors["lm_head.weight"])
        table = rotation_table(config.context_length, config.rotary_dim, config.rope_theta, torch.float32)
        # Complex numbers as cosine and sine side by side.
        rotation = torch.view_as_real(table).contiguous().numpy()
        layers: list[Layer] = []
        for number, layer_type in enumerate(config.layer_types):
            index = config.layer_types[:number].count(layer_type)
            weights = _subset(tensors, f"model.layers.{number}.")
            mixer: GatedAttention | GatedDeltaNet
            if layer_type == "full_attention":
                mixer = GatedAttention(_subset(weights, "self_attn."), config, index, rotation)
            else:
                mixer = GatedDeltaNet(_subset(weights, "linear_attn."), config, index)
            layers.append(Layer(weights, config, mixer))
        super().__init__(layers, RmsNorm(1 + tensors["model.norm.weight"], config.norm_eps))

    @property
    def architecture(self) -> str:
        """Class name in the checkpoint's ``architectures``; drafters resolve their tap convention from it."""
        return ARCHITECTURE

    def new_state(self, max_tokens: int) -> SequenceState:
        """Empty state of a sequence of at most ``max_tokens`` tokens; RequestError beyond the context
        length."""
        return SequenceState(self.config, max_tokens)

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """(T,) int64 -> (T, hidden_size); RequestError for an id outside the vocabulary."""
        try:
            return F.embedding(ids, self._embedding)
        except IndexError:
            raise RequestError(
                f"token ids: got {int(ids.min())} to {int(ids.max())}, "
                f"expected 0 to {self.config.vocab_size - 1}"
            ) from None

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """(R, hidden_size) -> (R, vocab_size), float32."""
        return self._head(hidden)


def load_target(path: str | Path, *, mode: NumericMode) -> TargetModel:
    """Load a target from a model folder.

    Parameters
    ----------
    path
        Folder with ``config.json`` and safetensors weights in the Hugging Face layout.
    mode
        See :mod:`specpilot.refengine.numerics`.

    Raises
    ------
    CheckpointError
        The folder is damaged or does not fit; the message names key or tensor.
    """
    config = TargetConfig.from_json(path)
    return TargetModel(config, read_tensors(path, target_shapes(config), torch.float32), mode)


def _subset(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
