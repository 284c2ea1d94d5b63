"""Dense configs are read strictly: what may change the arithmetic and has no code is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from specpilot.errors import CheckpointError
from specpilot.refengine.dense import load_dense
from specpilot.refengine.dense_families import read_dense_config
from specpilot.refengine.rope import Llama3Stretch, Rope
from specpilot.refengine.target import open_target

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_theta": 500.0,
}
GEMMA: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "head_dim": 32,
    "sliding_window": 16,
    "rope_scaling": {"type": "linear", "factor": 8.0},
}
QWEN: dict[str, Any] = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32}
MUSE: dict[str, Any] = {
    "architectures": ["MuseGlimmerForConditionalGeneration"],
    "text_config": {
        **{key: value for key, value in LLAMA.items() if key not in ("architectures", "rope_theta")},
        "model_type": "muse_glimmer_text",
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "head_dim": 32,
        "sliding_window": 16,
        "qk_scale_factor": 3.0,
        "post_norm_eps": 1e-8,
        "output_multiplier": 0.5,
        "final_logit_softcapping": 20.0,
    },
}


def test_what_is_left_out_is_what_transformers_takes() -> None:
    llama = read_dense_config(LLAMA)
    assert llama.num_kv_heads == 4 and llama.head_dim == 16 and not llama.tie_word_embeddings
    assert llama.ropes == (Rope(500.0),) * 6 and llama.eos_ids == () and llama.score_scale == 0.25
    gemma = read_dense_config(GEMMA)
    assert gemma.layer_types == ("sliding_attention",) * 5 + ("full_attention",)
    assert gemma.ropes == (Rope(10_000.0),) * 5 + (Rope(500.0, 8.0),)
    assert gemma.tie_word_embeddings and gemma.score_scale == 256**-0.5 and gemma.embedding_scale == 8
    muse = read_dense_config(MUSE)
    assert [rope is None for rope in muse.ropes] == [False, True, False, False, False, True]
    assert [muse.window_of(layer) for layer in range(6)] == [16, None, 16, 16, 16, None]


def test_llama3_frequencies() -> None:
    """Wavelengths above 64 tokens are stretched eightfold, below 16 not at all, and the middle falls between."""
    rope = Rope(1e4, 8.0, Llama3Stretch(1.0, 4.0, 64))
    plain, got = Rope(1e4).frequencies(64), rope.frequencies(64)
    turns = 64 * plain / (2 * torch.pi)
    assert torch.equal(got[turns > 4], plain[turns > 4])
    torch.testing.assert_close(got[turns < 1], plain[turns < 1] / 8)
    middle = (turns > 1) & (turns < 4)
    assert middle.any() and (got[middle] < plain[middle]).all() and (got[middle] > plain[middle] / 8).all()


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (LLAMA, {"attention_bias": True}, "attention_bias: got True, expected False"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias: got True"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act: got 'gelu', expected 'silu'"),
        (LLAMA, {"pretraining_tp": 2}, "pretraining_tp: got 2"),
        (LLAMA, {"sliding_window": 16}, "sliding_window: got 16, expected no such key"),
        (LLAMA, {"final_logit_softcapping": 30.0}, "final_logit_softcapping: got 30.0, expected no such key"),
        (LLAMA, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type: got 'yarn'"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor: got 0"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2, "more": 1}}, "rope_scaling.more: got 1"),
        (LLAMA, {"rope_parameters": {"rope_theta": 1e4}}, "rope_theta: got 500.0, expected no such key"),
        (LLAMA, {"rms_norm_eps": None}, "rms_norm_eps: got None"),
        (LLAMA, {"rms_norm_eps": float("nan")}, "rms_norm_eps: got nan"),
        (LLAMA, {"num_key_value_heads": 3}, "num_attention_heads: got 4, expected a multiple of"),
        (LLAMA, {"head_dim": 24}, "head_dim: got 24, expected a multiple of 16"),
        (LLAMA, {"vocab_size": True}, "vocab_size: got True"),
        (LLAMA, {"eos_token_id": [1, 300]}, "eos_token_id: got 300"),
        (LLAMA, {"eos_token_id": "x"}, "eos_token_id: got 'x'"),
        (LLAMA, {"tie_word_embeddings": 1}, "tie_word_embeddings: got 1"),
        (LLAMA, {"attention_dropout": 0.1}, "attention_dropout: got 0.1"),
        (LLAMA, {"model_type": "mistral"}, "model_type: got 'mistral'"),
        (LLAMA, {"architectures": ["MistralForCausalLM"]}, "architectures: got .*expected one of: LlamaFor"),
        (QWEN, {"use_sliding_window": True, "max_window_layers": 2}, "sliding_window: got None"),
        (QWEN, {"layer_types": ["full_attention"] * 5}, "layer_types: got .* expected a list of 6"),
        (QWEN, {"layer_types": ["sliding_attention"] * 6}, "sliding_window: got None"),
        (GEMMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: got 50.0, expected None"),
        (GEMMA, {"use_bidirectional_attention": True}, "use_bidirectional_attention: got True"),
        (GEMMA, {"hidden_activation": "gelu"}, "hidden_activation: got 'gelu'"),
        (GEMMA, {"layer_types": ["chunked_attention"] * 6}, "layer_types"),
        (MUSE, {"hidden_size": 64}, "config, hidden_size: got 64, expected no such key"),
        (MUSE, {"text_config": {**MUSE["text_config"], "odd": 1}}, "text_config.odd: got 1"),
        (
            MUSE,
            {"text_config": {**MUSE["text_config"], "layer_rope_theta": [500.0, 7.0, 0, 0, 0, 0]}},
            "text_config.layer_rope_theta: .* each 0 or 500.0",
        ),
    ],
)
def test_a_config_without_code_is_refused_by_name(
    base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    assert read_dense_config(base).num_layers == 6
    with pytest.raises(CheckpointError, match=message):
        read_dense_config({**base, **changes})


def test_a_folder_of_no_known_architecture_is_refused_with_all_known_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(CheckpointError, match=r"got \['GPT2LMHeadModel'\], .*Qwen3_5ForCausalLM, Llama"):
        open_target(tmp_path, mode="serve")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: no such file"):
        load_dense(tmp_path, mode="serve")
