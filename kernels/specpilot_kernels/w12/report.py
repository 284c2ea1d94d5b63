"""What is said of checkpoints: rows for programs, lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specpilot_kernels.w12.checkpoint import Verdict
from specpilot_kernels.w12.folders import weight_files
from specpilot_kernels.w12.format import W12_SUFFIX
from specpilot_kernels.w12.statistics import TensorStatistics, group_by_layer, read_statistics

__all__ = ["beside", "folder_statistics", "statistics_lines", "statistics_row", "verdict_line", "verdict_row"]


def beside(path: Path, suffix: str) -> Path:
    """Where the conversion of a file or folder is written when nobody says: beside it, with another suffix."""
    path = path.resolve()
    return (
        path.with_suffix(suffix) if path.is_file() else path.with_name(path.name + suffix.replace(".", "-"))
    )


def verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {
        "file": str(verdict.path),
        "num_tensors": verdict.num_tensors,
        "num_encoded": verdict.num_encoded,
        "original_bytes": verdict.num_bytes,
        "faults": list(verdict.faults),
    }


def verdict_line(row: dict[str, Any]) -> str:
    says = "; ".join(row["faults"]) or (
        f"{row['num_tensors']} tensors, {row['num_encoded']} of them encoded, "
        f"{row['original_bytes']:,} bytes bit for bit the original's"
    )
    return f"{'FAULT' if row['faults'] else 'ok':5} {row['file']}: {says}"


def folder_statistics(
    path: Path, *, has_exponents: bool = False
) -> Iterator[tuple[Path, list[Path], list[TensorStatistics]]]:
    """Folder by folder: its ``.w12`` files, and all their tensors; raises as :func:`weight_files` and W12File do."""
    folders: dict[Path, list[Path]] = {}
    for file in weight_files(path, W12_SUFFIX):
        folders.setdefault(file.parent, []).append(file)
    for folder, files in folders.items():
        tensors = [tensor for file in files for tensor in read_statistics(file, has_exponents=has_exponents)]
        yield folder, files, tensors


def statistics_row(folder: Path, files: list[Path], tensors: list[TensorStatistics]) -> dict[str, Any]:
    encoded = [tensor for tensor in tensors if tensor.num_escapes is not None]
    weights = sum(tensor.num_numbers for tensor in encoded)
    return {
        "folder": str(folder),
        "num_files": len(files),
        "file_bytes": sum(file.stat().st_size for file in files),
        "original_tensor_bytes": sum(tensor.original_bytes for tensor in tensors),
        "num_tensors": len(tensors),
        "num_encoded": len(encoded),
        "num_weights": sum(tensor.num_numbers for tensor in tensors),
        "encoded_weights": weights,
        "bits_per_encoded_weight": _ratio(8 * sum(t.stored_bytes for t in encoded), weights),
        "escape_rate": _ratio(sum(t.num_escapes or 0 for t in encoded), weights),
        "layers": [vars(group) for group in group_by_layer(tensors)],
    }


def statistics_lines(row: dict[str, Any]) -> Iterator[str]:
    share = row["file_bytes"] / max(1, row["original_tensor_bytes"])
    yield (
        f"{row['folder']}: {row['num_tensors']} tensors, {row['num_encoded']} encoded, "
        f"{row['file_bytes']:,} bytes, {share:.4f} of the original's {row['original_tensor_bytes']:,}"
    )
    yield (
        f"encoded: {row['encoded_weights']:,} weights, {row['bits_per_encoded_weight']:.4f} bits each, "
        f"escapes {row['escape_rate']:.2e}"
    )
    yield f"{'':34} tensors      weights     bits  escapes  windows begin at 2^"
    for layer in row["layers"]:
        yield (
            f"{layer['name'][-34:]:34} {layer['num_tensors']:7} {layer['num_weights']:12,} "
            f"{layer['bits_per_weight']:8.4f} {layer['escape_rate']:8.1e}  "
            f"{layer['first_base'] - 127} to {layer['last_base'] - 127}"
        )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
