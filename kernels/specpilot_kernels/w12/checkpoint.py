"""Whole checkpoints: a folder in the Hugging Face layout, or a single file.

An encoded folder has the other files of the original, those of its folders too, and the index: it names shards
``X.safetensors`` that lie there as ``X.w12``. Shards that a stopped run left whole are kept, after a check of their
bytes; ``config.json`` comes last, so a folder that has it is complete.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specpilot_kernels.w12.atomic_file import PART_SUFFIX, atomic_file
from specpilot_kernels.w12.container import Advance, W12File
from specpilot_kernels.w12.convert import decode_file, encode_file, is_encoding_of
from specpilot_kernels.w12.folders import PLAIN_SUFFIX, other_files, tensor_names, weight_files
from specpilot_kernels.w12.format import W12_SUFFIX
from specpilot_kernels.w12.safetensors_file import WeightFileError, named_errors

__all__ = [
    "Verdict",
    "count_tensors",
    "decode_checkpoint",
    "encode_checkpoint",
    "verify_checkpoint",
]


@dataclass(frozen=True)
class Verdict:
    """What :func:`verify_checkpoint` found in a file; ``faults`` name tensor and reason, none means all is well."""

    path: Path
    num_tensors: int
    num_encoded: int
    num_bytes: int
    faults: tuple[str, ...]


def count_tensors(path: Path, suffix: str) -> int:
    """How often ``advance`` will be called; files that cannot be opened do not count."""
    total = 0
    for file in weight_files(path, suffix):
        with suppress(WeightFileError):
            total += len(tensor_names(file))
    return total


def encode_checkpoint(
    path: Path, out: Path, *, is_mlp_only: bool = False, advance: Advance = lambda: None
) -> list[Path]:
    """Encode a safetensors file, or all of a folder's.

    Parameters
    ----------
    path
        File or folder; not changed.
    out
        File or folder to make. What is there already must be an earlier run's: encodings of the shards, copies of the
        other files.
    is_mlp_only
        See :func:`specpilot_kernels.w12.convert.is_candidate`.
    advance
        Called after every tensor.

    Returns
    -------
    The files written or kept.

    Raises
    ------
    WeightFileError
        A file is damaged or cannot be written; a file of ``out`` is something else.
    """

    def convert(source: Path, target: Path) -> None:
        encode_file(source, target, is_mlp_only=is_mlp_only, advance=advance)

    def is_done(source: Path, target: Path) -> bool:
        return is_encoding_of(target, source, is_mlp_only=is_mlp_only)

    return _convert_all(path, out, PLAIN_SUFFIX, W12_SUFFIX, convert, is_done, advance)


def decode_checkpoint(path: Path, out: Path, *, advance: Advance = lambda: None) -> list[Path]:
    """The original files again, byte for byte; arguments and errors as for :func:`encode_checkpoint`."""

    def convert(source: Path, target: Path) -> None:
        decode_file(source, target, advance=advance)

    def is_done(source: Path, target: Path) -> bool:
        return is_encoding_of(source, target)

    return _convert_all(path, out, W12_SUFFIX, PLAIN_SUFFIX, convert, is_done, advance)


def verify_checkpoint(path: Path, *, advance: Advance = lambda: None) -> Iterator[Verdict]:
    """Decode every tensor of a ``.w12`` file, or of a folder's, in memory and compare it with the original's sha256."""
    for file in weight_files(path, W12_SUFFIX):
        faults: list[str] = []
        num_tensors = num_encoded = num_bytes = 0
        try:
            with W12File(file) as encoded:
                num_tensors = len(encoded.originals)
                num_encoded = sum(record.escapes is not None for record in encoded.records.values())
                refused = encoded.faults(advance)
                faults += map(str, refused.values())
                num_bytes = sum(
                    original.num_bytes for name, original in encoded.originals.items() if name not in refused
                )
        except WeightFileError as error:
            faults.append(str(error))
        yield Verdict(file, num_tensors, num_encoded, num_bytes, tuple(faults))


def _convert_all(
    path: Path,
    out: Path,
    suffix: str,
    new_suffix: str,
    convert: Callable[[Path, Path], None],
    is_done: Callable[[Path, Path], bool],
    advance: Advance,
) -> list[Path]:
    files = weight_files(path, suffix)
    is_folder = path.is_dir()
    if is_folder and out.resolve().is_relative_to(path.resolve()):
        raise WeightFileError(f"{out}: is the folder that is read, or in it; give another one")
    others = other_files(path) if is_folder else []
    for other in others:
        _check_copy(path / other, out / other)
    made = []
    for file in files:
        target = out / file.relative_to(path).with_suffix(new_suffix) if is_folder else out
        with named_errors(target.parent, "make"):
            target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            convert(file, target)
        elif is_done(file, target):
            with named_errors(target, "write"):
                target.with_name(target.name + PART_SUFFIX).unlink(missing_ok=True)
            for _ in tensor_names(file):
                advance()
        else:
            raise WeightFileError(
                f"{target}: is there and does not hold what {file} does; remove it, or give another --out"
            )
        made.append(target)
    for other in others:
        _copy(path / other, out / other)
    return made


def _check_copy(source: Path, target: Path) -> None:
    """Refuse to write over a file that is no copy of the source."""
    if not os.path.lexists(target):
        return
    with named_errors(target, "read"):
        if not target.is_file() or not filecmp.cmp(source, target, shallow=False):
            raise WeightFileError(
                f"{target}: is there and is not what {source} is; remove it, or give another --out"
            )


def _copy(path: Path, out: Path) -> None:
    with named_errors(out.parent, "make"):
        out.parent.mkdir(parents=True, exist_ok=True)
    _check_copy(path, out)
    if not out.exists():
        with named_errors(path, "copy"), path.open("rb") as source, atomic_file(out) as copy:
            shutil.copyfileobj(source, copy)
