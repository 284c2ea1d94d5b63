"""An EAGLE-3 drafter that is damaged, belongs to another target or needs other arithmetic is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specpilot.errors import CheckpointError
from specpilot.models.drafters import load_drafter
from specpilot.models.train.eagle3 import Eagle3Shape, TrainEagle3
from specpilot.refengine.dflash2 import DFlash2Drafter
from specpilot.refengine.eagle3 import Eagle3Drafter, load_eagle3
from specpilot.refengine.eagle3_checkpoint import eagle3_shapes
from specpilot.refengine.eagle3_config import Eagle3Config
from tests.oracles import random_dflash2
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_eagle3 import BASE_CONFIG, make_config, make_tensors

TARGET = TinyTarget(BASE_CONFIG, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "eagle3", BASE_CONFIG, make_tensors(BASE_CONFIG, 0))


def test_names_and_shapes_are_those_of_the_trained_module() -> None:
    shape = Eagle3Shape(hidden_size=64, vocab_size=96, num_target_layers=8, tap_outputs=(1, 4, 6))
    trained = {name: tuple(tensor.shape) for name, tensor in TrainEagle3(shape).state_dict().items()}
    assert eagle3_shapes(Eagle3Config.parse(shape.config_dict())) == trained
    assert not any("embed" in name or "lm_head" in name for name in trained)


def test_the_folder_says_which_drafter_it_holds(folder: Path, tmp_path: Path) -> None:
    config = random_dflash2.make_config()
    other = write_checkpoint(tmp_path / "dflash2", config, random_dflash2.make_tensors(config, 0))
    assert isinstance(load_drafter(folder, target=TARGET), Eagle3Drafter)
    assert isinstance(load_drafter(other, target=TARGET), DFlash2Drafter)
    for architectures in (["LlamaForCausalLM"], [], "LlamaForCausalLMEagle3", None):
        (folder / "config.json").write_text(json.dumps(BASE_CONFIG | {"architectures": architectures}))
        with pytest.raises(CheckpointError, match=r"eagle3: architectures: got .*LlamaForCausalLMEagle3"):
            load_drafter(folder, target=TARGET)


@pytest.mark.parametrize(
    ("key", "value"), [("vocab_size", 212), ("hidden_size", 128), ("num_target_layers", 8)]
)
def test_another_targets_drafter(folder: Path, key: str, value: int) -> None:
    with pytest.raises(
        CheckpointError, match=f"{key}: got {BASE_CONFIG[key]}, expected {value}.*another target"
    ):
        load_eagle3(folder, target=TinyTarget(make_config() | {key: value}, 1))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([0, 2, 5], r"got \[0, 2, 5\], expected ids in 0..4"),
        ([-1, 2, 4], r"got \[-1, 2, 4\], expected ids in 0..4"),
        ([2, 0, 4], "strictly increasing"),
        ([0, 2, 2], "strictly increasing"),
        ([], "strictly increasing"),
        (None, "got None, expected a list"),
        (3, "got 3, expected a list"),
    ],
)
def test_layers_that_cannot_be_tapped(folder: Path, layers: object, message: str) -> None:
    config = make_config({"eagle_aux_hidden_state_layer_ids": layers})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"eagle_aux_hidden_state_layer_ids: .*{message}"):
        load_eagle3(folder, target=TARGET)


@pytest.mark.parametrize(
    "change",
    [
        {"draft_vocab_size": 128},
        {"draft_vocab_size": 211},
        {"tie_word_embeddings": True},
        {"num_hidden_layers": 2},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"bias": True},
        {"norm_before_fc": True},
        {"fc_norm": True},
        {"use_aux_norm": True},
        {"norm_output": True},
        {"target_hidden_size": 96},
        {"num_aux_hidden_states": 2},
        {"target_tap_convention": "layer_input"},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}},
        {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
        {"quantization_config": {"quant_method": "fp8"}},
        {"partial_rotary_factor": 0.5},
        {"sliding_window": 128},
        {"head_dim": 24},
        {"block_size": 1},
        {"rms_norm_eps": 0},
        {"vocab_size": "211"},
        {"num_key_value_heads": 3},
        {"eagle_config": None},
        {"model_type": "qwen3"},
    ],
)
def test_a_config_that_asks_for_something_else_is_refused_by_key(change: dict[str, Any]) -> None:
    (key,) = change
    with pytest.raises(CheckpointError, match=f"EAGLE-3 config, {key}"):
        Eagle3Config.parse(make_config() | change)


def test_unknown_keys_inside_eagle_config_are_refused() -> None:
    for key, value in (("norm_before_fc", True), ("use_aux_hidden_state", False), ("surprise", 1)):
        with pytest.raises(CheckpointError, match=f"eagle_config.{key}"):
            Eagle3Config.parse(make_config({key: value}))


def test_what_may_be_missing_has_the_value_sglang_takes() -> None:
    config = make_config()
    for key in ("block_size", "num_target_layers", "target_tap_convention", "head_dim", "draft_vocab_size"):
        del config[key]
    del config["rope_parameters"]
    parsed = Eagle3Config.parse(config | {"rope_theta": 123.0, "torch_dtype": "float16"})
    assert (parsed.block_size, parsed.num_target_layers) == (8, None)
    assert (parsed.head_dim, parsed.rope_theta) == (16, 123.0)


@pytest.mark.parametrize("kind", ["missing", "extra", "head", "shape", "nan"])
def test_damaged_weights_are_refused_by_name(folder: Path, kind: str) -> None:
    file, name = folder / "model.safetensors", "midlayer.self_attn.q_proj.weight"
    tensors = load_file(file)
    if kind == "missing":
        del tensors[name]
    elif kind == "extra":
        name = "midlayer.self_attn.q_norm.weight"
        tensors[name] = torch.ones(16)
    elif kind == "head":
        name = "lm_head.weight"
        tensors[name] = torch.ones(211, 64)
    elif kind == "shape":
        tensors[name] = tensors[name][:, :64].contiguous()
    else:
        tensors[name][3, 5] = torch.nan
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=name):
        load_eagle3(folder, target=TARGET)


def test_a_chain_longer_than_a_state_holds_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(make_config(block_size=64)), encoding="utf-8")
    with pytest.raises(CheckpointError, match="block_size is 64, expected 2 to 32"):
        load_eagle3(folder, target=TARGET)
