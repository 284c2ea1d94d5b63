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
    from specpilot_kernels.w12.report import beside

    with _bar("encode", path, PLAIN_SUFFIX) as advance:
        target = out or beside(path, W12_SUFFIX)
        files = encode_checkpoint(path, target, is_mlp_only=mlp_only, advance=advance)
        behind = left_behind(path, PLAIN_SUFFIX)
    return _made(files, json, behind)


def _decode(path: _EncodedPath = None, out: _Out = None, json: Json = False) -> Outcome:
    """Write the original safetensors files again, byte for byte. Every tensor is checked first."""
    from specpilot_kernels.w12.checkpoint import decode_checkpoint
    from specpilot_kernels.w12.folders import PLAIN_SUFFIX, left_behind
    from specpilot_kernels.w12.format import W12_SUFFIX
    from specpilot_kernels.w12.report import beside

    if path is None and out is None:
        raise ConfigError("out: say where the bundled models shall be written")
    source = path or _bundled()
    with _bar("decode", source, W12_SUFFIX) as advance:
        files = decode_checkpoint(source, out or beside(source, PLAIN_SUFFIX), advance=advance)
        behind = left_behind(source, W12_SUFFIX)
    return _made(files, json, behind)


def _verify(path: _EncodedPath = None, json: Json = False) -> Outcome:
    """Decode every tensor in memory and compare it with the SHA-256 of the original's bytes."""
    from specpilot_kernels.w12.checkpoint import verify_checkpoint
    from specpilot_kernels.w12.format import W12_SUFFIX
    from specpilot_kernels.w12.report import verdict_line, verdict_row

    source = path or _bundled()
    with _bar("verify", source, W12_SUFFIX) as advance:
        rows = [verdict_row(verdict) for verdict in verify_checkpoint(source, advance=advance)]
    is_ok = not any(row["faults"] for row in rows)
    if not json:
        for row in rows:
            print(verdict_line(row))
    return Outcome({"is_ok": is_ok, "files": rows}, is_ok)


def _stat(path: _EncodedPath = None, picture: _Picture = None, json: Json = False) -> Outcome:
    """Bits per weight, escapes and windows: in all, and layer by layer."""
    from specpilot_kernels.w12.report import folder_statistics, statistics_lines, statistics_row
    from specpilot_kernels.w12.window_picture import window_picture

    if picture is not None and picture.suffix.lower() != ".svg":
        raise ConfigError(f"picture: got {picture}, expected a name *.svg: an SVG file is what is written")
    source = path or _bundled()
    with _errors():
        folders = list(folder_statistics(source, has_exponents=picture is not None))
    reports = [statistics_row(*folder) for folder in folders]
    report: dict[str, Any] = {"checkpoints": reports}
    if picture is not None:
        shown = [tensor for _, _, tensors in folders for tensor in tensors]
        try:
            picture.write_text(
                window_picture(shown, f"Exponent windows of {source.resolve().name}"), encoding="utf-8"
            )
        except OSError as error:
            raise ConfigError(f"picture: cannot write {picture}: {error.strerror}") from None
        report["picture"] = str(picture)
    if not json:
        for entry in reports:
            print(*statistics_lines(entry), sep="\n")
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


def _made(files: list[Path], is_json: bool, behind: Sequence[Path] = ()) -> Outcome:
    sizes = {str(file): file.stat().st_size for file in files}
    if not is_json:
        for file, size in sizes.items():
            print(f"{file}: {size:,} bytes")
        for other in behind:
            print(f"left behind: {other}")
    return Outcome({"files": sizes, "left_behind": [str(file) for file in behind]})


def _bundled() -> Path:
    from specpilot.models.folders import bundled_folder

    return bundled_folder()
