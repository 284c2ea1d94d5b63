"""GGUF files: numbers of every readable type, and damaged or foreign files refused by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from specpilot.errors import CheckpointError
from specpilot.models.gguf.quants import ELEMENT_TYPES, dequantise
from specpilot.models.gguf.reader import GgufFile
from tests.oracles.gguf_writer import TYPE_NUMBERS, block_bytes, slow_numbers, write_gguf

METADATA = {
    "a.word": "größer",
    "a.number": 7,
    "a.float": 0.5,
    "a.flag": True,
    "a.list": ["x", ""],
    "b": [1, 2, 3],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors = {
        "one": ("F32", (2, 3), struct.pack("<6f", *range(6))),
        "two": ("Q8_0", (3, 64), bytes(range(204))),
    }
    write_gguf(tmp_path / "model.gguf", METADATA, tensors)
    return tmp_path / "model.gguf"


def test_metadata_and_places_come_back(path: Path) -> None:
    file = GgufFile(path)
    assert file.metadata == METADATA
    assert list(file.tensors) == ["one", "two"]
    one, two = file.tensors.values()
    assert one.shape == (2, 3) and one.element_type.name == "F32"
    assert file.raw(one).view("<f4").tolist() == list(range(6))
    assert two.shape == (3, 64) and file.raw(two).tobytes() == bytes(range(204))


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F16", "BF16", "F32"])
def test_numbers_are_those_of_the_format(kind: str) -> None:
    generator = np.random.default_rng(1)
    data = {
        "F16": np.arange(65536).astype("<u2").tobytes(),
        "BF16": np.arange(65536).astype("<u2").tobytes(),
        "F32": generator.integers(0, 256, 4096).astype(np.uint8).tobytes(),
    }.get(kind) or block_bytes(kind, 200, generator)
    got = dequantise(np.frombuffer(data, np.uint8), ELEMENT_TYPES[TYPE_NUMBERS[kind]])
    expected = np.array(slow_numbers((kind, (), data)))
    is_number = np.isfinite(expected)
    assert got.dtype == np.float32 and (np.isfinite(got) == is_number).all()
    # Two roundings to float32 at most, of the product and of the sum.
    np.testing.assert_allclose(
        got[is_number], expected[is_number], rtol=2**-22, atol=2**-20 if kind == "Q4_1" else 0
    )
    if kind != "Q4_1":
        np.testing.assert_array_equal(got[is_number], expected[is_number].astype(np.float32))


def test_a_hand_made_block() -> None:
    block = struct.pack("<ee16B", 0.5, -2.0, 0x10, 0xF2, *[0] * 14)
    got = dequantise(np.frombuffer(block, np.uint8), ELEMENT_TYPES[3]).tolist()
    assert got[:3] == [-2.0, -1.0, -2.0] and got[16:19] == [-1.5, 5.5, -2.0] and len(got) == 32


def replaced(at: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + data + whole[at + len(data) :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (replaced(0, b"GGJT"), r"begins with b'GGJT', expected b'GGUF'"),
        (replaced(4, struct.pack("<I", 1)), r"version: got 1, expected one of \(2, 3\)"),
        (replaced(4, struct.pack(">I", 3)), "big-endian"),
        (replaced(8, struct.pack("<Q", 3)), "name of tensor 2: got ''"),
        (replaced(16, struct.pack("<Q", 2**60)), "two: got|cut short"),
        (replaced(24, struct.pack("<Q", 2**63)), "key of metadata entry 0: got .* bytes until the file ends"),
        (replaced(24, struct.pack("<Q", 0)), "key of metadata entry 0: got ''"),
        (replaced(32, b"\xff"), "expected UTF-8"),
        (replaced(38, struct.pack("<I", 99)), "a.word: got 'value type 99'"),
        (lambda whole: whole.replace(b"b\x09\0\0\0\4", b"b\x09\0\0\0\x09"), "list of value type 9"),
        (lambda whole: whole.replace(b"a.flag", b"a.list"), "a.list: got 'a second entry'"),
        (lambda whole: whole.replace(b"one\2", b"one\7"), "tensor one: got '7 dimensions'"),
        (lambda whole: whole.replace(b"two\2", b"one\2"), "tensor one: got .* a place of its own"),
        (lambda whole: whole[:-21], r"tensor two: .* cut short"),
        (lambda whole: whole[:100], "cut short"),
        (lambda whole: b"", "cannot be read"),
    ],
)
def test_damaged_and_foreign_files_are_refused(
    path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=message) as error:
        GgufFile(path)
    assert str(path) in str(error.value)


def test_every_cut_and_every_flipped_byte_is_refused_or_read(path: Path) -> None:
    """Whatever the bytes are, nothing but a named refusal comes out."""
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for cut in range(len(whole) - 20):  # what fills the last tensor up
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError):
            GgufFile(path)
    for at in range(4, len(whole) - 240):
        path.write_bytes(replaced(at, bytes([int(generator.integers(256))]))(whole))
        try:
            file = GgufFile(path)
            assert all(len(file.raw(info)) == info.num_bytes for info in file.tensors.values())
        except CheckpointError:
            pass


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        GgufFile(tmp_path / "none.gguf")


def test_rows_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "odd.gguf", {}, {"odd": ("Q8_0", (2, 48), bytes(102))})
    with pytest.raises(CheckpointError, match=r"tensor odd: got 'rows of 48', expected a multiple of 32"):
        GgufFile(tmp_path / "odd.gguf")
