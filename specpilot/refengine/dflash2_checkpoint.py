"""Names and shapes of a DFlash2 drafter's tensors, as SGLang 0.5.20 loads them."""

from __future__ import annotations

from specpilot.refengine.block_checkpoint import backbone_shapes
from specpilot.refengine.dflash2_config import DFlash2Config

__all__ = ["draft_shapes"]


def draft_shapes(config: DFlash2Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the checkpoint."""
    kernel = {
        "base_kernel": (2, config.conv_kernel_size, config.hidden_size),
        "kernel_projection.weight": (2 * config.conv_kernel_size * config.num_groups, config.hidden_size),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "candidate_selector.predecessor_codebook": (config.vocab_size, config.selector_rank),
        "candidate_selector.successor_codebook": (config.vocab_size, config.selector_rank),
        "candidate_selector.hidden_projection.weight": (config.selector_rank, config.hidden_size),
    }
    for index in range(config.num_layers):
        for conv in ("attention_conv", "mlp_conv"):
            shapes |= {f"layers.{index}.{conv}.{name}": shape for name, shape in kernel.items()}
    return backbone_shapes(config) | shapes
