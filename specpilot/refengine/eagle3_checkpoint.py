"""Names and shapes of an EAGLE-3 drafter's tensors, as SGLang 0.5.20 loads them (srt/models/llama_eagle3.py).

SGLang skips tensors it does not know and never notices a missing one;
:func:`specpilot.refengine.checkpoint.read_tensors` refuses both by name.
"""

from __future__ import annotations

from specpilot.refengine.eagle3_config import Eagle3Config

__all__ = ["eagle3_shapes"]


def eagle3_shapes(config: Eagle3Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the checkpoint. No embedding and no head: they are the target's."""
    hidden, middle = config.hidden_size, config.intermediate_size
    width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "hidden_norm.weight": (hidden,),
        "self_attn.q_proj.weight": (width, 2 * hidden),
        "self_attn.k_proj.weight": (kv_width, 2 * hidden),
        "self_attn.v_proj.weight": (kv_width, 2 * hidden),
        "self_attn.o_proj.weight": (hidden, width),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (middle, hidden),
        "mlp.up_proj.weight": (middle, hidden),
        "mlp.down_proj.weight": (hidden, middle),
    }
    return {
        "fc.weight": (hidden, len(config.tap_layers) * hidden),
        **{f"midlayer.{name}": shape for name, shape in layer.items()},
        "norm.weight": (hidden,),
    }
