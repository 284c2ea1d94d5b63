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
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.layout import RECORD_ROWS, RECORD_WORDS, W12Weight, num_records
from specpilot_kernels.w12.safetensors_file import (
    SafetensorsFile,
    StoredTensor,
    WeightFileError,
    parse_header,
)

__all__ = [
    "DENSE",
    "FORMAT",
    "LAYOUT",
    "NO_DIGEST",
    "VERSION",
    "W12_SUFFIX",
    "PartShape",
    "TensorRecord",
    "W12File",
    "header_digest",
    "part_shapes",
    "stored_parts",
]

FORMAT, VERSION = "specpilot-w12", "1"
W12_SUFFIX = ".w12"
LAYOUT, DENSE = "L3", "dense"
NO_DIGEST = "0" * 64
_GROUP_ROWS = 16
_GROUP_WORDS = RECORD_WORDS * _GROUP_ROWS // RECORD_ROWS
"""A warp's 16 rows are 128 words in a row of every plane."""

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


def header_digest(header: bytes, digest: str) -> str:
    """The header's ``sha256``, when it now holds ``digest``."""
    return hashlib.sha256(header.replace(digest.encode(), NO_DIGEST.encode(), 1)).hexdigest()


class W12File:
    """An open ``.w12`` file. Everything is checked before it is believed; not for several threads at once.

    Attributes
    ----------
    path : Path
    original_header : bytes
    originals : dict of StoredTensor
        Lines of the original header, in the order of the original bytes.
    records : dict of TensorRecord
        By the original tensors' names.

    Raises
    ------
    WeightFileError
        The file cannot be read, is cut short, foreign, of another version or changed after it was written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = SafetensorsFile(path)
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> W12File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def stored_bytes(self, name: str) -> int:
        """Bytes that a tensor takes here."""
        record = self.records[name]
        parts = (
            part_shapes((record.shape[0], record.shape[1]), record.escapes)
            if record.escapes is not None
            else ()
        )
        return sum(
            self._file.tensors[name + suffix].num_bytes for suffix in [part[0] for part in parts] or [""]
        )

    def weight(self, name: str) -> W12Weight:
        """An encoded tensor as it is stored, its bytes checked. For the decoded one see :meth:`get_tensor`."""
        record = self.records[name]
        assert record.layout == LAYOUT and record.escapes is not None
        shape = record.shape[0], record.shape[1]
        tiles = num_records(shape)
        records = np.zeros((*tiles, 3, RECORD_WORDS), np.uint32)
        bases = np.zeros(tiles[0] * RECORD_ROWS, np.uint8)
        digest = hashlib.sha256()

        def read(part: PartShape, into: NDArray[Any]) -> NDArray[Any]:
            self._file.read_into(name + part[0], into)
            digest.update(into.reshape(-1).view(np.uint8).data)
            return into

        whole, tail, starts, escapes, stored_bases = part_shapes(shape, record.escapes)
        read(whole, records[: whole[2][0]])
        last = read(tail, np.empty(tail[2], np.uint32))
        record_starts = read(starts, np.empty(starts[2], np.uint32))
        escape_list = read(escapes, np.empty(escapes[2], np.uint32))
        read(stored_bases, bases[: stored_bases[2][0]])
        if last.size:
            records[-1, :, :, : last.shape[2]] = last
        if digest.hexdigest() != record.stored_sha256:
            raise self._refused(name, "the stored bytes are not those that were written; copy the file again")
        try:
            return W12Weight(shape, records, bases, escape_list, record_starts)
        except ValueError as error:
            raise self._refused(name, str(error)) from None

    def read(self, name: str) -> NDArray[np.uint8]:
        """The original bytes of a tensor, new memory, checked against their sha256."""
        from specpilot_kernels.w12.ops import decode_w12

        record = self.records[name]
        if record.layout == DENSE:
            data = self._file.read(name)
        else:
            data = decode_w12(self.weight(name)).view(_torch().uint8).numpy().reshape(-1)
        if hashlib.sha256(data.data).hexdigest() != record.sha256:
            raise self._refused(name, "its bytes are not those of the original; copy the file again")
        return data

    def keys(self) -> list[str]:
        """Names of the original tensors; with :meth:`get_tensor` what ``safetensors.safe_open`` offers."""
        return list(self.originals)

    def get_tensor(self, name: str) -> Any:
        """The original tensor, a torch.Tensor in new memory.

        Raises
        ------
        WeightFileError
            As :meth:`read` does, and for an element type that torch lacks.
        """
        torch, record = _torch(), self.records[name]
        dtype = _TORCH_DTYPES.get(record.dtype)
        if dtype is None or not hasattr(torch, dtype):
            raise self._refused(name, f"got dtype {record.dtype}, which torch lacks")
        data = self.read(name)
        if not data.size:
            return torch.empty(record.shape, dtype=getattr(torch, dtype))
        return torch.from_numpy(data).view(getattr(torch, dtype)).view(record.shape)

    def _refused(self, name: str, reason: str) -> WeightFileError:
        return WeightFileError(f"{self.path}: {name}: {reason}")

    def _read_header(self) -> None:
        metadata = self._file.metadata
        for key, known in (("format", FORMAT), ("version", VERSION)):
            if metadata.get(key) != known:
                raise WeightFileError(
                    f"{self.path}: got {key} {metadata.get(key)!r}, expected {known!r}; give a file that "
                    "`specpilot w12 encode` of this build wrote"
                )
        digest = metadata.get("sha256", "")
        if len(digest) != 64 or header_digest(self._file.header, digest) != digest:
            raise WeightFileError(
                f"{self.path}: the header was changed after it was written; copy the file again"
            )
        # The digest tells chance from intent, not a writer with a defect or a will: so every entry is checked, too.
        try:
            self.original_header = metadata["original_header"].encode("utf-8")
            entries = json.loads(metadata["tensors"])
            self.records = {name: _parsed(entry) for name, entry in entries.items()}
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise WeightFileError(f"{self.path}: metadata: {type(error).__name__}: {error}") from None
        self.originals = self._parse_original()
        self._check_stored()

    def _parse_original(self) -> dict[str, StoredTensor]:
        _, originals = parse_header(self.original_header, self.path)
        if originals.keys() != self.records.keys():
            name = sorted(originals.keys() ^ self.records.keys())[0]
            raise self._refused(name, "original_header and tensors disagree on whether it is there")
        for name, original in originals.items():
            record = self.records[name]
            if (record.dtype, record.shape) != (original.dtype, original.shape):
                raise self._refused(
                    name,
                    f"got {record.dtype} {record.shape}, expected {original.dtype} {original.shape} as in the original "
                    "header",
                )
        return originals

    def _check_stored(self) -> None:
        expected: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, record in self.records.items():
            if record.layout == DENSE:
                parts: list[PartShape] = [("", record.dtype, record.shape)]
            else:
                assert record.escapes is not None
                parts = part_shapes((record.shape[0], record.shape[1]), record.escapes)
            for suffix, dtype, shape in parts:
                stored = self._file.tensors.get(name + suffix)
                if stored is None or (stored.dtype, stored.shape) != (dtype, shape):
                    got = "nothing" if stored is None else f"{stored.dtype} {stored.shape}"
                    raise self._refused(
                        name, f"stored {suffix or 'tensor'}: got {got}, expected {dtype} {shape}"
                    )
                expected[name + suffix] = dtype, shape
        extra = sorted(self._file.tensors.keys() - expected.keys())
        if extra:
            raise self._refused(extra[0], "no original tensor has this part")


def _parsed(entry: dict[str, Any]) -> TensorRecord:
    record = TensorRecord(**{**entry, "shape": tuple(entry["shape"])})
    texts = [record.dtype, record.sha256, record.layout]
    if not all(isinstance(text, str) for text in texts) or not all(type(n) is int for n in record.shape):
        raise ValueError("a field is of the wrong type")
    if record.layout == LAYOUT:
        if record.dtype != "BF16" or len(record.shape) != 2:
            raise ValueError(f"layout {LAYOUT} of {record.dtype} {record.shape}, expected BF16 (N, K)")
        if type(record.escapes) is not int or record.escapes < 0 or not isinstance(record.stored_sha256, str):
            raise ValueError(f"layout {LAYOUT} without escapes and stored_sha256")
    elif record.layout != DENSE or record.escapes is not None or record.stored_sha256 is not None:
        raise ValueError(f"layout: got {record.layout!r}, expected {LAYOUT!r} or {DENSE!r}")
    return record


_TORCH_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def _torch() -> Any:
    import torch

    return torch
