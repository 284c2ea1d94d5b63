"""The ``.w12`` file: a safetensors file whose BF16 matrices are W12 weights, with all it takes to write the original
safetensors file again byte for byte.

Any safetensors reader lists it. A tensor NAME that is not encoded is there as it was. An encoded one of shape (N, K),
with T = N // 128 whole row tiles, C = ceil(K / 64) column tiles and G = ceil((N % 128) / 16) begun groups of 16 rows
below them, is five tensors; 32-bit words are stored as I32, which every reader knows, and read as unsigned:

    NAME.w12_records   I32 (T, C, 3, 1024)    records of :mod:`specpilot_kernels.w12.layout`
    NAME.w12_tail      I32 (C, 3, 128 G)      the first words of the planes of the last records; the rest of them is 0
    NAME.w12_starts    I32 (records + 1,)     ``record_starts``
    NAME.w12_escapes   I32 (escapes,)
    NAME.w12_bases     U8 (128 T + 16 G,)     bases; those of further padding rows are 0

Metadata, all text:

===================  ==================================================================================================
``format``           ``specpilot-w12``
``version``          ``1``; another one is refused
``original_header``  JSON header of the original file, with its padding; its 8 bytes of length follow from it
``tensors``          JSON: for every original tensor ``dtype``, ``shape``, ``sha256`` of its original bytes, ``layout``
                     (``L3`` or ``dense``), and with L3 ``escapes`` and ``stored_sha256``, of the five tensors' bytes in
                     the order above
``sha256``           of the header's bytes, with 64 zeros in place of this number
===================  ==================================================================================================

So no bit of the file can change unseen. Numbers in the bytes are little-endian.
"""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.layout import RECORD_ROWS, RECORD_WORDS, W12Weight, num_records
from specpilot_kernels.w12.safetensors_file import DTYPE_BITS

__all__ = [
    "DENSE",
    "FORMAT",
    "LAYOUT",
    "NO_DIGEST",
    "PIECE_BYTES",
    "VERSION",
    "W12_SUFFIX",
    "PartShape",
    "TensorRecord",
    "header_digest",
    "parse_record",
    "part_shapes",
    "rows_of_piece",
    "stored_bytes",
    "stored_parts",
]

FORMAT, VERSION = "specpilot-w12", "1"
W12_SUFFIX = ".w12"
LAYOUT, DENSE = "L3", "dense"
NO_DIGEST = "0" * 64
_GROUP_ROWS = 16
_GROUP_WORDS = RECORD_WORDS * _GROUP_ROWS // RECORD_ROWS
"""A warp's 16 rows are 128 words in a row of every plane."""
PIECE_BYTES = 2**23
"""Of a tensor that are worked on at once; small enough to stay in a cache from one kind of work to the next."""

PartShape = tuple[str, str, tuple[int, ...]]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("W12 files are read on little-endian machines only")


@dataclass(frozen=True)
class TensorRecord:
    """An original tensor, as the metadata have it.

    Attributes
    ----------
    dtype, shape
        Of the original.
    sha256
        Of its bytes.
    layout
        ``L3`` or ``dense``.
    escapes
        Number of escapes; None when dense.
    stored_sha256
        Of the bytes in this file; None when dense, where they are the original's.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    layout: str
    escapes: int | None = None
    stored_sha256: str | None = None


def part_shapes(shape: tuple[int, int], num_escapes: int) -> list[PartShape]:
    """Suffix, element type and shape of the five tensors of an encoded one."""
    whole, rest = divmod(shape[0], RECORD_ROWS)
    row_tiles, column_tiles = num_records(shape)
    groups = -(-rest // _GROUP_ROWS)
    return [
        (".w12_records", "I32", (whole, column_tiles, 3, RECORD_WORDS)),
        (".w12_tail", "I32", (column_tiles, 3, _GROUP_WORDS * groups)),
        (".w12_starts", "I32", (row_tiles * column_tiles + 1,)),
        (".w12_escapes", "I32", (num_escapes,)),
        (".w12_bases", "U8", (RECORD_ROWS * whole + _GROUP_ROWS * groups,)),
    ]


def stored_parts(weight: W12Weight) -> list[NDArray[Any]]:
    """The arrays of the five tensors, contiguous, in the order of :func:`part_shapes`."""
    (_, _, records), (_, _, tail), *_, (_, _, bases) = part_shapes(weight.shape, len(weight.escapes))
    last = weight.records[records[0] :].reshape(-1, 3, RECORD_WORDS)
    return [
        weight.records[: records[0]],
        np.ascontiguousarray(last[:, :, : tail[2]]).reshape(tail),
        weight.record_starts,
        weight.escapes,
        weight.bases[: bases[0]],
    ]


def stored_bytes(shape: tuple[int, int], num_escapes: int) -> int:
    """Bytes of the five tensors."""
    return sum(math.prod(part) * DTYPE_BITS[dtype] // 8 for _, dtype, part in part_shapes(shape, num_escapes))


def rows_of_piece(num_columns: int) -> int:
    """Rows of a BF16 matrix that are encoded or decoded at once: whole row tiles of about :data:`PIECE_BYTES`."""
    return RECORD_ROWS * max(1, PIECE_BYTES // (2 * RECORD_ROWS * max(1, num_columns)))


def header_digest(header: bytes, digest: str) -> str:
    """The header's ``sha256``, when it now holds ``digest``."""
    return hashlib.sha256(header.replace(digest.encode(), NO_DIGEST.encode(), 1)).hexdigest()


def parse_record(entry: dict[str, Any]) -> TensorRecord:
    """An entry of ``tensors``; KeyError, TypeError, AttributeError or ValueError for what is none."""
    record = TensorRecord(**{**entry, "shape": tuple(entry["shape"])})
    texts = [record.dtype, record.sha256, record.layout]
    if not all(isinstance(text, str) for text in texts) or not all(type(n) is int for n in record.shape):
        raise ValueError("a field is of the wrong type")
    if record.layout == LAYOUT:
        if record.dtype != "BF16" or len(record.shape) != 2 or 0 in record.shape:
            raise ValueError(f"layout {LAYOUT} of {record.dtype} {record.shape}, expected BF16 (N, K)")
        if type(record.escapes) is not int or record.escapes < 0 or not isinstance(record.stored_sha256, str):
            raise ValueError(f"layout {LAYOUT} without escapes and stored_sha256")
    elif record.layout != DENSE or record.escapes is not None or record.stored_sha256 is not None:
        raise ValueError(f"layout: got {record.layout!r}, expected {LAYOUT!r} or {DENSE!r}")
    return record
