"""Names and shapes of the tensors of a dense target's checkpoint."""

from __future__ import annotations

from specpilot.refengine.dense_config import DenseConfig

__all__ = ["IGNORED_PREFIXES", "dense_shapes"]

IGNORED_PREFIXES = ("model.vision_",)
"""Parts of a checkpoint that text requests never run."""


def dense_shapes(config: DenseConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    width, kv_width = config.num_heads * dim, config.num_kv_heads * dim
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (width, hidden),
        "self_attn.k_proj.weight": (kv_width, hidden),
        "self_attn.v_proj.weight": (kv_width, hidden),
        "self_attn.o_proj.weight": (hidden, width),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if config.qk_norm == "scaled":
        layer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    if config.has_attention_gate:
        layer["self_attn.gate_proj.weight"] = (width, hidden)
    if config.has_post_norms:
        layer |= {f"{name}_feedforward_layernorm.weight": (hidden,) for name in ("pre", "post")}
    prefix = config.tensor_prefix
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}embed_tokens.weight": (config.vocab_size, hidden),
        f"{prefix}norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for number in range(config.num_layers):
        shapes |= {f"{prefix}layers.{number}.{name}": shape for name, shape in layer.items()}
    return shapes
