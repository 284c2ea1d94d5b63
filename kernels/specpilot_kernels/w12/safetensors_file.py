"""Reading safetensors files strictly, bytes and all.

The safetensors library gives tensors; to write a file again byte for byte one also needs its header as it stands and
the place of every tensor. Format (https://huggingface.co/docs/safetensors, "Format"), little-endian: 8 bytes N, N bytes
of JSON, then the tensors' bytes without a gap.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DTYPE_BITS",
    "LENGTH_BYTES",
    "SafetensorsFile",
    "StoredTensor",
    "WeightFileError",
    "named_errors",
    "parse_header",
]

LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
"""What the safetensors library accepts, too."""
DTYPE_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Element types of the format and the bits of one number."""


class WeightFileError(ValueError):
    """A file of weights is damaged, foreign, or cannot be read or written; the message names file, tensor, reason."""


@dataclass(frozen=True)
class StoredTensor:
    """A line of the header: bytes ``begin`` to ``end``, counted from the first byte after it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


@contextmanager
def named_errors(path: Path, what: str) -> Iterator[None]:
    """The system's errors as :class:`WeightFileError` that say which file."""
    try:
        yield
    except OSError as error:
        raise WeightFileError(f"{path}: cannot {what}: {error.strerror or error}") from None


def parse_header(
    header: bytes, path: Path, num_data_bytes: int | None = None
) -> tuple[dict[str, str], dict[str, StoredTensor]]:
    """Metadata and tensors, these in the order of their bytes.

    Parameters
    ----------
    header
        The JSON, with its padding.
    path
        For messages.
    num_data_bytes
        What follows it; the tensors must cover exactly that. None where there is only a header.

    Raises
    ------
    WeightFileError
        No JSON of that kind, a name twice, an unknown element type, a shape that does not fit its bytes, a gap or an
        overlap.
    """

    def refuse(reason: str) -> WeightFileError:
        return WeightFileError(f"{path}: {reason}; the file is no safetensors file or damaged")

    try:
        data = json.loads(header.decode("utf-8"), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise refuse(f"header: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise refuse(f"header: got {type(data).__name__}, expected an object")
    metadata = data.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise refuse("header: __metadata__ is no object of strings")
    tensors = [_tensor(name, value, refuse) for name, value in data.items()]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    at = 0
    for tensor in tensors:
        if tensor.begin != at:
            raise refuse(f"{tensor.name}: begins at byte {tensor.begin}, expected {at}")
        at = tensor.end
    if num_data_bytes is not None and at != num_data_bytes:
        raise refuse(f"tensors take {at} bytes, {num_data_bytes} are there")
    return metadata, {tensor.name: tensor for tensor in tensors}


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _tensor(name: str, value: Any, refuse: Any) -> StoredTensor:
    def is_sizes(numbers: Any) -> bool:
        return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 2**63 for n in numbers)

    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise refuse(f"{name}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise refuse(f"{name}: got dtype {str(dtype)[:40]!r}, expected one of {', '.join(DTYPE_BITS)}")
    if not is_sizes(shape) or not is_sizes(offsets) or len(offsets) != 2:
        raise refuse(f"{name}: shape or data_offsets are no sizes")
    num_bits = math.prod(shape) * DTYPE_BITS[dtype]
    if num_bits % 8 or offsets[1] - offsets[0] != num_bits // 8:
        raise refuse(f"{name}: shape {shape} of {dtype} does not fit data_offsets {offsets}")
    return StoredTensor(name, dtype, tuple(shape), *offsets)


class SafetensorsFile:
    """An open file. Threads may share it: no read moves a position in the file.

    Attributes
    ----------
    path : Path
    header : bytes
        The JSON as it stands in the file, padding too.
    metadata : dict of str
    tensors : dict of StoredTensor
        In the order of their bytes.

    Raises
    ------
    WeightFileError
        As :func:`parse_header` does, and when the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with named_errors(self.path, "open"):
            self._file: BufferedReader = self.path.open("rb")
        try:
            with named_errors(self.path, "read"):
                size = os.fstat(self._file.fileno()).st_size
                length = int.from_bytes(self._file.read(LENGTH_BYTES), "little")
                self._data_begin = LENGTH_BYTES + length
                if size < LENGTH_BYTES or length > _MAX_HEADER_BYTES or self._data_begin > size:
                    raise WeightFileError(
                        f"{self.path}: header: {length} bytes announced in a file of {size}; the file is cut "
                        "short, or no safetensors file"
                    )
                self.header = self._file.read(length)
            self.metadata, self.tensors = parse_header(self.header, self.path, size - self._data_begin)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self, name: str, begin: int = 0, end: int | None = None) -> NDArray[np.uint8]:
        """Bytes of a tensor, all or those from ``begin`` to ``end``, new memory."""
        num_bytes = self.tensors[name].num_bytes
        data = np.empty((num_bytes if end is None else min(end, num_bytes)) - begin, np.uint8)
        self.read_into(name, data, begin)
        return data

    def read_into(self, name: str, data: NDArray[Any], begin: int = 0) -> None:
        """Fill a contiguous array with a tensor's bytes from ``begin`` on."""
        at = self._data_begin + self.tensors[name].begin + begin
        left = data.reshape(-1).view(np.uint8).data
        with named_errors(self.path, "read"):
            while left:
                count = os.preadv(self._file.fileno(), [left], at)
                if not count:
                    raise WeightFileError(f"{self.path}: {name}: the file became shorter while it was read")
                left, at = left[count:], at + count

    def pieces(self, name: str, piece_bytes: int) -> Iterator[Callable[[], NDArray[np.uint8]]]:
        """Calls that read a tensor's bytes, so many at a time, in order; none for an empty one."""
        for begin in range(0, self.tensors[name].num_bytes, piece_bytes):
            yield functools.partial(self.read, name, begin, begin + piece_bytes)
