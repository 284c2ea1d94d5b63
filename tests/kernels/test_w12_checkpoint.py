"""Checkpoints in folders: shards, the other files, runs that were killed, verdicts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specpilot_kernels.w12.__main__ import main as w12_main
from specpilot_kernels.w12.atomic_file import PART_SUFFIX
from specpilot_kernels.w12.checkpoint import (
    count_tensors,
    decode_checkpoint,
    encode_checkpoint,
    verify_checkpoint,
)
from specpilot_kernels.w12.folders import PLAIN_SUFFIX, left_behind, weight_files
from specpilot_kernels.w12.safetensors_file import WeightFileError
from tests.kernels.w12_files import mixed_tensors, write_plain

SHARDS = [f"model-0000{number}-of-00003" for number in (1, 2, 3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards with an index, and what else lies in such a folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(SHARDS):
        tensors = {f"{number}.{name}": value for name, value in mixed_tensors(number).items()}
        write_plain(folder / f"{shard}.safetensors", tensors)
        weight_map |= dict.fromkeys(tensors, f"{shard}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}, indent=3))
    (folder / "config.json").write_text("{}")
    (folder / "LICENSE").write_text("free")
    (folder / "pytorch_model.bin").write_bytes(b"the same in another format")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_folder_and_back(folder: Path, tmp_path: Path) -> None:
    steps = []
    made = encode_checkpoint(folder, tmp_path / "w12", advance=lambda: steps.append(0))
    assert [file.name for file in made] == [f"{shard}.w12" for shard in SHARDS]
    assert len(steps) == count_tensors(folder, PLAIN_SUFFIX)
    assert contents(tmp_path / "w12").keys() == {
        *(f"{shard}.w12" for shard in SHARDS), "model.safetensors.index.json", "config.json", "LICENSE",
    }  # fmt: skip
    decode_checkpoint(tmp_path / "w12", tmp_path / "again")
    expected = contents(folder)
    del expected["pytorch_model.bin"]
    assert contents(tmp_path / "again") == expected


def test_a_folder_of_folders(folder: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.mkdir()
    folder.rename(both / "target")
    (both / "drafter").mkdir()
    write_plain(both / "drafter" / "model.safetensors", mixed_tensors(7))
    encode_checkpoint(both, tmp_path / "w12")
    assert all(not verdict.faults for verdict in verify_checkpoint(tmp_path / "w12"))
    decode_checkpoint(tmp_path / "w12", tmp_path / "again")
    expected = contents(both)
    del expected["target/pytorch_model.bin"]
    assert contents(tmp_path / "again") == expected


def test_a_single_file(folder: Path, tmp_path: Path) -> None:
    source = folder / f"{SHARDS[0]}.safetensors"
    assert encode_checkpoint(source, tmp_path / "x.w12") == [tmp_path / "x.w12"]
    decode_checkpoint(tmp_path / "x.w12", tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes() == source.read_bytes()


def test_verdicts_name_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    encode_checkpoint(folder, tmp_path / "w12")
    files = weight_files(tmp_path / "w12", ".w12")
    damaged = bytearray(files[1].read_bytes())
    damaged[-300] ^= 1  # The bases stand last.
    files[1].write_bytes(damaged)
    files[2].write_bytes(files[2].read_bytes()[:-1])
    first, second, third = verify_checkpoint(tmp_path / "w12")
    assert first.faults == () and first.num_encoded == 3 and first.num_tensors == 14
    assert len(second.faults) == 1 and "1.model.layers.0.mlp.up.weight" in second.faults[0]
    assert len(third.faults) == 1 and SHARDS[2] in third.faults[0]


KILLED = """
import os, signal, sys
from pathlib import Path
from specpilot_kernels.w12.checkpoint import decode_checkpoint, encode_checkpoint
left = int(sys.argv[4])
def advance():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
verb = {"encode": encode_checkpoint, "decode": decode_checkpoint}[sys.argv[1]]
verb(Path(sys.argv[2]), Path(sys.argv[3]), advance=advance)
"""


def kill_after(num_tensors: int, verb: str, source: Path, out: Path) -> None:
    call = [sys.executable, "-c", KILLED, verb, str(source), str(out), str(num_tensors)]
    assert subprocess.run(call, check=False).returncode == -signal.SIGKILL


def test_encoding_goes_on_after_a_kill(folder: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "w12", tmp_path / "whole"
    kill_after(20, "encode", folder, out)
    num_whole = 1
    assert set(contents(out)) == {
        *(f"{s}.w12" for s in SHARDS[:num_whole]),
        f"{SHARDS[num_whole]}.w12{PART_SUFFIX}",
    }
    kept = {file: file.stat().st_ino for file in out.glob("*.w12")}
    steps: list[int] = []
    encode_checkpoint(folder, out, advance=lambda: steps.append(0))
    assert len(steps) == 3 * 14
    assert {file: file.stat().st_ino for file in kept} == kept
    encode_checkpoint(folder, whole)
    assert contents(out) == contents(whole)


def test_decoding_goes_on_after_a_kill(folder: Path, tmp_path: Path) -> None:
    encode_checkpoint(folder, tmp_path / "w12")
    kill_after(16, "decode", tmp_path / "w12", tmp_path / "again")
    assert not (tmp_path / "again" / "config.json").exists()
    decode_checkpoint(tmp_path / "w12", tmp_path / "again")
    assert all((tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
               for name in contents(tmp_path / "again"))  # fmt: skip


KILLED_BESIDE = """
import os, signal, sys
from pathlib import Path
from specpilot_kernels.w12 import container, format, lanes, piece_writer, tensor_encoder
from specpilot_kernels.w12.checkpoint import decode_checkpoint, encode_checkpoint
for module in (format, container, tensor_encoder):
    module.PIECE_BYTES = 2**14
piece_writer.SYNC_BYTES = 2**14
left, sync = int(sys.argv[4]), os.fdatasync
def killing(descriptor):
    global left
    sync(descriptor)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.fdatasync = killing
verb = {"encode": encode_checkpoint, "decode": decode_checkpoint}[sys.argv[1]]
verb(Path(sys.argv[2]), Path(sys.argv[3]))
"""


def test_a_kill_from_a_thread_that_writes(folder: Path, tmp_path: Path) -> None:
    """Pieces are read, hashed and encoded at that moment, and a part of the shard is on disk."""

    def kill(verb: str, source: Path, out: Path) -> set[str]:
        call = [sys.executable, "-c", KILLED_BESIDE, verb, str(source), str(out), "12"]
        assert subprocess.run(call, check=False).returncode == -signal.SIGKILL
        suffixes = (".w12", ".safetensors")
        return {f"{file.stem}" for file in out.iterdir() if file.suffix in suffixes}

    whole = tmp_path / "whole"
    encode_checkpoint(folder, whole)
    done = kill("encode", folder, tmp_path / "w12")
    assert done and done == set(SHARDS[: len(done)])
    assert contents(tmp_path / "w12").keys() == {
        *(f"{shard}.w12" for shard in done), f"{SHARDS[len(done)]}.w12{PART_SUFFIX}",
    }  # fmt: skip
    encode_checkpoint(folder, tmp_path / "w12")
    assert contents(tmp_path / "w12") == contents(whole)
    done = kill("decode", whole, tmp_path / "again")
    assert done == set(SHARDS[: len(done)])
    decode_checkpoint(whole, tmp_path / "again")
    expected = contents(folder)
    del expected["pytorch_model.bin"]
    assert contents(tmp_path / "again") == expected


def test_a_shard_of_something_else_is_not_kept(folder: Path, tmp_path: Path) -> None:
    encode_checkpoint(folder, tmp_path / "w12")
    other = {f"1.{name}": value for name, value in mixed_tensors(9).items()}
    write_plain(folder / f"{SHARDS[1]}.safetensors", other)
    with pytest.raises(WeightFileError, match=rf"{SHARDS[1]}\.w12: is there and does not hold what"):
        encode_checkpoint(folder, tmp_path / "w12")
    with pytest.raises(WeightFileError, match="does not hold"):
        decode_checkpoint(tmp_path / "w12", folder.rename(tmp_path / "other"))


def test_other_choices_of_tensors_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    encode_checkpoint(folder, tmp_path / "w12", is_mlp_only=True)
    with pytest.raises(WeightFileError, match="does not hold"):
        encode_checkpoint(folder, tmp_path / "w12")
    assert len(encode_checkpoint(folder, tmp_path / "w12", is_mlp_only=True)) == 3
    decode_checkpoint(tmp_path / "w12", tmp_path / "again")
    decode_checkpoint(tmp_path / "w12", tmp_path / "again")


def test_wrong_places_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightFileError, match="is the folder that is read"):
        encode_checkpoint(folder, folder / ".." / folder.name)
    with pytest.raises(WeightFileError, match=r"no file \*\.w12 there"):
        decode_checkpoint(folder, tmp_path / "out")
    with pytest.raises(WeightFileError, match=r"got suffix '\.bin'"):
        encode_checkpoint(folder / "pytorch_model.bin", tmp_path / "out")
    with pytest.raises(WeightFileError, match="nowhere: no such file or folder"):
        encode_checkpoint(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(WeightFileError, match="or in it"):
        encode_checkpoint(folder, folder / "w12")
    (tmp_path / "file").touch()
    with pytest.raises(WeightFileError, match="cannot make"):
        encode_checkpoint(folder, tmp_path / "file")
    assert not (tmp_path / "out").exists()


def test_a_shard_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    encode_checkpoint(folder, tmp_path / "w12")
    index = folder / "model.safetensors.index.json"
    text = index.read_text()
    for name in (*SHARDS[:1], *SHARDS[2:]):
        for where, suffix in ((folder, ".safetensors"), (tmp_path / "w12", ".w12")):
            shard = where / f"{name}{suffix}"
            content = shard.read_bytes()
            shard.unlink()
            with pytest.raises(WeightFileError, match=rf"{name}\{suffix}: missing"):
                weight_files(where, suffix)
            (where / index.name).unlink()  # The other shards' names still promise it.
            with pytest.raises(WeightFileError, match=rf"{name}\{suffix}: missing"):
                weight_files(where, suffix)
            (where / index.name).write_text(text)
            shard.write_bytes(content)
    (folder / f"{SHARDS[1]}.safetensors").unlink()
    with pytest.raises(WeightFileError, match="missing"):
        encode_checkpoint(folder, tmp_path / "part")
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": 3}', '{"weight_map": {"a": 1}}',
     '{"weight_map": {"a": "../model-00001-of-00003.safetensors"}}', '{"weight_map": {"x": "SHARD"}}'],
)  # fmt: skip
def test_an_index_that_is_none_is_refused(folder: Path, tmp_path: Path, text: str) -> None:
    encode_checkpoint(folder, tmp_path / "w12")
    index = tmp_path / "w12" / "model.safetensors.index.json"
    index.write_text(text.replace("SHARD", f"{SHARDS[0]}.safetensors"))
    with pytest.raises(WeightFileError, match=r"index\.json"):
        list(verify_checkpoint(tmp_path / "w12"))


def test_other_folders_come_along_and_what_does_not_is_said(folder: Path, tmp_path: Path) -> None:
    for name in ("templates/deep/a.jinja", ".git/objects", "original/consolidated.safetensors"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    encode_checkpoint(folder, tmp_path / "w12")
    assert (tmp_path / "w12" / "templates/deep/a.jinja").read_text() == "templates/deep/a.jinja"
    behind = {str(file) for file in left_behind(folder, PLAIN_SUFFIX)}
    assert behind == {".git", "original/consolidated.safetensors", "pytorch_model.bin"}
    assert not behind & contents(tmp_path / "w12").keys()


def test_other_files_are_not_written_over(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "w12"
    out.mkdir()
    (out / "config.json").write_text('{"mine": 1}')
    with pytest.raises(WeightFileError, match=r"config\.json: is there and is not what"):
        encode_checkpoint(folder, out)
    assert contents(out) == {"config.json": b'{"mine": 1}'}


def test_links_to_nothing_and_two_kinds_of_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("extra.safetensors", "notes.txt"):
        (folder / name).symlink_to("nowhere")
        with pytest.raises(WeightFileError, match=f"{name}: is a symbolic link to nowhere"):
            encode_checkpoint(folder, tmp_path / "w12")
        (folder / name).unlink()
    (folder / "model.w12").touch()
    for suffix in (".w12", ".safetensors"):
        with pytest.raises(WeightFileError, match="beside files"):
            weight_files(folder, suffix)


def test_the_verbs_without_the_rest_of_the_product(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoded, again = tmp_path / "model-w12", tmp_path / "again"
    call = [sys.executable, "-m", "specpilot_kernels.w12", "encode", str(folder)]
    done = subprocess.run(call, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "left behind: pytorch_model.bin" in done.stdout, done.stderr
    assert w12_main(["decode", str(encoded), "--out", str(again)]) == 0
    expected = contents(folder)
    del expected["pytorch_model.bin"]
    assert contents(again) == expected
    assert w12_main(["stat", str(encoded)]) == 0
    assert "layer 0" in capsys.readouterr().out
    shard = encoded / f"{SHARDS[1]}.w12"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert w12_main(["verify", str(encoded)]) == 1
    says = capsys.readouterr().out
    assert says.count("ok ") == 2 and f"FAULT {shard}" in says
    assert w12_main(["encode", str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'nowhere'}: no such file or folder\n"


def test_it_imports_torch_numpy_and_numba_alone() -> None:
    """Of what pyproject.toml brings; each module in the folder, in a Python where nothing else can be imported."""
    code = """
import pkgutil, sys
import specpilot_kernels.w12 as w12
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "safetensors rich typer yaml jinja2 tokenizers llguidance specpilot".split():
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
for module in pkgutil.iter_modules(w12.__path__, "specpilot_kernels.w12."):
    __import__(module.name)
from specpilot_kernels.w12 import convert_
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
