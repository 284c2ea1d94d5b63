"""Names and shapes of a DSpark drafter's tensors, as SGLang 0.5.20 loads them."""

from __future__ import annotations

from specpilot.refengine.block_checkpoint import backbone_shapes
from specpilot.refengine.dspark_config import DSparkConfig

__all__ = ["borrowed_shapes", "dspark_shapes"]


def dspark_shapes(config: DSparkConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {
        "markov_head.markov_w1.weight": (config.vocab_size, config.markov_rank),
        "markov_head.markov_w2.weight": (config.vocab_size, config.markov_rank),
    }
    if config.has_confidence:
        width = config.hidden_size + (config.markov_rank if config.confidence_with_markov else 0)
        shapes |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    return backbone_shapes(config) | shapes


def borrowed_shapes(config: DSparkConfig) -> dict[str, tuple[int, ...]]:
    """Tensors that published checkpoints may hold and that are copies of the target's."""
    return dict.fromkeys(("embed_tokens.weight", "lm_head.weight"), (config.vocab_size, config.hidden_size))
