"""Whole checkpoints: a folder in the Hugging Face layout, or a single file.

An encoded folder has the other files of the original, the index too: it names shards ``X.safetensors`` that lie there
as ``X.w12``. Shards that a stopped run left whole are kept, after a check of their bytes; ``config.json`` comes last,
so a folder that has it is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specpilot_kernels.w12.atomic_file import PART_SUFFIX, atomic_file
from specpilot_kernels.w12.container import W12_SUFFIX, W12File
from specpilot_kernels.w12.convert import Advance, decode_file, encode_file, is_encoding_of
from specpilot_kernels.w12.safetensors_file import SafetensorsFile, WeightFileError, named_errors

__all__ = [
    "PLAIN_SUFFIX",
    "Verdict",
    "count_tensors",
    "decode_checkpoint",
    "encode_checkpoint",
    "verify_checkpoint",
    "weight_files",
]

PLAIN_SUFFIX = ".safetensors"
_LAST = "config.json"
_OTHER_WEIGHTS = frozenset({".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ckpt"})
"""Copies of the weights in other formats, which stay behind."""


@dataclass(frozen=True)
class Verdict:
    """What :func:`verify_checkpoint` found in a file; ``faults`` name tensor and reason, none means all is well."""

    path: Path
    num_tensors: int
    num_encoded: int
    num_bytes: int
    faults: tuple[str, ...]


def weight_files(path: Path, suffix: str) -> list[Path]:
    """The file; or the folder's files of that suffix; or, where it has none, those of the folders in it.

    Raises
    ------
    WeightFileError
        There is none.
    """
    if path.is_file():
        if path.suffix != suffix:
            raise WeightFileError(f"{path}: got suffix {path.suffix!r}, expected {suffix!r}")
        return [path]
    for pattern in (f"*{suffix}", f"*/*{suffix}"):
        found = sorted(file for file in path.glob(pattern) if file.is_file())
        if found:
            return found
    raise WeightFileError(f"{path}: no file *{suffix} there, nor in a folder there")


def count_tensors(path: Path, suffix: str) -> int:
    """How often ``advance`` will be called; files that cannot be opened do not count."""
    total = 0
    for file in weight_files(path, suffix):
        with suppress(WeightFileError):
            total += _count(file)
    return total


def _count(file: Path) -> int:
    if file.suffix == W12_SUFFIX:
        with W12File(file) as encoded:
            return len(encoded.originals)
    with SafetensorsFile(file) as reader:
        return len(reader.tensors)


def encode_checkpoint(
    path: Path, out: Path, *, is_mlp_only: bool = False, advance: Advance = lambda: None
) -> list[Path]:
    """Encode a safetensors file, or all of a folder's.

    Parameters
    ----------
    path
        File or folder; not changed.
    out
        File or folder to make. Shards of it that are there must be encodings of the source, of an earlier run.
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
                for name, original in encoded.originals.items():
                    try:
                        encoded.read(name)
                        num_bytes += original.num_bytes
                    except WeightFileError as error:
                        faults.append(str(error))
                    advance()
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
    if is_folder and out.resolve() == path.resolve():
        raise WeightFileError(f"{out}: is the folder that is read; give another one")
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
            for _ in range(_count(file)):
                advance()
        else:
            raise WeightFileError(
                f"{target}: is there and does not hold what {file} does; remove it, or give another --out"
            )
        made.append(target)
    for folder in sorted({file.parent for file in files}) if is_folder else ():
        _copy_others(folder, out / folder.relative_to(path))
    return made


def _copy_others(path: Path, out: Path) -> None:
    skipped = {PLAIN_SUFFIX, W12_SUFFIX, PART_SUFFIX, *_OTHER_WEIGHTS}
    others = [file for file in path.iterdir() if file.is_file() and file.suffix not in skipped]
    for file in sorted(others, key=lambda file: (file.name == _LAST, file.name)):
        with named_errors(file, "copy"), file.open("rb") as source, atomic_file(out / file.name) as copy:
            shutil.copyfileobj(source, copy)
