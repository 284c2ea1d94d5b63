"""Writing ``.w12`` files: whole or not at all, by one writer, a few pieces in memory."""

from __future__ import annotations

import _thread
import errno
import resource
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from specpilot_kernels.w12 import (
    W12Weight,
    atomic_file,
    container,
    encode_w12,
    lanes,
    piece_writer,
    tensor_encoder,
)
from specpilot_kernels.w12 import format as w12_format
from specpilot_kernels.w12.convert import decode_file, encode_file, is_encoding_of
from specpilot_kernels.w12.safetensors_file import WeightFileError
from tests.kernels.w12_files import Tensors, mixed_tensors, write_plain


def test_a_damaged_original_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    content = write_plain(tmp_path / "a.safetensors", mixed_tensors())
    (tmp_path / "a.safetensors").write_bytes(content[:-1])
    with pytest.raises(WeightFileError, match=r"bytes, .* are there"):
        encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_name_that_an_encoded_tensor_needs_is_refused(tmp_path: Path) -> None:
    tensors: Tensors = {
        "w": ("BF16", (128, 64), bytes(128 * 64 * 2)),
        "w.w12_bases": ("U8", (1,), b"\0"),
    }
    write_plain(tmp_path / "a.safetensors", tensors)
    with pytest.raises(WeightFileError, match=r"w\.w12_bases"):
        encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Writing further fails with an error, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("convert", [encode_file, decode_file])
def test_a_full_disk_leaves_nothing(
    convert: Callable[[Path, Path], None], share: float, plain: Path, encoded: Path, tmp_path: Path
) -> None:
    source, limit = plain if convert is encode_file else encoded, int(share * encoded.stat().st_size)
    out = tmp_path / "out"
    out.mkdir()
    with (
        files_of_at_most(limit),
        pytest.raises(WeightFileError, match=r"made: .*cannot write: File too"),
    ):
        convert(source, out / "made")
    assert list(out.iterdir()) == []


def test_a_failing_sync_leaves_nothing(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(WeightFileError, match=r"made\.w12: cannot write: Input/output error"):
        encode_file(plain, tmp_path / "made.w12")
    assert [file.name for file in tmp_path.iterdir()] == ["plain.safetensors"]


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    with atomic_file.atomic_file(tmp_path / "a") as first:
        first.write(b"first")
        with (
            pytest.raises(WeightFileError, match="another process is writing it"),
            atomic_file.atomic_file(tmp_path / "a"),
        ):
            pass
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces of one row tile of 1,024 columns, of which few are under way; returns how many bytes may be."""
    for module in (w12_format, container, tensor_encoder):
        monkeypatch.setattr(module, "PIECE_BYTES", 2**18)
    monkeypatch.setattr(lanes, "MOST_BYTES", 2**20)
    monkeypatch.setattr(piece_writer, "SYNC_BYTES", 2**20)
    return 2**20


def write_matrices(path: Path, *shapes: tuple[int, int]) -> int:
    """Normal numbers, w0, w1 ...; returns their bytes."""
    rng = np.random.default_rng(0)
    tensors: Tensors = {}
    for n, shape in enumerate(shapes):
        numbers = rng.standard_normal(shape).astype(np.float32)
        tensors[f"w{n}"] = "BF16", shape, (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()
    write_plain(path, tensors)
    return sum(len(content) for _, _, content in tensors.values())


def test_memory_is_bounded_by_pieces(small_pieces: int, tmp_path: Path) -> None:
    """A matrix of 8 MB and smaller ones: what is under way, read ahead and being made is far less."""
    source, encoded = tmp_path / "a.safetensors", tmp_path / "a.w12"
    num_bytes = write_matrices(source, (4096, 1024), *[(1024, 1024)] * 4)
    tracemalloc.start()
    try:
        encode_file(source, encoded)
        decode_file(encoded, tmp_path / "b.safetensors")
        assert is_encoding_of(encoded, source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2**18 < peak < 3 * small_pieces < num_bytes / 5
    assert source.read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize(
    "shape", [(4096, 64), (1000, 1024), (128, 1024), (129, 1024), (257, 3000), (300, 96)]
)
def test_pieces_change_nothing(
    shape: tuple[int, int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = tmp_path / "a.safetensors"
    write_matrices(source, shape, (130, 200))
    encode_file(source, tmp_path / "whole.w12")
    request.getfixturevalue("small_pieces")
    encode_file(source, tmp_path / "pieces.w12")
    assert (tmp_path / "pieces.w12").read_bytes() == (tmp_path / "whole.w12").read_bytes()
    decode_file(tmp_path / "pieces.w12", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == source.read_bytes()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("convert", [encode_file, decode_file])
def test_errors_beside_name_the_tensor(convert: Callable[[Path, Path], None], tmp_path: Path) -> None:
    write_matrices(tmp_path / "a.safetensors", *[(512, 1024)] * 6)
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    source, out = tmp_path / ("a.safetensors" if convert is encode_file else "a.w12"), tmp_path / "out"
    out.mkdir()
    with (
        files_of_at_most(2**21),
        pytest.raises(WeightFileError, match=r"made: w[12]: cannot write: File too"),
    ):
        convert(source, out / "made")
    assert list(out.iterdir()) == [] and not lanes_at_work()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("convert", [encode_file, decode_file])
def test_an_early_sync_that_fails_is_told(
    convert: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    write_matrices(tmp_path / "a.safetensors", *[(512, 1024)] * 6)
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    monkeypatch.setattr("os.fdatasync", fail)
    source, out = tmp_path / ("a.safetensors" if convert is encode_file else "a.w12"), tmp_path / "out"
    out.mkdir()
    with pytest.raises(WeightFileError, match=r"made: w\d: cannot write: Input/output error"):
        convert(source, out / "made")
    assert list(out.iterdir()) == []


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python's own handler: a shell starts what runs in its background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("small_pieces", "interrupts")
@pytest.mark.parametrize("convert", [encode_file, decode_file])
def test_an_interrupt_leaves_nothing(
    convert: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while several pieces are under way: sent from the thread that writes."""
    write_matrices(tmp_path / "a.safetensors", *[(512, 1024)] * 6)
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    monkeypatch.setattr("os.fdatasync", lambda descriptor: _thread.interrupt_main())
    source, out = tmp_path / ("a.safetensors" if convert is encode_file else "a.w12"), tmp_path / "out"
    out.mkdir()
    with pytest.raises(KeyboardInterrupt):
        convert(source, out / "made")
    assert list(out.iterdir()) == [] and not lanes_at_work()


def lanes_at_work() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("w12-")]


def test_a_file_that_shrinks_while_it_is_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.safetensors"
    write_matrices(source, (512, 1024), (512, 1024))

    def shrink(weight: torch.Tensor) -> W12Weight:
        with source.open("r+b") as file:
            file.truncate(2**20 + 1000)
        return encode_w12(weight)

    monkeypatch.setattr("specpilot_kernels.w12.tensor_encoder.encode_w12", shrink)
    with pytest.raises(WeightFileError, match="w1: the file became shorter while it was read"):
        encode_file(source, tmp_path / "a.w12")
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_what_lies_at_the_part_files_name_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    part = tmp_path / f"a{atomic_file.PART_SUFFIX}"
    part.symlink_to("precious")
    with (
        pytest.raises(WeightFileError, match="is a link or no file"),
        atomic_file.atomic_file(tmp_path / "a"),
    ):
        pass
    part.unlink()
    part.hardlink_to(tmp_path / "precious")
    with atomic_file.atomic_file(tmp_path / "a") as file:
        file.write(b"new")
    assert (tmp_path / "precious").read_text() == "precious" and (tmp_path / "a").read_bytes() == b"new"
