"""Writing ``.w12`` files: whole or not at all, by one writer, with one tensor in memory."""

from __future__ import annotations

import errno
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from specpilot_kernels.w12 import atomic_file
from specpilot_kernels.w12.convert import decode_file, encode_file
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
    with files_of_at_most(limit), pytest.raises(WeightFileError, match="made: cannot write: File too large"):
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


def test_memory_is_bounded_by_one_tensor(tmp_path: Path) -> None:
    """40 matrices of 2 MB: encoding and decoding take less than a few of them at once."""
    numbers = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    bits = (numbers.view(np.uint32) >> 16).astype("<u2")
    source, encoded = tmp_path / "a.safetensors", tmp_path / "a.w12"
    write_plain(source, {f"w{n}": ("BF16", bits.shape, bits.tobytes()) for n in range(40)})
    tracemalloc.start()
    try:
        encode_file(source, encoded)
        decode_file(encoded, tmp_path / "b.safetensors")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bits.nbytes < peak < 5 * bits.nbytes
    assert source.read_bytes() == (tmp_path / "b.safetensors").read_bytes()


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
