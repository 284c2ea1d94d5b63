"""config.json of a target: read, written, refused by key; transformers reads what we write alike."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from specpilot.errors import CheckpointError
from specpilot.refengine.config import TargetConfig
from tests.specpilot.refengine.random_target import SMALL, UNTIED


@pytest.mark.parametrize(
    "config", [SMALL, UNTIED, replace(SMALL, eos_ids=()), replace(SMALL, eos_ids=(2, 7))]
)
def test_written_is_read_back(config: TargetConfig, tmp_path: Path) -> None:
    written = config.to_json_dict()
    assert TargetConfig.from_json(written) == config
    file = tmp_path / "config.json"
    file.write_text(json.dumps(written), encoding="utf-8")
    assert TargetConfig.from_json(file) == TargetConfig.from_json(tmp_path) == config


def test_layers_follow_the_interval() -> None:
    linear, full = "linear_attention", "full_attention"
    assert replace(SMALL, num_layers=8).layer_types == (linear, linear, linear, full) * 2
    assert UNTIED.layer_types == (linear, full, linear, full, linear)


@pytest.mark.parametrize("config", [SMALL, UNTIED])
def test_transformers_reads_it_alike(config: TargetConfig) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.Qwen3_5TextConfig(**config.to_json_dict())
    assert theirs.layer_types == list(config.layer_types)
    assert theirs.full_attention_interval == config.full_attention_interval
    assert theirs.attn_output_gate is True
    assert theirs.partial_rotary_factor == config.rotary_dim / config.head_dim
    assert theirs.rope_parameters["partial_rotary_factor"] == theirs.partial_rotary_factor
    assert theirs.rope_parameters["rope_theta"] == config.rope_theta
    assert "mrope_section" not in theirs.rope_parameters
    names = {
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "gdn_num_key_heads": "linear_num_key_heads",
        "gdn_num_value_heads": "linear_num_value_heads",
        "gdn_key_dim": "linear_key_head_dim",
        "gdn_value_dim": "linear_value_head_dim",
        "gdn_conv_size": "linear_conv_kernel_dim",
        "norm_eps": "rms_norm_eps",
        "context_length": "max_position_embeddings",
        "tie_word_embeddings": "tie_word_embeddings",
    }
    for field, key in names.items():
        assert getattr(theirs, key) == getattr(config, field), key
    assert theirs.eos_token_id == list(config.eos_ids)
    seen = set(names) | {"full_attention_interval", "rotary_dim", "rope_theta", "eos_ids"}
    assert seen == {field.name for field in fields(config)}
    # What transformers saves is read by us.
    saved = json.loads(theirs.to_json_string(use_diff=False))
    assert TargetConfig.from_json(saved | {"architectures": ["Qwen3_5ForCausalLM"]}) == config


def test_missing_defaults_are_those_of_transformers() -> None:
    data = SMALL.to_json_dict()
    for key in ("full_attention_interval", "layer_types", "attn_output_gate", "partial_rotary_factor"):
        del data[key]
    assert TargetConfig.from_json(data) == SMALL


def edited(**changes: Any) -> dict[str, Any]:
    return SMALL.to_json_dict() | changes


ROPE = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "architectures"),
        ({"model_type": "qwen3"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"attn_output_gate": False}, "attn_output_gate"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": "96"}, "hidden_size"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"vocab_size": 3.5}, "vocab_size"),
        ({"num_attention_heads": 3}, "num_attention_heads.*multiple of num_key_value_heads"),
        ({"linear_num_key_heads": 4}, "linear_num_value_heads.*multiple of linear_num_key_heads"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"eos_token_id": "1"}, "eos_token_id"),
        ({"eos_token_id": [1, 300]}, "eos_token_id.*300"),
        ({"full_attention_interval": 2}, "layer_types.*as full_attention_interval 2 gives"),
        ({"layer_types": ["full_attention"] * 4}, "layer_types"),
        ({"partial_rotary_factor": 0.5}, r"rope_parameters\.partial_rotary_factor"),
        ({"partial_rotary_factor": 0.01, "rope_parameters": {"rope_theta": 1e6}}, "partial_rotary_factor"),
        ({"rope_parameters": None}, "rope_parameters"),
        ({"rope_parameters": {**ROPE, "rope_type": "yarn"}}, r"rope_parameters\.rope_type"),
        ({"rope_parameters": {**ROPE, "rope_theta": -1}}, "rope_theta"),
        ({"rope_parameters": {**ROPE, "mrope_section": [3, 3, 2]}}, r"rope_parameters\.mrope_section"),
        ({"logit_scale": 2.0}, "logit_scale"),
    ],
)
def test_a_wrong_key_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        TargetConfig.from_json(edited(**changes))


@pytest.mark.parametrize(
    "key", ["hidden_size", "linear_key_head_dim", "max_position_embeddings", "rms_norm_eps"]
)
def test_a_missing_key_is_named(key: str) -> None:
    data = SMALL.to_json_dict()
    del data[key]
    with pytest.raises(CheckpointError, match=f"{key}: got None"):
        TargetConfig.from_json(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not valid JSON"), (b"\xff", "not valid JSON"), (b"[]", "expected an object")],
)
def test_a_damaged_file_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{message}"):
        TargetConfig.from_json(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        TargetConfig.from_json(tmp_path)
