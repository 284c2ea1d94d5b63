"""The files of a checkpoint's folder: its weights, complete by index and name, and what lies beside them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specpilot_kernels.w12.atomic_file import PART_SUFFIX
from specpilot_kernels.w12.container import W12File
from specpilot_kernels.w12.format import W12_SUFFIX
from specpilot_kernels.w12.safetensors_file import SafetensorsFile, WeightFileError, named_errors

__all__ = ["PLAIN_SUFFIX", "left_behind", "other_files", "tensor_names", "weight_files"]

PLAIN_SUFFIX = ".safetensors"
_WEIGHTS = frozenset({PLAIN_SUFFIX, W12_SUFFIX})
_OTHER_WEIGHTS = frozenset({".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ckpt"})
"""Copies of the weights in other formats, which stay behind."""
_INDEX = "*.safetensors.index.json"
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})")
_LAST = "config.json"


def weight_files(path: Path, suffix: str) -> list[Path]:
    """The file; or the folder's files of that suffix; or, where it has none, those of the folders in it.

    Raises
    ------
    WeightFileError
        There is none, or no such path; a shard is missing that the index or the other shards' names promise; an index
        is none; a folder has weights of both kinds; a symbolic link leads nowhere.
    """
    if path.is_file():
        if path.suffix != suffix:
            raise WeightFileError(f"{path}: got suffix {path.suffix!r}, expected {suffix!r}")
        return [path]
    if not path.is_dir():
        raise WeightFileError(f"{path}: no such file or folder")
    for pattern in ("*", "*/*"):
        entries = sorted(entry for entry in path.glob(pattern) if not _is_hidden(entry.parent, path))
        for entry in entries:
            _check_link(entry)
        found = [file for file in entries if file.suffix == suffix and file.is_file()]
        if found:
            for folder in sorted({file.parent for file in found}):
                _check_folder(folder, suffix)
            return found
    raise WeightFileError(f"{path}: no file *{suffix} there, nor in a folder there")


def tensor_names(file: Path) -> set[str]:
    """Of a file of either kind."""
    if file.suffix == W12_SUFFIX:
        with W12File(file) as encoded:
            return set(encoded.originals)
    with SafetensorsFile(file) as reader:
        return set(reader.tensors)


def other_files(path: Path) -> list[Path]:
    """What is copied with the weights, relative to ``path``: files of all its folders, configurations last."""
    copied = [file for file, is_copied in _walk(path) if is_copied]
    return sorted(copied, key=lambda file: (file.name == _LAST, file))


def left_behind(path: Path, suffix: str) -> list[Path]:
    """What converting a folder neither reads nor copies, relative to it; hidden folders stand as such."""
    if not path.is_dir():
        return []
    read = {file.relative_to(path) for file in weight_files(path, suffix)}
    return sorted(file for file, is_copied in _walk(path) if not is_copied and file not in read)


def _walk(path: Path) -> Iterator[tuple[Path, bool]]:
    """Files, and folders that are not entered, with whether they are copied."""
    seen: set[str] = set()

    def refuse(error: OSError) -> None:
        raise WeightFileError(f"{error.filename}: cannot read: {error.strerror}")

    for name, folders, files in os.walk(path, followlinks=True, onerror=refuse):
        here = Path(name)
        seen.add(os.path.realpath(here))
        for folder in list(folders):
            # A version control's copy of the weights is no part of the model; a link may lead round in a circle.
            if folder.startswith(".") or os.path.realpath(here / folder) in seen:
                folders.remove(folder)
                yield (here / folder).relative_to(path), False
        for file in files:
            _check_link(here / file)
            suffix = Path(file).suffix
            if suffix != PART_SUFFIX:
                is_copied = suffix not in _WEIGHTS | _OTHER_WEIGHTS and (here / file).is_file()
                yield (here / file).relative_to(path), is_copied


def _is_hidden(folder: Path, path: Path) -> bool:
    return folder != path and folder.name.startswith(".")


def _check_link(file: Path) -> None:
    if file.is_symlink() and not file.exists():
        raise WeightFileError(f"{file}: is a symbolic link to {os.readlink(file)}, which is not there")


def _check_folder(folder: Path, suffix: str) -> None:
    [other_suffix] = _WEIGHTS - {suffix}
    files = {file.name for file in folder.iterdir() if file.is_file()}
    if both := sorted(name for name in files if Path(name).suffix == other_suffix):
        raise WeightFileError(
            f"{folder}: has {both[0]} beside files *{suffix}; name one file, or move those of one kind away"
        )

    def need(name: str, promise: str) -> None:
        if name not in files:
            raise WeightFileError(f"{folder / name}: missing, {promise}; copy it again")

    for name in sorted(files):
        shard = _SHARD.fullmatch(Path(name).stem)
        if shard is not None and Path(name).suffix == suffix:
            for number in range(1, int(shard[3]) + 1):
                need(f"{shard[1]}-{number:05}-of-{shard[3]}{suffix}", f"{name} is there")
    for index in sorted(folder.glob(_INDEX)):
        for shard_name, promised in _read_index(index).items():
            file = folder / Path(shard_name).with_suffix(suffix)
            need(file.name, f"{index.name} names {shard_name}")
            try:
                held = tensor_names(file)
            except WeightFileError:
                continue  # Told by whatever reads the file.
            if lost := sorted(promised - held):
                raise WeightFileError(f"{file}: {lost[0]}: not in it, where {index.name} puts it")


def _read_index(index: Path) -> dict[str, set[str]]:
    """Tensors of every shard."""
    try:
        with named_errors(index, "read"):
            weight_map: Any = json.loads(index.read_bytes())["weight_map"]
        pairs = list(weight_map.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, WeightFileError):
            raise
        raise WeightFileError(f"{index}: expected JSON with a weight_map of tensors and shards") from None
    shards: dict[str, set[str]] = {}
    for name, shard in pairs:
        if not isinstance(shard, str) or Path(shard).name != shard or Path(shard).suffix != PLAIN_SUFFIX:
            raise WeightFileError(
                f"{index}: {name}: got shard {shard!r}, expected a file *{PLAIN_SUFFIX} beside it"
            )
        shards.setdefault(shard, set()).add(name)
    if not shards:
        raise WeightFileError(f"{index}: weight_map names no shard")
    return shards
