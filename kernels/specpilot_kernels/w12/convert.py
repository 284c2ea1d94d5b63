"""One safetensors file to a ``.w12`` file and back, a piece at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.w12.atomic_file import atomic_file
from specpilot_kernels.w12.container import Advance, W12File
from specpilot_kernels.w12.format import (
    DENSE,
    FORMAT,
    LAYOUT,
    NO_DIGEST,
    VERSION,
    TensorRecord,
    header_digest,
    part_shapes,
    stored_bytes,
)
from specpilot_kernels.w12.lanes import Lanes
from specpilot_kernels.w12.layout import RECORD_ROWS
from specpilot_kernels.w12.ops import encode_w12
from specpilot_kernels.w12.piece_writer import PieceWriter
from specpilot_kernels.w12.safetensors_file import (
    DTYPE_BITS,
    LENGTH_BYTES,
    SafetensorsFile,
    StoredTensor,
    WeightFileError,
)
from specpilot_kernels.w12.tensor_encoder import TensorEncoder, as_bfloat16, header_line, row_tiles

__all__ = ["decode_file", "encode_file", "is_candidate", "is_encoding_of", "write_safetensors"]

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

    Reads, hashes, encodes and writes pieces at the same time (:mod:`specpilot_kernels.w12.lanes`). ``out`` gets its
    name when it is whole and on disk.

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
        with atomic_file(out) as file, Lanes() as lanes:
            file.seek(LENGTH_BYTES + num_reserved)
            encoder = TensorEncoder(reader, PieceWriter(file, out, lanes), lanes)

            def copy(tensors: Iterable[StoredTensor]) -> None:
                for tensor in tensors:
                    encoder.copy(tensor)
                    advance()

            # Larger elements first, so that every tensor is aligned, as the safetensors library does it.
            copy(_of_bits(reader, chosen, 64))
            for name in sorted(chosen, key=lambda name: reader.tensors[name].begin):
                if encoder.encode(reader.tensors[name]):
                    advance()
                else:
                    chosen.discard(name)  # Copied below.
            for bits in (32, 16, 8, 6, 4):
                copy(_of_bits(reader, chosen, bits))
            records, lines = encoder.finish()
            header = _header(reader, {name: records[name] for name in reader.tensors}, lines)
            assert len(header) <= num_reserved
            header += b" " * (num_reserved - len(header))
            digest = header_digest(header, NO_DIGEST)
            file.seek(0)
            file.write(len(header).to_bytes(LENGTH_BYTES, "little"))
            file.write(header.replace(NO_DIGEST.encode(), digest.encode(), 1))


def decode_file(source: Path, out: Path, *, advance: Advance = lambda: None) -> None:
    """Write the safetensors file that ``source`` was encoded from; ``out`` gets its name when every tensor was checked.

    Raises
    ------
    WeightFileError
        As :class:`W12File` does; ``out`` cannot be written.
    """

    with W12File(source) as reader:
        write_safetensors(out, reader.original_header, reader.contents(advance))


def write_safetensors(out: Path, header: bytes, pieces: Iterable[tuple[str, NDArray[np.uint8]]]) -> None:
    """Write a safetensors file, whole or not at all, from its header and the tensors' names and bytes in their order.

    The next pieces are made while one is written, so that up to :data:`specpilot_kernels.w12.lanes.MOST_BYTES` of them
    are in memory, or one larger one.
    """
    with atomic_file(out) as file, Lanes() as lanes:
        file.write(len(header).to_bytes(LENGTH_BYTES, "little"))
        file.write(header)
        writer = PieceWriter(file, out, lanes)
        for name, data in pieces:
            lanes.begin(data.nbytes)
            writer.put(name, data)
        writer.end()


def is_encoding_of(encoded_file: Path, source: Path, *, is_mlp_only: bool | None = None) -> bool:
    """Whether a ``.w12`` file is whole and holds ``source``; decodes the one and compares it with the other.

    With ``is_mlp_only`` given, also whether :func:`encode_file` would encode the same tensors.
    """
    try:
        with SafetensorsFile(source) as reader, W12File(encoded_file) as encoded:
            if encoded.original_header != reader.header:
                return False
            for name, tensor in reader.tensors.items() if is_mlp_only is not None else ():
                layout = encoded.records[name].layout
                is_chosen = is_candidate(tensor, is_mlp_only=bool(is_mlp_only))
                # Few candidates are dense: those that encoding does not make smaller.
                if (layout == LAYOUT) != (is_chosen and _pays(reader, tensor, layout)):
                    return False
            places = dict.fromkeys(reader.tensors, 0)
            for name, data in encoded.contents():
                end = places[name] + data.nbytes
                if not np.array_equal(reader.read(name, places[name], end), data):
                    return False
                places[name] = end
    except WeightFileError:
        return False
    return True


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
        lines |= {name + suffix: header_line(dtype, shape, limit, limit) for suffix, dtype, shape in parts}
    return records, lines


def _of_bits(reader: SafetensorsFile, chosen: set[str], bits: int) -> list[StoredTensor]:
    return [t for t in reader.tensors.values() if t.name not in chosen and DTYPE_BITS[t.dtype] == bits]


def _pays(reader: SafetensorsFile, tensor: StoredTensor, layout: str) -> bool:
    """Whether encoding makes a candidate smaller; of one that is encoded that is known."""
    shape = tensor.shape[0], tensor.shape[1]
    if layout == LAYOUT or stored_bytes(shape, 0) >= tensor.num_bytes:
        return layout == LAYOUT
    pieces = (encode_w12(as_bfloat16(read(), shape[1])) for read in row_tiles(reader, tensor))
    return stored_bytes(shape, sum(len(piece.escapes) for piece in pieces)) < tensor.num_bytes
