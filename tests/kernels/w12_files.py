"""Small safetensors files of many kinds of tensors, and a way to tell what differs."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

__all__ = ["mixed_tensors", "write_plain"]

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


def mixed_tensors(seed: int = 0) -> Tensors:
    """Matrices of odd shapes beside everything that has to stay as it is."""
    rng = np.random.default_rng(seed)

    def bf16(*shape: int) -> tuple[str, tuple[int, ...], bytes]:
        bits = (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype("<u2")
        return "BF16", shape, bits.tobytes()

    def raw(dtype: str, num_bytes: int, *shape: int) -> tuple[str, tuple[int, ...], bytes]:
        return dtype, shape, rng.bytes(num_bytes)

    return {
        "model.embed.weight": bf16(130, 120),
        "model.layers.0.mlp.up.weight": bf16(256, 64),
        "model.layers.0.attn.q.weight": bf16(129, 185),
        "model.layers.0.attn.b.weight": bf16(127, 64),
        "model.layers.0.conv.weight": bf16(128, 1, 4),
        "model.norm.weight": bf16(131),
        "noise.weight": ("BF16", (128, 64), rng.bytes(128 * 64 * 2)),
        "half": raw("F16", 26, 13),
        "single": raw("F32", 24, 2, 3),
        "double": raw("F64", 8),
        "integers": raw("I64", 24, 3),
        "bytes": raw("U8", 5, 5),
        "sixbit": raw("F6_E2M3", 3, 4),
        "none": ("BF16", (128, 0), b""),
    }


def write_plain(path: Path, tensors: Tensors, *, order: list[str] | None = None, note: str = "ü") -> bytes:
    """Write a safetensors file whose header is in no usual order, and with much padding; returns its bytes."""
    at, lines, data = 0, {}, []
    for name in order or list(tensors):
        dtype, shape, content = tensors[name]
        lines[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
        data.append(content)
    shuffled = dict(sorted(lines.items(), key=lambda item: item[0][::-1]))
    header = json.dumps({**shuffled, "__metadata__": {"format": "pt", "note": note}}, ensure_ascii=False)
    text = header.encode() + b" " * 29
    content = struct.pack("<Q", len(text)) + text + b"".join(data)
    path.write_bytes(content)
    return content
