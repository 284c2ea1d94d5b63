"""The dynamic grouped convolution around the sublayers of a DFlash2 drafter.

``y[i, c] = sum_o (base[side, o, c] + delta[i, side, o, group(c)]) * x[i - o, c]``, where rows before the block count as
0: side 0 of a sublayer's input, side 1 of its output; the deltas of both come from the input.
"""

from __future__ import annotations

from torch import Tensor

from specpilot.refengine.dflash2_config import DFlash2Config
from specpilot_kernels.block_layer import ConvWeights
from specpilot_kernels.skinny_gemm import PackedWeight

__all__ = ["grouped_conv"]


def grouped_conv(config: DFlash2Config, tensors: dict[str, Tensor], name: str) -> ConvWeights:
    """The convolution ``name`` of a checkpoint."""
    shape = (2, config.conv_kernel_size, config.num_groups, config.conv_group_size)
    base = tensors[f"{name}.base_kernel"].reshape(shape).numpy()
    return ConvWeights(base, PackedWeight.pack(tensors[f"{name}.kernel_projection.weight"]))
