"""GGUF files written and read back number by number, from the format's description alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TYPE_NUMBERS", "Blocks", "block_bytes", "encode", "pack_value", "slow_numbers", "write_gguf"]

TYPE_NUMBERS = {"F32": 0, "F16": 1, "Q4_1": 3, "Q5_0": 6, "Q8_0": 8, "BF16": 30}
_STRING = 8

Blocks = tuple[str, tuple[int, ...], bytes]
"""Element type, shape in PyTorch's order, bytes."""


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Blocks],
    *,
    version: int = 3,
    alignment: int = 32,
) -> None:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key) + pack_value(value)
    body = b""
    for name, (kind, shape, data) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += _text(name) + dims + struct.pack("<IQ", TYPE_NUMBERS[kind], len(body))
        body += data + bytes(-len(data) % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + body)


def pack_value(value: Any) -> bytes:
    """Type and value of a metadata entry: booleans, integers of 32 bits, floats of 32 bits, strings, lists of them."""
    kind, data = _plain(value)
    if kind is not None:
        return struct.pack("<I", kind) + data
    kinds, parts = zip(*(_plain(item) for item in value), strict=True)
    return struct.pack("<IIQ", 9, kinds[0], len(value)) + b"".join(parts)


def _plain(value: Any) -> tuple[int | None, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return (_STRING, _text(value)) if isinstance(value, str) else (None, b"")


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def encode(kind: str, rows: NDArray[np.float32]) -> Blocks:
    """Numbers in an element type; quantised ones to the nearest step between a block's extremes."""
    flat = rows.reshape(-1)
    if kind == "F32":
        return kind, rows.shape, struct.pack(f"<{flat.size}f", *flat)
    if kind == "F16":
        return kind, rows.shape, struct.pack(f"<{flat.size}e", *flat)
    data = b""
    for block in flat.reshape(-1, 32):
        if kind == "Q8_0":
            d = float(np.abs(block).max()) / 127
            data += struct.pack("<e32b", d, *(round(float(x) / d) for x in block))
        else:
            m = float(block.min())
            d = (float(block.max()) - m) / 15
            q = [min(15, max(0, round((float(x) - m) / d))) for x in block]
            data += struct.pack("<ee16B", d, m, *(q[i] | q[i + 16] << 4 for i in range(16)))
    return kind, rows.shape, data


def slow_numbers(blocks: Blocks) -> list[float]:
    """What the bytes say, one number after the other."""
    kind, _, data = blocks
    if kind in ("F32", "F16"):
        code, size = ("f", 4) if kind == "F32" else ("e", 2)
        return list(struct.unpack(f"<{len(data) // size}{code}", data))
    numbers: list[float] = []
    if kind == "BF16":
        for at in range(0, len(data), 2):
            numbers += struct.unpack("<f", b"\0\0" + data[at : at + 2])
    elif kind == "Q8_0":
        for at in range(0, len(data), 34):
            d, *q = struct.unpack("<e32b", data[at : at + 34])
            numbers += [d * x for x in q]
    elif kind == "Q4_1":
        for at in range(0, len(data), 20):
            d, m, *pairs = struct.unpack("<ee16B", data[at : at + 20])
            numbers += [d * (x % 16) + m for x in pairs] + [d * (x // 16) + m for x in pairs]
    return numbers


def block_bytes(kind: str, num_blocks: int, generator: np.random.Generator) -> bytes:
    """Random blocks of a quantised type, scales of any size and sign."""
    data = b""
    for _ in range(num_blocks):
        scales: Sequence[float] = (generator.standard_normal(2) * 10.0 ** generator.integers(-4, 3)).tolist()
        numbers = generator.integers(0, 256, 32).tolist()
        if kind == "Q8_0":
            data += struct.pack("<e32B", scales[0], *numbers)
        else:
            data += struct.pack("<ee16B", *scales, *numbers[:16])
    return data
