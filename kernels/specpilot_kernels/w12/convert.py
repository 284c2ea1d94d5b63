"""One safetensors file to a ``.w12`` file and back, a tensor at a time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot_kernels.w12.atomic_file import atomic_file
from specpilot_kernels.w12.container import (
    DENSE,
    FORMAT,
    LAYOUT,
    NO_DIGEST,
    VERSION,
    TensorRecord,
    W12File,
    header_digest,
    part_shapes,
    stored_parts,
)
from specpilot_kernels.w12.layout import RECORD_ROWS, W12Weight
from specpilot_kernels.w12.ops import encode_w12
from specpilot_kernels.w12.safetensors_file import (
    DTYPE_BITS,
    LENGTH_BYTES,
    SafetensorsFile,
    StoredTensor,
    WeightFileError,
)

__all__ = ["Advance", "decode_file", "encode_file", "is_candidate", "is_encoding_of", "write_safetensors"]

Advance = Callable[[], None]
"""Called after every tensor."""

_MLP = re.compile(r"(^|[._])(mlp|ffn|feed_forward|moe|experts?)([._]|$)")
_ALIGNMENT = 8


def is_candidate(tensor: StoredTensor, *, is_mlp_only: bool = False) -> bool:
    """Whether a tensor is encoded, provided that this makes it smaller: a BF16 matrix of 128 or more rows.

    ``is_mlp_only`` leaves out what has no part ``mlp``, ``ffn``, ``feed_forward``, ``moe`` or ``experts`` in its name.
    """
    is_matrix = tensor.dtype == "BF16" and len(tensor.shape) == 2 and tensor.shape[0] >= RECORD_ROWS
    return is_matrix and tensor.shape[1] > 0 and (not is_mlp_only or _MLP.search(tensor.name) is not None)


def encode_file(
    source: Path, out: Path, *, is_mlp_only: bool = False, advance: Advance = lambda: None
) -> None:
    """Write ``out``, from which :func:`decode_file` makes ``source`` again byte for byte.

    Holds one tensor and its encoding in memory. ``out`` gets its name when it is whole and on disk.

    Raises
    ------
    WeightFileError
        The source is no safetensors file or damaged; ``out`` cannot be written.
    """
    with SafetensorsFile(source) as reader:
        if reader.metadata.get("format") == FORMAT:
            raise WeightFileError(f"{source}: is a W12 file already")
        chosen = {t.name for t in reader.tensors.values() if is_candidate(t, is_mlp_only=is_mlp_only)}
        num_reserved = len(_header(reader, *_largest(reader, chosen)))
        with atomic_file(out) as file:
            file.seek(LENGTH_BYTES + num_reserved)
            writer = _Writer(file)
            bases: list[tuple[str, NDArray[Any]]] = []
            records: dict[str, TensorRecord] = {}

            def copy(tensors: Iterable[StoredTensor]) -> None:
                for tensor in tensors:
                    data = reader.read(tensor.name)
                    records[tensor.name] = TensorRecord(tensor.dtype, tensor.shape, _sha256(data), DENSE)
                    writer.add(tensor.name, tensor.dtype, tensor.shape, data)
                    advance()

            # Larger elements first, so that every tensor is aligned, as the safetensors library does it.
            copy(_of_bits(reader, chosen, 64))
            for name in sorted(chosen, key=lambda name: reader.tensors[name].begin):
                data = reader.read(name)
                weight = encode_w12(_as_bfloat16(data, reader.tensors[name].shape))
                parts = stored_parts(weight)
                if sum(part.nbytes for part in parts) >= data.nbytes:
                    chosen.discard(name)  # Copied below.
                    continue
                records[name] = _record(weight, data, parts)
                shapes = part_shapes(weight.shape, len(weight.escapes))
                for (suffix, dtype, shape), part in zip(shapes[:-1], parts[:-1], strict=True):
                    writer.add(name + suffix, dtype, shape, part)
                bases.append((name + shapes[-1][0], parts[-1].copy()))
                advance()
            for bits in (32, 16, 8, 6, 4):
                copy(_of_bits(reader, chosen, bits))
            for stored_name, part in bases:
                writer.add(stored_name, "U8", part.shape, part)
            in_order = {name: records[name] for name in reader.tensors}
            header = _header(reader, in_order, writer.lines)
            assert len(header) <= num_reserved
            header += b" " * (num_reserved - len(header))
            digest = header_digest(header, NO_DIGEST)
            file.seek(0)
            file.write(len(header).to_bytes(LENGTH_BYTES, "little"))
            file.write(header.replace(NO_DIGEST.encode(), digest.encode(), 1))


def decode_file(source: Path, out: Path, *, advance: Advance = lambda: None) -> None:
    """Write the safetensors file that ``source`` was encoded from; every tensor is checked before it is written.

    Raises
    ------
    WeightFileError
        As :class:`W12File` does; ``out`` cannot be written.
    """

    def tensors(reader: W12File) -> Iterator[NDArray[np.uint8]]:
        for name in reader.originals:
            yield reader.read(name)
            advance()

    with W12File(source) as reader:
        write_safetensors(out, reader.original_header, tensors(reader))


def write_safetensors(out: Path, header: bytes, tensors: Iterable[NDArray[np.uint8]]) -> None:
    """Write a safetensors file, whole or not at all, from its header and the tensors' bytes in their order."""
    with atomic_file(out) as file:
        file.write(len(header).to_bytes(LENGTH_BYTES, "little"))
        file.write(header)
        for data in tensors:
            file.write(data.data)


def is_encoding_of(encoded_file: Path, source: Path, *, is_mlp_only: bool | None = None) -> bool:
    """Whether a ``.w12`` file is whole and holds ``source``; reads both and encodes nothing.

    With ``is_mlp_only`` given, also whether :func:`encode_file` would encode the same tensors.
    """
    try:
        with SafetensorsFile(source) as reader, W12File(encoded_file) as encoded:
            if encoded.original_header != reader.header:
                return False
            for name, tensor in reader.tensors.items():
                record = encoded.records[name]
                if is_mlp_only is not None:
                    is_chosen = is_candidate(tensor, is_mlp_only=is_mlp_only)
                    # Few candidates are dense: those that encoding does not make smaller.
                    if (record.layout == LAYOUT) != (is_chosen and _pays(reader, tensor, record.layout)):
                        return False
                if record.layout == LAYOUT:
                    encoded.weight(name)
                else:
                    encoded.read(name)
                if _sha256(reader.read(name)) != record.sha256:
                    return False
    except WeightFileError:
        return False
    return True


class _Writer:
    """Puts tensors one after the other and keeps their header lines."""

    def __init__(self, file: BinaryIO) -> None:
        self.lines: dict[str, dict[str, Any]] = {}
        self._file, self._at = file, 0

    def add(self, name: str, dtype: str, shape: tuple[int, ...], data: NDArray[Any]) -> None:
        if name in self.lines:
            raise WeightFileError(f"{name}: the file has a tensor of the name that an encoded one needs")
        self.lines[name] = _line(dtype, shape, self._at, self._at + data.nbytes)
        self._at += data.nbytes
        self._file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)


def _line(dtype: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def _header(
    reader: SafetensorsFile, records: dict[str, TensorRecord], lines: dict[str, dict[str, Any]]
) -> bytes:
    """Header without its digest, padded so that the data are aligned."""
    entries = {
        name: {key: value for key, value in asdict(record).items() if value is not None}
        for name, record in records.items()
    }
    metadata = {
        # First, so that no text of the original file can stand for it.
        "sha256": NO_DIGEST,
        "format": FORMAT,
        "version": VERSION,
        "original_header": reader.header.decode("utf-8"),
        "tensors": json.dumps(entries, separators=(",", ":")),
    }
    header = json.dumps({"__metadata__": metadata, **lines}, separators=(",", ":")).encode("ascii")
    return header + b" " * (-len(header) % _ALIGNMENT)


def _largest(
    reader: SafetensorsFile, chosen: set[str]
) -> tuple[dict[str, TensorRecord], dict[str, dict[str, Any]]]:
    """Entries that take as much room in the header as any that encoding may give."""
    limit = 10 ** (len(str(len(reader.header) + sum(t.num_bytes for t in reader.tensors.values()))) + 1)
    records: dict[str, TensorRecord] = {}
    lines: dict[str, dict[str, Any]] = {}
    for name, tensor in reader.tensors.items():
        parts: list[tuple[str, str, tuple[int, ...]]] = [("", tensor.dtype, tensor.shape)]
        records[name] = TensorRecord(tensor.dtype, tensor.shape, NO_DIGEST, DENSE)
        if name in chosen:
            shape = tensor.shape[0], tensor.shape[1]
            records[name] = TensorRecord(tensor.dtype, shape, NO_DIGEST, LAYOUT, limit, NO_DIGEST)
            parts = part_shapes(shape, limit)
        lines |= {name + suffix: _line(dtype, shape, limit, limit) for suffix, dtype, shape in parts}
    return records, lines


def _of_bits(reader: SafetensorsFile, chosen: set[str], bits: int) -> list[StoredTensor]:
    return [t for t in reader.tensors.values() if t.name not in chosen and DTYPE_BITS[t.dtype] == bits]


def _record(weight: W12Weight, data: NDArray[np.uint8], parts: list[NDArray[Any]]) -> TensorRecord:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return TensorRecord("BF16", weight.shape, _sha256(data), LAYOUT, len(weight.escapes), digest.hexdigest())


def _pays(reader: SafetensorsFile, tensor: StoredTensor, layout: str) -> bool:
    """Whether encoding makes a candidate smaller; of one that is encoded that is known."""
    if layout == LAYOUT:
        return True
    weight = encode_w12(_as_bfloat16(reader.read(tensor.name), tensor.shape))
    return sum(part.nbytes for part in stored_parts(weight)) < tensor.num_bytes


def _as_bfloat16(data: NDArray[np.uint8], shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(data).view(torch.bfloat16).view(shape)


def _sha256(data: NDArray[np.uint8]) -> str:
    return hashlib.sha256(data.data).hexdigest()
