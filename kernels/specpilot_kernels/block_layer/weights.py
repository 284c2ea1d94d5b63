"""Weights of a block drafter's layer, as its kernel takes them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.cpu_vector import LANES
from specpilot_kernels.skinny_gemm import PackedWeight

__all__ = ["BlockLayerWeights", "ConvWeights"]

_Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ConvWeights:
    """The convolution around a sublayer; side 0 is of its input, side 1 of its output.

    Attributes
    ----------
    base : array, float32, (2, taps, G, size), contiguous
        What all rows share.
    delta
        (2 taps G) outputs, H inputs: what a row adds for each side, tap and group.
    """

    base: _Array
    delta: PackedWeight

    @property
    def arrays(self) -> tuple[_Array, NDArray[np.uint16] | NDArray[np.float32]]:
        """The kernel's arguments."""
        return self.base, self.delta.panels


@dataclass(frozen=True, eq=False)
class BlockLayerWeights:
    """Weights of a layer; arrays are float32 and contiguous.

    Attributes
    ----------
    input_scale, post_scale : array, (H,)
        Norms before attention and before the gated block.
    head_scales : array, (heads + key heads, d)
        As ``scales`` of :func:`specpilot_kernels.chain_attention.batch_attention`.
    qkv, attention_out, gate_up, down
        H inputs; H outputs; H inputs, twice I outputs; I inputs, H outputs.
    attention_conv, mlp_conv
        Both or none.

    Raises
    ------
    ValueError
        Shapes that do not belong together.
    """

    input_scale: _Array
    head_scales: _Array
    qkv: PackedWeight
    attention_out: PackedWeight
    post_scale: _Array
    gate_up: PackedWeight
    down: PackedWeight
    attention_conv: ConvWeights | None = None
    mlp_conv: ConvWeights | None = None

    def __post_init__(self) -> None:
        width, dim = self.input_scale.shape[0], self.head_scales.shape[1]
        is_right = (
            self.post_scale.shape == (width,)
            and self.qkv.num_inputs == self.gate_up.num_inputs == width
            and self.attention_out.num_columns == self.down.num_columns == width
            and self.gate_up.num_columns == 2 * self.down.num_inputs
            # Query heads, then key heads with as many value heads: what is left over is the key heads.
            and self.qkv.num_columns - self.attention_out.num_inputs == 2 * self.num_groups * dim
            and not self.attention_out.num_inputs % dim
            and not dim % LANES
            and (self.attention_conv is None) == (self.mlp_conv is None)
        )
        for conv in (self.attention_conv, self.mlp_conv):
            if conv is not None:
                sides, taps, groups, size = conv.base.shape
                is_right &= sides == 2 and taps > 0 and groups * size == width
                is_right &= (conv.delta.num_columns, conv.delta.num_inputs) == (2 * taps * groups, width)
        if not is_right:
            shapes = [(one.num_columns, one.num_inputs) for one in self._products]
            raise ValueError(
                f"layer: got scales {self.input_scale.shape}, {self.post_scale.shape}, {self.head_scales.shape} "
                f"and products {shapes}; expected norms of H, heads of a multiple of {LANES} channels, products for "
                "queries, keys and values, attention's output, gate and up, down, and both convolutions"
            )

    @property
    def _products(self) -> list[PackedWeight]:
        convs = [conv.delta for conv in (self.attention_conv, self.mlp_conv) if conv is not None]
        return [self.qkv, self.attention_out, self.gate_up, self.down, *convs]

    @functools.cached_property
    def is_narrow(self) -> bool:
        """All products are BF16."""
        return all(product.element_type == "bfloat16" for product in self._products)

    @property
    def num_groups(self) -> int:
        """Key heads."""
        num_scales, dim = self.head_scales.shape
        return int(num_scales) - self.attention_out.num_inputs // int(dim)
