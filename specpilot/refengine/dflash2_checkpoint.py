"""Names and shapes of a DFlash2 drafter's tensors, as SGLang 0.5.20 loads them.

SGLang skips tensors it does not know and never notices a missing one;
:func:`specpilot.refengine.checkpoint.read_tensors` refuses both by name.
"""

from __future__ import annotations

from specpilot.refengine.dflash2_config import DFlash2Config

__all__ = ["draft_shapes"]


def draft_shapes(config: DFlash2Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the checkpoint. No embedding and no head: they are the target's."""
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    kv_width, taps = config.num_kv_heads * config.head_dim, len(config.target_layer_ids)
    kernel = {
        "base_kernel": (2, config.conv_kernel_size, hidden),
        "kernel_projection.weight": (2 * config.conv_kernel_size * config.num_groups, hidden),
    }
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
        **{
            f"{conv}.{name}": shape
            for conv in ("attention_conv", "mlp_conv")
            for name, shape in kernel.items()
        },
    }
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "candidate_selector.predecessor_codebook": (config.vocab_size, config.selector_rank),
        "candidate_selector.successor_codebook": (config.vocab_size, config.selector_rank),
        "candidate_selector.hidden_projection.weight": (config.selector_rank, hidden),
    }
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes
