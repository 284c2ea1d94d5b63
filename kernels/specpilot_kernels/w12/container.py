"""Reading ``.w12`` files."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.format import (
    DENSE,
    FORMAT,
    LAYOUT,
    PIECE_BYTES,
    VERSION,
    PartShape,
    header_digest,
    parse_record,
    part_shapes,
    rows_of_piece,
    stored_bytes,
)
from specpilot_kernels.w12.lanes import Lanes
from specpilot_kernels.w12.layout import RECORD_ROWS, RECORD_WORDS, W12Weight, num_records
from specpilot_kernels.w12.safetensors_file import (
    SafetensorsFile,
    StoredTensor,
    WeightFileError,
    parse_header,
)

__all__ = ["Advance", "W12File"]

Advance = Callable[[], None]
"""Called after every tensor."""

_NOT_AS_WRITTEN = "the stored bytes are not those that were written; copy the file again"
_NUMPY_DTYPES = {"I32": np.uint32, "U8": np.uint8}
_TORCH_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


class W12File:
    """An open ``.w12`` file. Everything is checked before it is believed. For one thread at a time.

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
        self._lanes = Lanes()
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> W12File:
        return self

    def __exit__(self, *_: object) -> None:
        self._lanes.close()
        self._file.close()

    def stored_bytes(self, name: str) -> int:
        """Bytes that a tensor takes here."""
        record = self.records[name]
        if record.escapes is None:
            return self._file.tensors[name].num_bytes
        return stored_bytes((record.shape[0], record.shape[1]), record.escapes)

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
            raise self._refused(name, _NOT_AS_WRITTEN)
        try:
            return W12Weight(shape, records, bases, escape_list, record_starts)
        except ValueError as error:
            raise self._refused(name, str(error)) from None

    def read(self, name: str) -> NDArray[np.uint8]:
        """The original bytes of a tensor, new memory, checked against their sha256."""
        data = np.empty(self.originals[name].num_bytes, np.uint8)
        for _ in self._pieces(name, _refuse, data):
            pass
        self._lanes.finish()
        return data

    def contents(self, advance: Advance = lambda: None) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Names and original bytes of all tensors, in pieces, in the order of the original file. Only when the last was
        taken are they known to be right.

        ``advance`` is called after every tensor.

        Raises
        ------
        WeightFileError
            After the last piece or sooner: what is stored, or what it decodes to, is not what was encoded.
        """
        for name in self.originals:
            for data in self._pieces(name, _refuse):
                yield name, data
            advance()
        self._lanes.finish()

    def faults(self, advance: Advance = lambda: None) -> dict[str, WeightFileError]:
        """Decode every tensor and keep none: by name, those that :meth:`read` would refuse, and why."""
        faults: dict[str, WeightFileError] = {}
        for name in self.originals:
            note = functools.partial(faults.setdefault, name)
            try:
                for _ in self._pieces(name, note):
                    pass
            except WeightFileError as error:
                note(error)
            advance()
        self._lanes.finish()
        return faults

    def _pieces(
        self, name: str, refuse: Callable[[WeightFileError], object], into: NDArray[np.uint8] | None = None
    ) -> Iterator[NDArray[np.uint8]]:
        """The original bytes of a tensor in pieces, new memory or parts of ``into``.

        When all of them are hashed, which may be while other tensors are read, ``refuse`` gets what is wrong with them.
        """
        record = self.records[name]
        stored, original = hashlib.sha256(), hashlib.sha256()

        def check() -> None:
            if record.stored_sha256 is not None and stored.hexdigest() != record.stored_sha256:
                refuse(self._refused(name, _NOT_AS_WRITTEN))
            elif original.hexdigest() != record.sha256:
                refuse(self._refused(name, "its bytes are not those of the original; copy the file again"))

        try:
            at = 0
            for data in self._dense(name) if record.layout == DENSE else self._decoded(name, stored, into):
                if into is not None and record.layout == DENSE:
                    into[at : at + data.nbytes] = data
                at += data.nbytes
                self._lanes.call("original", original.update, data)
                yield data
        except ValueError as error:
            if isinstance(error, WeightFileError):
                raise
            self.weight(name)  # Says so if it is the stored bytes.
            raise self._refused(name, str(error)) from None
        self._lanes.then(check)

    def _dense(self, name: str) -> Iterator[NDArray[np.uint8]]:
        for data in self._lanes.ahead("read", self._file.pieces(name, PIECE_BYTES)):
            self._lanes.begin(data.nbytes)
            yield data

    def _decoded(self, name: str, stored: Any, into: NDArray[np.uint8] | None) -> Iterator[NDArray[np.uint8]]:
        """Row tiles of an encoded tensor. ``stored`` takes the stored bytes; ValueError for what is no weight."""
        from specpilot_kernels.w12.ops import decode_into

        record = self.records[name]
        assert record.escapes is not None
        num_rows, num_columns = record.shape
        parts = part_shapes((num_rows, num_columns), record.escapes)
        tail, starts, escapes, bases = (
            self._file.read(name + suffix).view(_NUMPY_DTYPES[dtype]).reshape(shape)
            for suffix, dtype, shape in parts[1:]
        )
        num_tiles = parts[0][2][1]
        step = rows_of_piece(num_columns)
        record_bytes = 4 * 3 * RECORD_WORDS * num_tiles
        # Of whole row tiles there may be fewer than there are pieces.
        reads = itertools.chain(
            self._file.pieces(name + parts[0][0], record_bytes * (step // RECORD_ROWS)),
            itertools.repeat(lambda: np.empty(0, np.uint8)),
        )
        out = None if into is None else into.view(np.uint16).reshape(num_rows, num_columns)
        firsts = range(0, num_rows, step)
        for first, stored_records in zip(
            firsts, self._lanes.ahead("read", itertools.islice(reads, len(firsts))), strict=True
        ):
            shape = min(step, num_rows - first), num_columns
            row_tiles, _ = num_records(shape)
            self._lanes.begin(2 * shape[0] * num_columns + stored_records.nbytes)
            self._lanes.call("stored", stored.update, stored_records)
            records = stored_records.view(np.uint32).reshape(-1, num_tiles, 3, RECORD_WORDS)
            if len(records) < row_tiles:
                whole, records = records, np.zeros((row_tiles, num_tiles, 3, RECORD_WORDS), np.uint32)
                records[:-1] = whole
                records[-1, :, :, : tail.shape[2]] = tail
            at = first // RECORD_ROWS * num_tiles
            piece_starts = starts[at : at + row_tiles * num_tiles + 1]
            piece_bases = np.zeros(row_tiles * RECORD_ROWS, np.uint8)
            stored_bases = bases[first : first + len(piece_bases)]
            piece_bases[: len(stored_bases)] = stored_bases
            weight = W12Weight(
                shape,
                records,
                piece_bases,
                escapes[piece_starts[0] : piece_starts[-1]],
                piece_starts - piece_starts[0],
            )
            bits = np.empty(shape, np.uint16) if out is None else out[first : first + shape[0]]
            yield decode_into(weight, bits).reshape(-1).view(np.uint8)
        self._lanes.call("stored", _update, stored, (tail, starts, escapes, bases))
        if starts[0] != 0 or starts[-1] != len(escapes):
            raise ValueError(f"record_starts: got {starts[0]} to {starts[-1]}, expected 0 to {len(escapes)}")

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
            self.records = {name: parse_record(entry) for name, entry in entries.items()}
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


def _update(digest: Any, parts: tuple[NDArray[Any], ...]) -> None:
    for part in parts:
        digest.update(part.reshape(-1).view(np.uint8))


def _refuse(error: WeightFileError) -> None:
    raise error


def _torch() -> Any:
    import torch

    return torch
