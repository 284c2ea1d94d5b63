"""Reading GGUF files: header, metadata, and where each tensor's bytes lie.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: magic, version, number of tensors,
number of metadata entries; the entries; a name, a shape, a type and an offset for each tensor; padding; tensor bytes.
Everything is checked before it is believed: the file is somebody else's.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot.errors import CheckpointError
from specpilot.models.gguf.quants import ELEMENT_TYPES, ElementType

__all__ = ["MAGIC", "VERSIONS", "GgufFile", "TensorInfo"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT = "general.alignment", 32
_MAX_DIMS = 4


@dataclass(frozen=True)
class TensorInfo:
    """``shape`` is in PyTorch's order, the last axis contiguous; ``offset`` counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    element_type: ElementType
    offset: int
    num_bytes: int


class GgufFile:
    """A GGUF file, mapped into memory.

    Attributes
    ----------
    path : Path
    metadata : dict
        Numbers, strings, booleans and lists of them by key.
    tensors : dict
        :class:`TensorInfo` by name.

    Raises
    ------
    CheckpointError
        Not a GGUF file, of another version, cut short or damaged; the message says where.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}); expected a GGUF file") from None
        self._at = 0
        if self._bytes[:4] != MAGIC:
            raise CheckpointError(f"{path}: begins with {self._bytes[:4]!r}, expected {MAGIC!r}, a GGUF file")
        self._at = 4
        version = self._number("I", "version")
        if version not in VERSIONS:
            hint = ", which looks like a big-endian file" if version & 0xFFFF == 0 else ""
            self._refuse("version", version, f"one of {VERSIONS}{hint}")
        num_tensors, num_entries = self._number("Q", "tensor count"), self._number("Q", "metadata count")
        self.metadata: dict[str, Any] = {}
        for index in range(num_entries):
            key = self._name(f"key of metadata entry {index}")
            if key in self.metadata:
                self._refuse(key, "a second entry", "every key once")
            self.metadata[key] = self._value(self._number("I", key), key)
        alignment = self.metadata.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            self._refuse(_ALIGNMENT_KEY, alignment, "an integer >= 1")
        infos = [self._tensor_info(index) for index in range(num_tensors)]
        start = -(-self._at // alignment) * alignment
        self.tensors: dict[str, TensorInfo] = {}
        for name, shape, element_type, offset in infos:
            num_bytes = element_type.num_bytes(shape)
            if start + offset + num_bytes > len(self._bytes) or offset % alignment or name in self.tensors:
                self._refuse(
                    f"tensor {name}",
                    f"bytes {start + offset} to {start + offset + num_bytes}",
                    f"a place of its own, aligned to {alignment}, within the file's {len(self._bytes)} bytes; "
                    "the file is cut short or damaged, copy it again",
                )
            self.tensors[name] = TensorInfo(name, shape, element_type, start + offset, num_bytes)

    def raw(self, info: TensorInfo) -> NDArray[np.uint8]:
        """The tensor's bytes, read-only, not copied."""
        return np.frombuffer(self._bytes, np.uint8, info.num_bytes, info.offset)

    def _refuse(self, what: str, got: object, expected: str) -> None:
        raise CheckpointError(f"{self.path}: {what}: got {got!r}, expected {expected}")

    def _take(self, size: int, what: str) -> bytes:
        if size > len(self._bytes) - self._at:
            left = len(self._bytes) - self._at
            raise CheckpointError(
                f"{self.path}: {what}: got {left} bytes until the file ends, expected {size} at byte {self._at}; "
                "the file is cut short or damaged, copy it again"
            )
        self._at += size
        return self._bytes[self._at - size : self._at]

    def _number(self, code: str, what: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}"), what))[0]

    def _string(self, what: str) -> str:
        data = self._take(self._number("Q", what), what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(f"{self.path}: {what}: got {data[:40]!r}, expected UTF-8 text") from None

    def _name(self, what: str) -> str:
        name = self._string(what)
        if not name:
            self._refuse(what, name, "a name")
        return name

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string(key)
        if kind in _SCALARS:
            return self._number(_SCALARS[kind], key)
        if kind != _ARRAY:
            self._refuse(key, f"value type {kind}", "0 to 12, a type of the GGUF specification")
        inner, count = self._number("I", key), self._number("Q", key)
        if inner == _STRING:
            return [self._string(key) for _ in range(count)]
        if inner not in _SCALARS:
            self._refuse(key, f"a list of value type {inner}", "a list of numbers, booleans or strings")
        size = struct.calcsize(f"<{_SCALARS[inner]}")
        return np.frombuffer(self._take(count * size, key), f"<{_SCALARS[inner]}").tolist()

    def _tensor_info(self, index: int) -> tuple[str, tuple[int, ...], ElementType, int]:
        name = self._name(f"name of tensor {index}")
        what = f"tensor {name}"
        num_dims = self._number("I", what)
        if not 1 <= num_dims <= _MAX_DIMS:
            self._refuse(what, f"{num_dims} dimensions", f"1 to {_MAX_DIMS}")
        dims = [self._number("Q", what) for _ in range(num_dims)]
        number = self._number("I", what)
        element_type = ELEMENT_TYPES.get(number)
        if element_type is None:
            self._refuse(what, f"element type {number}", f"one of {', '.join(map(str, ELEMENT_TYPES))}")
            raise AssertionError
        if dims[0] % element_type.block_size or 0 in dims:
            block = element_type.block_size
            self._refuse(what, f"rows of {dims[0]}", f"a multiple of {block} for {element_type.name}")
        return name, tuple(reversed(dims)), element_type, self._number("Q", what)
