"""A whole layer of a block drafter in one call."""

from specpilot_kernels.block_layer.ops import block_layer
from specpilot_kernels.block_layer.weights import BlockLayerWeights, ConvWeights

__all__ = ["BlockLayerWeights", "ConvWeights", "block_layer"]
