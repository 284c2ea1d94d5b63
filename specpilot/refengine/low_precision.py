"""A second target with low-precision weights, for the Q pass of two-level verification.

The copy shares its target's configuration, embedding, norms, convolutions and rotations; every matrix product reads
numbers of fewer bits. It runs on the very :class:`specpilot.refengine.state.SequenceState` of the target: its rows see
the keys, values and recurrent state that the exact pass left, and ``commit(0)`` drops them.

On the CPU the copies save no time at verify widths: products of several rows are bound by arithmetic, which is float32
here whatever the weights' bits. ``w12_view`` numbers are BF16 numbers and kept as such; INT8 and INT6 take a byte.
``format_bytes`` is what the format itself reads, the number a GPU's memory sees.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.engines.mechanisms import QWeights
from specpilot.refengine.attention import GatedAttention
from specpilot.refengine.dense_layer import DenseAttention, DenseLayer
from specpilot.refengine.gdn_layer import GatedDeltaNet
from specpilot.refengine.layered import LayeredModel
from specpilot.refengine.mlp import Mlp
from specpilot.refengine.model import Layer
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import Projection
from specpilot.refengine.target import Target
from specpilot_kernels.q_weights import NumBits, QWeight, q_matmul, quantise
from specpilot_kernels.w12 import encode_w12, view_w12

__all__ = ["LowPrecisionCopy", "QProjection", "low_precision_copy"]

_PARTS = (LayeredModel, Layer, DenseLayer, GatedAttention, GatedDeltaNet, DenseAttention, Mlp)
_BITS: dict[QWeights, NumBits] = {"int8": 8, "int6": 6}


@dataclass(frozen=True, eq=False)
class LowPrecisionCopy:
    """A copy and what it costs.

    Attributes
    ----------
    target
        Has the methods of the exact one, and its states.
    q_weights
        Which copy it is.
    memory_bytes
        Bytes held beside the exact target's.
    format_bytes
        Bytes of the copied matrices in the format itself: 8 or 6 bits a weight, with scales, window bases and escapes.
    exact_bytes
        Bytes of the same matrices as the target holds them.
    """

    target: Target
    q_weights: QWeights
    memory_bytes: int
    format_bytes: int
    exact_bytes: int


class QProjection:
    """y = x W^T for integers with a scale a row; what :class:`specpilot.refengine.numerics.Projection` offers."""

    def __init__(self, weight: QWeight) -> None:
        self.weight = weight

    @property
    def memory_bytes(self) -> int:
        """Bytes of integers and scales."""
        return self.weight.memory_bytes

    def arrays(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(T, in) -> (T, out) on arrays, T >= 1. A row's result depends on no other row."""
        return q_matmul(x, self.weight)

    def of_normed(self, x: NDArray[np.float32], norm: RmsNorm) -> NDArray[np.float32]:
        """``arrays(norm.arrays(x))``."""
        return self.arrays(norm.arrays(x))

    def add_to(self, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        """``x += arrays(y)``."""
        x += self.arrays(y)

    def __call__(self, x: Tensor) -> Tensor:
        """(T, in) -> (T, out), contiguous; T may be 0."""
        if not x.shape[0]:
            return x.new_empty(0, self.weight.num_columns)
        return torch.from_numpy(self.arrays(x.contiguous().numpy()))


def low_precision_copy(target: Target, q_weights: QWeights, *, has_head: bool = True) -> LowPrecisionCopy:
    """Make the copy of a loaded target.

    Parameters
    ----------
    target
        Hybrid or dense. Not changed; the copy keeps it alive.
    q_weights
        "w12_view": the 8-bit view of W12 with the middle for the dropped bits; weights that are no BF16 numbers are
        rounded to BF16 first. "int8", "int6": integers with a scale for every row.
    has_head
        The LM head is low-precision too; otherwise it is the target's.
    """
    sizes = {"memory": 0, "format": 0, "exact": 0}
    head = target._head

    def convert(exact: Projection) -> Projection | QProjection:
        if exact is head and not has_head:
            return exact
        twin, format_bytes = _convert(exact, q_weights)
        for name, size in (
            ("memory", twin.memory_bytes),
            ("format", format_bytes),
            ("exact", exact.memory_bytes),
        ):
            sizes[name] += size
        return twin

    twin = _twin(target, convert, {})
    assert isinstance(twin, type(target))
    return LowPrecisionCopy(twin, q_weights, sizes["memory"], sizes["format"], sizes["exact"])


def _convert(exact: Projection, q_weights: QWeights) -> tuple[Projection | QProjection, int]:
    """The product with the copied weight, and the bytes of the format."""
    weight = exact.packed.unpack()
    if q_weights == "w12_view":
        encoded = encode_w12(weight.bfloat16())
        planes = encoded.records[:, :, :2].nbytes
        others = (encoded.bases, encoded.escapes, encoded.record_starts)
        return Projection(view_w12(encoded)), planes + sum(part.nbytes for part in others)
    quantised = quantise(weight, _BITS[q_weights])
    return QProjection(quantised), quantised.format_bytes


def _twin(
    part: object, convert: Callable[[Projection], Projection | QProjection], made: dict[int, object]
) -> object:
    """A copy of a model's part in which every product is converted, once, and everything else is shared."""
    if id(part) in made:
        return made[id(part)]
    twin = part
    if isinstance(part, Projection):
        twin = convert(part)
    elif isinstance(part, list):
        twin = [_twin(item, convert, made) for item in part]
    elif isinstance(part, _PARTS):
        twin = copy.copy(part)
        for name, value in vars(part).items():
            setattr(twin, name, _twin(value, convert, made))
    made[id(part)] = twin
    return twin
