"""``specpilot w12``: checkpoints to lossless 12-bit weights and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.options import Json, named_path
from specpilot.cli.outcome import Outcome
from specpilot.cli.progress import progress_bar
from specpilot.errors import CheckpointError, ConfigError

__all__ = ["add_to"]

_Path = Annotated[
    Path,
    typer.Argument(
        parser=named_path,
        metavar="PATH",
        help="A weight file, a checkpoint's folder, or a folder of such folders.",
    ),
]
_EncodedPath = Annotated[
    Path | None,
    typer.Argument(
        parser=named_path,
        metavar="PATH",
        help="A .w12 file, or a folder with such files. Default: the bundled models.",
    ),
]
_Out = Annotated[
    Path | None, typer.Option(parser=named_path, metavar="PATH", help="Where to write. Default: beside PATH.")
]
_MlpOnly = Annotated[
    bool, typer.Option("--mlp-only", help="Encode the weights of feed-forward blocks alone.")
]
_Picture = Annotated[Path | None, typer.Option(help="Write the windows of exponents as an SVG file.")]


def add_to(app: typer.Typer) -> None:
    verbs = typer.Typer(help="BF16 weights in 12 bits, no bit lost.", no_args_is_help=True)
    verbs.command("encode")(_encode)
    verbs.command("decode")(_decode)
    verbs.command("verify")(_verify)
    verbs.command("stat")(_stat)
    verbs.command("from-gguf")(_from_gguf)
    app.add_typer(verbs, name="w12")


def _encode(path: _Path, out: _Out = None, mlp_only: _MlpOnly = False, json: Json = False) -> Outcome:
    """Write .w12 files from safetensors files. Run it again after it was stopped, and it goes on."""
    from specpilot_kernels.w12.checkpoint import encode_checkpoint
    from specpilot_kernels.w12.folders import PLAIN_SUFFIX, left_behind
    from specpilot_kernels.w12.format import W12_SUFFIX

    with _bar("encode", path, PLAIN_SUFFIX) as advance:
        target = out or _beside(path, W12_SUFFIX)
        files = encode_checkpoint(path, target, is_mlp_only=mlp_only, advance=advance)
        behind = left_behind(path, PLAIN_SUFFIX)
    return _made(files, json, behind)


def _decode(path: _EncodedPath = None, out: _Out = None, json: Json = False) -> Outcome:
    """Write the original safetensors files again, byte for byte. Every tensor is checked first."""
    from specpilot_kernels.w12.checkpoint import decode_checkpoint
    from specpilot_kernels.w12.folders import PLAIN_SUFFIX, left_behind
    from specpilot_kernels.w12.format import W12_SUFFIX

    if path is None and out is None:
        raise ConfigError("out: say where the bundled models shall be written")
    source = path or _bundled()
    with _bar("decode", source, W12_SUFFIX) as advance:
        files = decode_checkpoint(source, out or _beside(source, PLAIN_SUFFIX), advance=advance)
        behind = left_behind(source, W12_SUFFIX)
    return _made(files, json, behind)


def _verify(path: _EncodedPath = None, json: Json = False) -> Outcome:
    """Decode every tensor in memory and compare it with the SHA-256 of the original's bytes."""
    from specpilot_kernels.w12.checkpoint import verify_checkpoint
    from specpilot_kernels.w12.format import W12_SUFFIX

    source = path or _bundled()
    rows: list[dict[str, Any]] = []
    with _bar("verify", source, W12_SUFFIX) as advance:
        for verdict in verify_checkpoint(source, advance=advance):
            rows.append(
                {
                    "file": str(verdict.path),
                    "num_tensors": verdict.num_tensors,
                    "num_encoded": verdict.num_encoded,
                    "original_bytes": verdict.num_bytes,
                    "faults": list(verdict.faults),
                }
            )
    is_ok = not any(row["faults"] for row in rows)
    if not json:
        for row in rows:
            says = "; ".join(row["faults"]) or (
                f"{row['num_tensors']} tensors, {row['num_encoded']} of them encoded, "
                f"{row['original_bytes']:,} bytes bit for bit the original's"
            )
            print(f"{'FAULT' if row['faults'] else 'ok':5} {row['file']}: {says}")
    return Outcome({"is_ok": is_ok, "files": rows}, is_ok)


def _stat(path: _EncodedPath = None, picture: _Picture = None, json: Json = False) -> Outcome:
    """Bits per weight, escapes and windows: in all, and layer by layer."""
    from specpilot_kernels.w12.folders import weight_files
    from specpilot_kernels.w12.format import W12_SUFFIX
    from specpilot_kernels.w12.statistics import group_by_layer, read_statistics
    from specpilot_kernels.w12.window_picture import window_picture

    if picture is not None and picture.suffix.lower() != ".svg":
        raise ConfigError(f"picture: got {picture}, expected a name *.svg: an SVG file is what is written")
    source = path or _bundled()
    reports = []
    with _errors():
        folders: dict[Path, list[Path]] = {}
        for file in weight_files(source, W12_SUFFIX):
            folders.setdefault(file.parent, []).append(file)
        tensors_of = {
            folder: [
                tensor
                for file in files
                for tensor in read_statistics(file, has_exponents=picture is not None)
            ]
            for folder, files in folders.items()
        }
    for folder, tensors in tensors_of.items():
        encoded = [tensor for tensor in tensors if tensor.num_escapes is not None]
        file_bytes = sum(file.stat().st_size for file in folders[folder])
        weights = sum(tensor.num_numbers for tensor in encoded)
        reports.append(
            {
                "folder": str(folder),
                "num_files": len(folders[folder]),
                "file_bytes": file_bytes,
                "original_tensor_bytes": sum(tensor.original_bytes for tensor in tensors),
                "num_tensors": len(tensors),
                "num_encoded": len(encoded),
                "num_weights": sum(tensor.num_numbers for tensor in tensors),
                "encoded_weights": weights,
                "bits_per_encoded_weight": _ratio(8 * sum(t.stored_bytes for t in encoded), weights),
                "escape_rate": _ratio(sum(t.num_escapes or 0 for t in encoded), weights),
                "layers": [vars(group) for group in group_by_layer(tensors)],
            }
        )
    report: dict[str, Any] = {"checkpoints": reports}
    if picture is not None:
        shown = [tensor for tensors in tensors_of.values() for tensor in tensors]
        try:
            picture.write_text(
                window_picture(shown, f"Exponent windows of {source.resolve().name}"), encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"picture: cannot write {picture}: {error.strerror}") from None
        report["picture"] = str(picture)
    if not json:
        for entry in reports:
            _show(entry)
    return Outcome(report)


def _from_gguf(
    path: Annotated[Path, typer.Argument(help="A GGUF file of architecture llama.")],
    out: Annotated[Path, typer.Option(help="Folder to write: safetensors, configuration, tokenizer.")],
    json: Json = False,
) -> Outcome:
    """Write a GGUF file as a checkpoint that encode reads: matrices dequantised to BF16, norms float32."""
    from specpilot.models.gguf.export import export_gguf
    from specpilot.models.gguf.reader import GgufFile

    with progress_bar("dequantise", len(GgufFile(path).tensors)) as advance:
        return _made(export_gguf(path, out, advance=advance), json)


def _show(report: dict[str, Any]) -> None:
    share = report["file_bytes"] / max(1, report["original_tensor_bytes"])
    print(
        f"{report['folder']}: {report['num_tensors']} tensors, {report['num_encoded']} encoded, "
        f"{report['file_bytes']:,} bytes, {share:.4f} of the original's {report['original_tensor_bytes']:,}"
    )
    print(
        f"encoded: {report['encoded_weights']:,} weights, {report['bits_per_encoded_weight']:.4f} bits each, "
        f"escapes {report['escape_rate']:.2e}"
    )
    print(f"{'':34} tensors      weights     bits  escapes  windows begin at 2^")
    for row in report["layers"]:
        print(
            f"{row['name'][-34:]:34} {row['num_tensors']:7} {row['num_weights']:12,} {row['bits_per_weight']:8.4f} "
            f"{row['escape_rate']:8.1e}  {row['first_base'] - 127} to {row['last_base'] - 127}"
        )


@contextmanager
def _errors() -> Iterator[None]:
    from specpilot_kernels.w12.safetensors_file import WeightFileError

    try:
        yield
    except WeightFileError as error:
        raise CheckpointError(str(error)) from None


@contextmanager
def _bar(title: str, path: Path, suffix: str) -> Iterator[Callable[[], None]]:
    from specpilot_kernels.w12.checkpoint import count_tensors

    with _errors(), progress_bar(title, count_tensors(path, suffix)) as advance:
        yield advance


def _beside(path: Path, suffix: str) -> Path:
    path = path.resolve()
    return (
        path.with_suffix(suffix) if path.is_file() else path.with_name(path.name + suffix.replace(".", "-"))
    )


def _made(files: list[Path], is_json: bool, behind: Sequence[Path] = ()) -> Outcome:
    sizes = {str(file): file.stat().st_size for file in files}
    if not is_json:
        for file, size in sizes.items():
            print(f"{file}: {size:,} bytes")
        for other in behind:
            print(f"left behind: {other}")
    return Outcome({"files": sizes, "left_behind": [str(file) for file in behind]})


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _bundled() -> Path:
    from specpilot.models.folders import bundled_folder

    return bundled_folder()
