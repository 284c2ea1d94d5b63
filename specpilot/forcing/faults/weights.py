"""A fault in the weights: one flipped bit in one W12 record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specpilot.errors import Unsupported
from specpilot_kernels.w12 import decode_w12, encode_w12

__all__ = ["MATRIX", "flip_bit"]

MATRIX = "model.layers.1.mlp.down_proj.weight"
_PLANES = {"exponent": 1, "mantissa": 0}
_TRIES = 10_000


def flip_bit(
    tensors: Mapping[str, Tensor], kind: str, seed: int = 0, name: str = MATRIX
) -> dict[str, Tensor]:
    """The tensors with one weight of one matrix changed by one bit of its W12 record.

    Parameters
    ----------
    kind
        ``exponent``: a bit of plane E that makes the weight 256 times as large; ``mantissa``: one of plane A that
        leaves its sign and changes it by less than half.
    """
    matrix = tensors[name].to(torch.bfloat16)
    encoded = encode_w12(matrix)
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        records = encoded.records.copy()
        place = (
            int(rng.integers(records.shape[0])),
            int(rng.integers(records.shape[1])),
            _PLANES[kind],
            int(rng.integers(records.shape[3])),
        )
        records[place] ^= np.uint32(1 << int(rng.integers(32)))
        wrong = decode_w12(replace(encoded, records=records)).reshape(matrix.shape).float()
        right = matrix.float()
        changed = (wrong != right).nonzero()
        if len(changed) != 1:
            continue
        row, column = changed[0].tolist()
        ratio = float(wrong[row, column] / right[row, column])
        if ratio == 256 if kind == "exponent" else 0.5 < ratio < 1.5:
            return {**tensors, name: wrong}
    raise Unsupported(f"{name}: found no bit of kind {kind!r} in {_TRIES} tries")
