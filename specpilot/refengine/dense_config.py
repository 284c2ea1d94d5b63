"""Shape of a dense target: attention in every layer, over all tokens or over a sliding window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specpilot.errors import CheckpointError
from specpilot.refengine.rope import Rope

__all__ = ["Activation", "DenseConfig", "DenseLayerType", "QkNorm"]

DenseLayerType = Literal["full_attention", "sliding_attention"]
Activation = Literal["silu", "gelu_tanh"]
QkNorm = Literal["none", "scaled", "unit"]


@dataclass(frozen=True)
class DenseConfig:
    """Everything the forward pass needs to know about a dense target.

    Attributes
    ----------
    architecture : str
        Class name in the checkpoint's ``architectures``.
    layer_types : tuple
        One entry a layer.
    window : int or None
        Tokens a row of a sliding layer sees, itself included; None without sliding layers.
    ropes : tuple
        Rotation of each layer, None for a layer without.
    score_scale : float
        What query-key products are multiplied by.
    qk_norm
        Norm of every query and key head: none, with a scale from the checkpoint ("scaled"), or without ("unit").
    has_attention_gate : bool
        The attended values are multiplied by the sigmoid of one more projection.
    has_post_norms : bool
        Attention and feed-forward outputs are normed, with ``post_norm_eps``, before they join the residual.
    is_norm_centred : bool
        Norm weights inside layers are stored less one. Final norm: ``is_final_norm_centred``.
    embedding_scale : float
        What embedding rows are multiplied by.
    has_embedding_norm : bool
        Embedding rows are normed, without a scale.
    logit_scale, logit_cap
        logits = cap tanh(logit_scale z / cap) of the head's outputs z; no cap: logit_scale z.
    tensor_prefix : str
        What stands before ``embed_tokens``, ``layers`` and ``norm`` in tensor names.
    context_length : int
        Tokens, prompt and answer together.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layer_types: tuple[DenseLayerType, ...]
    ropes: tuple[Rope | None, ...]
    norm_eps: float
    context_length: int
    tie_word_embeddings: bool
    eos_ids: tuple[int, ...]
    score_scale: float
    window: int | None = None
    qk_norm: QkNorm = "none"
    has_attention_gate: bool = False
    has_post_norms: bool = False
    post_norm_eps: float = 0.0
    is_norm_centred: bool = False
    is_final_norm_centred: bool = False
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    has_embedding_norm: bool = False
    logit_scale: float = 1.0
    logit_cap: float | None = None
    tensor_prefix: str = "model."

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            multiple = f"a multiple of num_key_value_heads ({self.num_kv_heads})"
            _refuse("num_attention_heads", self.num_heads, multiple)
        if self.head_dim % 16:
            _refuse("head_dim", self.head_dim, "a multiple of 16, the width of a vector register")
        if "sliding_attention" in self.layer_types and self.window is None:
            _refuse("sliding_window", None, "an integer >= 1, since layer_types has sliding_attention")
        for eos_id in self.eos_ids:
            if not 0 <= eos_id < self.vocab_size:
                _refuse("eos_token_id", eos_id, f"ids below vocab_size ({self.vocab_size})")

    @property
    def num_layers(self) -> int:
        return len(self.layer_types)

    def window_of(self, layer: int) -> int | None:
        """Tokens a row of this layer sees; None: all."""
        return self.window if self.layer_types[layer] == "sliding_attention" else None


def _refuse(key: str, got: object, expected: str) -> None:
    raise CheckpointError(f"target config, {key}: got {got!r}, expected {expected}")
