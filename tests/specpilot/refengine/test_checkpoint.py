"""Weights: one file or shards, and every kind of damage refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specpilot.errors import CheckpointError
from specpilot.refengine.checkpoint import INDEX_FILE, WEIGHTS_FILE, read_tensors, target_shapes
from specpilot.refengine.model import load_target
from specpilot_kernels.w12.checkpoint import encode_checkpoint
from specpilot_kernels.w12.container import W12File
from specpilot_kernels.w12.format import W12_SUFFIX
from tests.specpilot.refengine.random_target import SMALL, UNTIED, save_target

SHAPES = target_shapes(SMALL)
WIDE = replace(SMALL, hidden_size=128)
"""W12 records have 64 columns: 96 of them would not pay."""
NAME = "model.layers.3.self_attn.k_proj.weight"


def save_shards(folder: Path, tensors: dict[str, Tensor], num_shards: int = 3) -> None:
    """Rewrite a folder's single file as shards with an index."""
    (folder / WEIGHTS_FILE).unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = names[shard::num_shards]
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index), encoding="utf-8")


def test_one_file(tmp_path: Path) -> None:
    written = save_target(tmp_path, SMALL)
    read = read_tensors(tmp_path, SHAPES)
    assert read.keys() == written.keys()
    assert all(torch.equal(read[name], written[name]) for name in written)


def test_shards(tmp_path: Path) -> None:
    written = save_target(tmp_path, SMALL)
    save_shards(tmp_path, written)
    read = read_tensors(tmp_path, SHAPES)
    assert all(torch.equal(read[name], written[name]) for name in SHAPES)


def test_bfloat16_weights_become_the_asked_type(tmp_path: Path) -> None:
    written = {name: tensor.bfloat16() for name, tensor in save_target(tmp_path, SMALL).items()}
    save_file(written, tmp_path / WEIGHTS_FILE)
    for dtype in (torch.float32, torch.float64):
        read = read_tensors(tmp_path, SHAPES, dtype)
        assert all(read[name].dtype == dtype for name in read)
        assert torch.equal(read[NAME], written[NAME].to(dtype))


def test_shapes_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    for config in (SMALL, UNTIED):
        with torch.device("meta"):
            theirs = transformers.Qwen3_5ForCausalLM(
                transformers.Qwen3_5TextConfig(**config.to_json_dict("float32"))
            )
        assert {name: tuple(p.shape) for name, p in theirs.named_parameters()} == target_shapes(config)


Damage = Callable[[Path, dict[str, Tensor]], None]


def change(value: Callable[[Tensor], Tensor]) -> Damage:
    def damage(folder: Path, tensors: dict[str, Tensor]) -> None:
        save_file(tensors | {NAME: value(tensors[NAME]).contiguous()}, folder / WEIGHTS_FILE)

    return damage


def with_nan(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor[-1, -1] = float("nan")
    return tensor


def drop(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: tensor for name, tensor in tensors.items() if name != NAME}, folder / WEIGHTS_FILE)


def add(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors | {"model.layers.9.mlp.up_proj.weight": torch.zeros(2)}, folder / WEIGHTS_FILE)


def truncate(folder: Path, tensors: dict[str, Tensor]) -> None:
    file = folder / WEIGHTS_FILE
    file.write_bytes(file.read_bytes()[:-100])


def empty(folder: Path, tensors: dict[str, Tensor]) -> None:
    (folder / WEIGHTS_FILE).write_bytes(b"")


def remove(folder: Path, tensors: dict[str, Tensor]) -> None:
    (folder / WEIGHTS_FILE).unlink()


def lose_a_shard(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_shards(folder, tensors)
    (folder / "model-00002-of-00003.safetensors").unlink()


def edit_index(edit: Callable[[dict[str, str]], object]) -> Damage:
    def damage(folder: Path, tensors: dict[str, Tensor]) -> None:
        save_shards(folder, tensors)
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
        edit(index["weight_map"])
        (folder / INDEX_FILE).write_text(json.dumps(index), encoding="utf-8")

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop, rf"{NAME}: missing"),
        (add, r"model\.layers\.9\.mlp\.up_proj\.weight: not a tensor of this architecture"),
        (change(lambda tensor: tensor[:-1]), rf"{NAME}: got shape \(127, 96\), expected \(128, 96\)"),
        (change(lambda tensor: tensor.T), rf"{NAME}: got shape \(96, 128\)"),
        (change(with_nan), rf"{NAME}: holds a value that is not finite"),
        (change(lambda tensor: tensor.to(torch.int8)), rf"{NAME}: got dtype torch\.int8"),
        (truncate, r"model\.safetensors: not a readable safetensors file"),
        (empty, r"model\.safetensors: not a readable safetensors file"),
        (remove, r"model\.safetensors: no such file"),
        (lose_a_shard, r"model-00002-of-00003\.safetensors: no such file"),
        (edit_index(lambda weight_map: weight_map.pop(NAME)), rf"{NAME}: .* disagree"),
        (
            edit_index(lambda weight_map: weight_map.update({NAME: "../secret"})),
            rf"{NAME} is in '\.\./secret'",
        ),
        (edit_index(lambda weight_map: weight_map.clear()), "weight_map"),
    ],
)
def test_damage_is_refused_by_name(damage: Damage, message: str, tmp_path: Path) -> None:
    damage(tmp_path, save_target(tmp_path, SMALL))
    with pytest.raises(CheckpointError, match=message):
        load_target(tmp_path, mode="serve")


def test_a_head_that_the_config_ties_is_refused(tmp_path: Path) -> None:
    save_target(tmp_path, UNTIED)
    data = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(data | {"tie_word_embeddings": True}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: not a tensor of this architecture"):
        load_target(tmp_path, mode="serve")


def as_w12(folder: Path) -> None:
    """Replace a folder's safetensors files by W12 files."""
    for file in folder.glob("*.safetensors"):
        encode_checkpoint(file, file.with_suffix(W12_SUFFIX))
        file.unlink()


def test_w12_files_in_place_of_any_shard(tmp_path: Path) -> None:
    written = {name: tensor.bfloat16() for name, tensor in save_target(tmp_path, WIDE).items()}
    save_file(written, tmp_path / WEIGHTS_FILE)
    save_shards(tmp_path, written)
    plain = read_tensors(tmp_path, target_shapes(WIDE), None)
    kept = (tmp_path / "model-00001-of-00003.safetensors").read_bytes()
    as_w12(tmp_path)
    with W12File(tmp_path / "model-00001-of-00003.w12") as file:
        assert any(record.layout == "L3" for record in file.records.values())
    for mixed in (False, True):
        if mixed:
            (tmp_path / "model-00001-of-00003.safetensors").write_bytes(kept)
            (tmp_path / "model-00001-of-00003.w12").unlink()
        read = read_tensors(tmp_path, target_shapes(WIDE), None)
        assert read.keys() == plain.keys()
        for name, tensor in plain.items():
            assert read[name].dtype == tensor.dtype
            assert torch.equal(read[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_two_copies_of_the_weights_are_refused(tmp_path: Path) -> None:
    save_target(tmp_path, SMALL)
    encode_checkpoint(tmp_path / WEIGHTS_FILE, tmp_path / "model.w12")
    with pytest.raises(CheckpointError, match=r"model\.w12 is there, too"):
        load_target(tmp_path, mode="serve")


def test_a_damaged_w12_file_is_refused_by_name(tmp_path: Path) -> None:
    written = {name: tensor.bfloat16() for name, tensor in save_target(tmp_path, WIDE).items()}
    save_file(written, tmp_path / WEIGHTS_FILE)
    as_w12(tmp_path)
    content = bytearray((tmp_path / "model.w12").read_bytes())
    content[len(content) // 2] ^= 16
    (tmp_path / "model.w12").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.w12: model\.\S+: .* not those"):
        load_target(tmp_path, mode="serve")
    (tmp_path / "model.w12").write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"model\.w12: tensors take"):
        load_target(tmp_path, mode="serve")
