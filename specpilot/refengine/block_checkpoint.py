"""Names and shapes of the tensors that block drafters share, as SGLang 0.5.20 loads them.

SGLang skips tensors it does not know and never notices a missing one;
:func:`specpilot.refengine.checkpoint.read_tensors` refuses both by name.
"""

from __future__ import annotations

from specpilot.refengine.block_config import BlockConfig

__all__ = ["backbone_shapes"]


def backbone_shapes(config: BlockConfig) -> dict[str, tuple[int, ...]]:
    """Context features, layers and final norm. No embedding and no head: they are the target's."""
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    kv_width, taps = config.num_kv_heads * config.head_dim, len(config.target_layer_ids)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (width, hidden),
        "self_attn.k_proj.weight": (kv_width, hidden),
        "self_attn.v_proj.weight": (kv_width, hidden),
        "self_attn.o_proj.weight": (hidden, width),
        "self_attn.q_norm.weight": (config.head_dim,),
        "self_attn.k_norm.weight": (config.head_dim,),
        "mlp.gate_proj.weight": (config.intermediate_size, hidden),
        "mlp.up_proj.weight": (config.intermediate_size, hidden),
        "mlp.down_proj.weight": (hidden, config.intermediate_size),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes
