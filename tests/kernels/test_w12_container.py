"""``.w12`` files: the original comes back byte for byte, and nothing that was changed is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from specpilot_kernels.w12 import decode_w12
from specpilot_kernels.w12.container import W12File
from specpilot_kernels.w12.convert import decode_file, encode_file, is_encoding_of
from specpilot_kernels.w12.format import DENSE, LAYOUT, NO_DIGEST, header_digest
from specpilot_kernels.w12.safetensors_file import SafetensorsFile, WeightFileError
from tests.kernels.w12_files import mixed_tensors, write_plain

ENCODED = {"model.embed.weight", "model.layers.0.mlp.up.weight", "model.layers.0.attn.q.weight"}


def read_all(path: Path) -> None:
    with W12File(path) as file:
        for name in file.originals:
            file.read(name)


def test_the_original_comes_back_byte_for_byte(plain: Path, encoded: Path, tmp_path: Path) -> None:
    decode_file(encoded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == plain.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "again.safetensors", "plain.safetensors", "plain.w12",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_tensors_comes_back(seed: int, tmp_path: Path) -> None:
    tensors = mixed_tensors(seed)
    order = np.random.default_rng(seed).permutation(list(tensors)).tolist()
    content = write_plain(tmp_path / "a.safetensors", tensors, order=order, note='"\\u2028 \n sha256')
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    decode_file(tmp_path / "a.w12", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == content


def test_encoding_is_the_same_every_time(plain: Path, encoded: Path, tmp_path: Path) -> None:
    encode_file(plain, tmp_path / "second.w12")
    assert (tmp_path / "second.w12").read_bytes() == encoded.read_bytes()


def test_what_is_encoded_and_what_is_not(encoded: Path) -> None:
    with W12File(encoded) as file:
        assert {name for name, record in file.records.items() if record.layout == LAYOUT} == ENCODED
        # 65,536 random values are mostly escapes: 12 bits and 32 a piece would be more than 16.
        assert file.records["noise.weight"].layout == DENSE
        assert file.records["model.layers.0.attn.b.weight"].layout == DENSE


def test_the_mlp_alone(plain: Path, tmp_path: Path) -> None:
    encode_file(plain, tmp_path / "mlp.w12", is_mlp_only=True)
    with W12File(tmp_path / "mlp.w12") as file:
        layouts = {name for name, record in file.records.items() if record.layout == LAYOUT}
    assert layouts == {"model.layers.0.mlp.up.weight"}
    decode_file(tmp_path / "mlp.w12", tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == plain.read_bytes()


def test_tensors_are_the_safetensors_librarys(tmp_path: Path) -> None:
    tensors = {name: value for name, value in mixed_tensors().items() if not name.startswith("sixbit")}
    write_plain(tmp_path / "a.safetensors", tensors)
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    with safe_open(tmp_path / "a.safetensors", "pt") as theirs, W12File(tmp_path / "a.w12") as ours:
        assert set(ours.keys()) == set(theirs.keys())
        for name in ours.originals:
            got, expected = ours.get_tensor(name), theirs.get_tensor(name)
            assert got.dtype == expected.dtype and got.shape == expected.shape
            assert torch.equal(got.reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))


def test_any_safetensors_reader_lists_it(tmp_path: Path) -> None:
    tensors = {name: value for name, value in mixed_tensors().items() if value[0] != "F6_E2M3"}
    write_plain(tmp_path / "a.safetensors", tensors)
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    with safe_open(tmp_path / "a.w12", "pt") as reader:
        names = set(reader.keys())
        assert reader.metadata()["version"] == "1"
        records = reader.get_tensor("model.layers.0.mlp.up.weight.w12_records")
    assert names >= set(tensors) - ENCODED
    with W12File(tmp_path / "a.w12") as file:
        weight = file.weight("model.layers.0.mlp.up.weight")
    np.testing.assert_array_equal(records.numpy().view(np.uint32), weight.records)


def test_every_bf16_value_survives_the_file(tmp_path: Path) -> None:
    """Each of the 65,536 as an escape or in the window of a row of ones."""
    values = np.arange(65536, dtype="<u2").reshape(256, 256)
    bits = np.concatenate((values, np.full((256, 2300), 0x3F80, "<u2")), 1)
    content = write_plain(tmp_path / "a.safetensors", {"w": ("BF16", bits.shape, bits.tobytes())})
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    with W12File(tmp_path / "a.w12") as file:
        assert file.records["w"].layout == LAYOUT
        np.testing.assert_array_equal(file.read("w").view("<u2").reshape(bits.shape), bits)
    decode_file(tmp_path / "a.w12", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == content


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_rows=st.sampled_from((1, 63, 64, 65, 127, 128, 129, 143, 144, 145, 256)),
    num_columns=st.sampled_from((1, 63, 64, 65, 127, 128, 129)),
    seed=st.integers(0, 2**32 - 1),
    is_sparse=st.booleans(),
)
def test_any_shape(num_rows: int, num_columns: int, seed: int, is_sparse: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((num_rows, num_columns)).astype(np.float32)
    if is_sparse:
        numbers[rng.random(numbers.shape) < 0.01] = 0.0
        numbers[rng.random(num_rows) < 0.2] = -0.0
    bits = (numbers.view(np.uint32) >> 16).astype("<u2")
    content = write_plain(tmp_path / "a.safetensors", {"w": ("BF16", bits.shape, bits.tobytes())})
    encode_file(tmp_path / "a.safetensors", tmp_path / "a.w12")
    with W12File(tmp_path / "a.w12") as file:
        if file.records["w"].layout == LAYOUT:
            weight = file.weight("w")
            got = decode_w12(weight).view(torch.int16).numpy().view(np.uint16)
            np.testing.assert_array_equal(got, bits)
    decode_file(tmp_path / "a.w12", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == content


def test_every_byte_counts(encoded: Path) -> None:
    """A bit is flipped in every 131st byte, and in every byte of the beginning."""
    content = encoded.read_bytes()
    places = [*range(64), *range(64, len(content), 131), len(content) - 1]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        encoded.write_bytes(damaged)
        with pytest.raises(WeightFileError, match=r"plain\.w12"):
            read_all(encoded)


def test_a_flipped_bit_is_refused_with_the_tensors_name(encoded: Path) -> None:
    with SafetensorsFile(encoded) as file:
        places = {
            name: len(file.header) + 8 + tensor.begin
            for name, tensor in file.tensors.items()
            if tensor.num_bytes
        }
    content = encoded.read_bytes()
    for name, place in places.items():
        damaged = bytearray(content)
        damaged[place] ^= 4
        encoded.write_bytes(damaged)
        with W12File(encoded) as opened, pytest.raises(WeightFileError, match=name.partition(".w12_")[0]):
            opened.read(name.partition(".w12_")[0])


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 500, -1, -4096])
def test_a_file_that_is_cut_short_is_refused(keep: int, encoded: Path) -> None:
    encoded.write_bytes(encoded.read_bytes()[:keep])
    with pytest.raises(WeightFileError, match=r"plain\.w12"):
        read_all(encoded)


def test_a_file_that_is_too_long_is_refused(encoded: Path) -> None:
    encoded.write_bytes(encoded.read_bytes() + b"\0")
    with pytest.raises(WeightFileError, match="are there"):
        read_all(encoded)


def test_foreign_files_are_refused(plain: Path, encoded: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightFileError, match="got format 'pt', expected 'specpilot-w12'"):
        W12File(plain)
    with pytest.raises(WeightFileError, match="is a W12 file already"):
        encode_file(encoded, tmp_path / "twice.w12")
    for number, content in enumerate((b"", b"GGUF" + bytes(60), b"PK\x03\x04" * 40, b"{}" * 20)):
        foreign = tmp_path / f"{number}.w12"
        foreign.write_bytes(content)
        for reader in (W12File, SafetensorsFile):
            with pytest.raises(WeightFileError, match=foreign.name):
                reader(foreign)
    with pytest.raises(WeightFileError, match=r"nowhere\.w12: cannot open: No such file"):
        W12File(tmp_path / "nowhere.w12")


def rewrite(path: Path, change: Callable[[dict[str, object], dict[str, dict[str, object]]], None]) -> None:
    """Change metadata or tensor entries as a writer with a defect would: with a digest that fits."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header["__metadata__"]
    entries = json.loads(metadata["tensors"])
    change(metadata, entries)
    metadata["tensors"] = json.dumps(entries)
    metadata["sha256"] = NO_DIGEST
    raw = json.dumps(
        {"__metadata__": metadata, **{k: v for k, v in header.items() if k != "__metadata__"}}
    ).encode()
    raw = raw.replace(NO_DIGEST.encode(), header_digest(raw, NO_DIGEST).encode(), 1)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + content[8 + length :])


NAME = "model.layers.0.mlp.up.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, t: None, None),
        (lambda m, t: m.update(version="2"), r"got version '2', expected '1'"),
        (lambda m, t: m.update(format="x"), r"got format 'x'"),
        (lambda m, t: m.pop("original_header"), "original_header"),
        (lambda m, t: m.update(original_header="{}"), r"bytes: original_header and tensors disagree"),
        (lambda m, t: m.update(original_header="[]"), "expected an object"),
        (lambda m, t: m.update(original_header="\ud800"), "surrogates not allowed"),
        (lambda m, t: t.pop(NAME), rf"{NAME}: original_header and tensors disagree"),
        (lambda m, t: t[NAME].update(shape=[128, 128]), rf"{NAME}: got BF16 \(128, 128\), expected BF16 \(256, 64\)"),
        (lambda m, t: t[NAME].update(shape=[256]), "expected BF16"),
        (lambda m, t: t[NAME].update(escapes=10**15), rf"{NAME}: stored \.w12_escapes"),
        (lambda m, t: t[NAME].update(escapes=-1), "without escapes"),
        (lambda m, t: t[NAME].update(layout="L4"), "got 'L4'"),
        (lambda m, t: t[NAME].update(layout="dense"), "got 'dense'"),
        (lambda m, t: t[NAME].update(sha256="0" * 64), rf"{NAME}: its bytes are not those of the original"),
        (lambda m, t: t[NAME].update(stored_sha256="0" * 64), rf"{NAME}: the stored bytes are not"),
        (lambda m, t: t[NAME].update(more=1), "more"),
        (lambda m, t: t["half"].update(sha256=5), "wrong type"),
    ],
)  # fmt: skip
def test_a_writer_with_a_defect_is_not_believed(
    change: Callable[[dict[str, object], dict[str, dict[str, object]]], None],
    message: str | None,
    encoded: Path,
) -> None:
    rewrite(encoded, change)
    if message is None:
        read_all(encoded)
        return
    with pytest.raises(WeightFileError, match=message):
        read_all(encoded)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), length=st.one_of(st.none(), st.integers(0, 2**64 - 1)))
def test_bytes_of_any_kind_are_refused(content: bytes, length: int | None, tmp_path: Path) -> None:
    prefix = (len(content) if length is None else length).to_bytes(8, "little")
    (tmp_path / "f.w12").write_bytes(prefix + content)
    with pytest.raises(WeightFileError, match=r"f\.w12"):
        read_all(tmp_path / "f.w12")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("dtype", "shape", "data_offsets", "__metadata__", "w")), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=JSON, size=st.integers(0, 40))
def test_headers_of_any_kind_are_refused_or_read(header: object, size: int, tmp_path: Path) -> None:
    raw = json.dumps(header).encode()
    (tmp_path / "f.w12").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(size))
    with pytest.raises(WeightFileError, match=r"f\.w12"):
        read_all(tmp_path / "f.w12")
    try:
        with SafetensorsFile(tmp_path / "f.w12") as file:
            assert sum(tensor.num_bytes for tensor in file.tensors.values()) == size
    except WeightFileError:
        pass


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_files_are_refused(data: st.DataObject, tmp_path: Path) -> None:
    """Cut, overwritten, doubled or moved pieces of a real file."""
    path = tmp_path / "plain.w12"
    if not path.exists():
        write_plain(tmp_path / "plain.safetensors", mixed_tensors())
        encode_file(tmp_path / "plain.safetensors", path)
        path.rename(tmp_path / "kept")
    content = (tmp_path / "kept").read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    count = data.draw(st.integers(0, 200))
    piece = data.draw(st.binary(max_size=200))
    changed = content[:at] + piece + content[at + count :]
    (tmp_path / "f.w12").write_bytes(changed)
    if changed == content:
        read_all(tmp_path / "f.w12")
        return
    with pytest.raises(WeightFileError, match=r"f\.w12"):
        read_all(tmp_path / "f.w12")


def test_an_encoding_of_something_else_is_told(plain: Path, encoded: Path, tmp_path: Path) -> None:
    assert is_encoding_of(encoded, plain) and is_encoding_of(encoded, plain, is_mlp_only=False)
    assert not is_encoding_of(encoded, plain, is_mlp_only=True)
    write_plain(tmp_path / "other.safetensors", mixed_tensors(1))
    assert not is_encoding_of(encoded, tmp_path / "other.safetensors")
    write_plain(tmp_path / "renamed.safetensors", mixed_tensors(), note="other")
    assert not is_encoding_of(encoded, tmp_path / "renamed.safetensors")
