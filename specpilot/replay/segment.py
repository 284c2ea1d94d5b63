"""Format of one segment file of recorded steps.

A segment is a safetensors file, so that any reader of that format can list it; nothing in it is executable. Its tensors
are the columns of :class:`specpilot.replay.steps.StepColumns`, little-endian. Its metadata are all text:

=============  =======================================================================
``format``     ``specpilot-replay``
``version``    ``1``; raised when a column changes its meaning; another one is refused
``number``     place of the segment in its recording, from 0
``model_id``   name of the target
``model_hash`` SHA-256 of the target's and drafters' weights and configurations
``requests``   JSON list of ``[request id, drafter]``; column ``request`` points into it
``sha256``     of all other metadata and of names, types, shapes and bytes of the columns
=============  =======================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from specpilot.errors import ConfigError
from specpilot.replay.steps import RecordedRequest, StepColumns

__all__ = ["FORMAT", "VERSION", "Segment", "read_segment", "segment_bytes"]

FORMAT = "specpilot-replay"
VERSION = 1

_DTYPES = {"int32": np.dtype("<i4"), "uint8": np.dtype("u1"), "float32": np.dtype("<f4")}
_NAMES = {"I32": "int32", "U8": "uint8", "F32": "float32"}
_FLOATS = ("times_us", "edge_rows", "tree_logprobs")
_BYTES = ("are_logprobs", "row_kinds")


@dataclass(frozen=True, eq=False)
class Segment:
    """Some steps of a recording, in the order they were taken."""

    number: int
    model_id: str
    model_hash: str
    requests: tuple[RecordedRequest, ...]
    columns: StepColumns


def segment_bytes(segment: Segment) -> bytes:
    """The file's content."""
    columns = {field.name: getattr(segment.columns, field.name) for field in fields(StepColumns)}
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "number": str(segment.number),
        "model_id": segment.model_id,
        "model_hash": segment.model_hash,
        "requests": json.dumps([[one.request_id, one.drafter] for one in segment.requests]),
    }
    metadata["sha256"] = _digest(metadata, columns)
    return save(columns, metadata)


def read_segment(path: Path) -> Segment:
    """Read and check a segment.

    Raises
    ------
    ConfigError
        The file cannot be read, is cut short, is no segment, is of another version, or is not what was written.
    """
    try:
        content = path.read_bytes()
        tensors = dict(deserialize(content))  # type: ignore[no-untyped-call]
        metadata = _metadata(content)
    except OSError as error:
        raise ConfigError(f"records: cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError) as error:
        raise ConfigError(f"records: {path} is damaged or cut short ({error}); record again") from None
    if metadata.get("format") != FORMAT:
        raise ConfigError(
            f"records: {path}: got format {metadata.get('format')!r}, expected {FORMAT!r}; it is no segment of "
            "recorded steps, give a file that `specpilot replay record` wrote"
        )
    if metadata.get("version") != str(VERSION):
        raise ConfigError(
            f"records: {path}: got version {metadata.get('version')!r}, expected {VERSION}; record again with this "
            "build, or read it with the build that wrote it"
        )
    columns = {name: _array(path, name, view) for name, view in tensors.items()}
    if metadata.pop("sha256", None) != _digest(metadata, columns):
        raise ConfigError(
            f"records: {path}: the checksum does not fit the content: the file was changed after it was written; "
            "record again"
        )
    return _parsed(path, metadata, columns)


def _parsed(path: Path, metadata: Mapping[str, str], columns: dict[str, NDArray[Any]]) -> Segment:
    """A file with the right checksum may still come from a writer with a defect."""
    try:
        requests = tuple(
            RecordedRequest(str(name), str(drafter)) for name, drafter in json.loads(metadata["requests"])
        )
        table = StepColumns(**columns)
        segment = Segment(
            int(metadata["number"]), metadata["model_id"], metadata["model_hash"], requests, table
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"records: {path}: metadata or columns are missing or malformed: {error}") from None
    for name, size in table.sizes().items():
        column = getattr(table, name)
        expected = "float32" if name in _FLOATS else "uint8" if name in _BYTES else "int32"
        if column.size != size or column.dtype.name != expected:
            raise ConfigError(
                f"records: {path}: column {name}: got {column.size} numbers of {column.dtype.name}, expected {size} of "
                f"{expected}"
            )
    if len(table) and not 0 <= int(table.request.min()) <= int(table.request.max()) < len(requests):
        raise ConfigError(f"records: {path}: column request points outside its {len(requests)} requests")
    return segment


def _array(path: Path, name: str, view: Mapping[str, Any]) -> NDArray[Any]:
    dtype = _NAMES.get(view["dtype"])
    if dtype is None:
        raise ConfigError(
            f"records: {path}: column {name}: got type {view['dtype']}, expected {sorted(_NAMES)}"
        )
    flat: NDArray[Any] = np.frombuffer(view["data"], _DTYPES[dtype])  # type: ignore[call-overload]
    return flat.reshape(view["shape"])


def _metadata(content: bytes) -> dict[str, str]:
    """The ``__metadata__`` of a safetensors file: 8 bytes of length, then that much JSON."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header.get("__metadata__", {}))


def _digest(metadata: Mapping[str, str], columns: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(columns):
        column = columns[name]
        digest.update(f"{name} {column.dtype.name} {list(column.shape)};".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()
