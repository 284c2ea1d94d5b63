"""Loads config.json files through SGLang 0.5.20's own configuration code and compares what it understood with
ours."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import PretrainedConfig, Qwen3Config

from specpilot.refengine.block_config import BlockConfig
from specpilot.refengine.dflash2_config import DFLASH2_ARCHITECTURES, DFlash2Config
from specpilot.refengine.dspark_config import DSparkConfig
from tests.oracles.sglang_wheel import execute

_LAYER_NAMES = {"attention": "full_attention", "linear_attention": "linear_attention"}

_TARGET_KEYS = (
    "attention_bias",
    "attn_output_gate",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "max_position_embeddings",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "partial_rotary_factor",
    "rms_norm_eps",
    "tie_word_embeddings",
    "vocab_size",
)


def load_target_config(root: Path, values: dict[str, Any]) -> Any:
    """``values`` as the wheel's ``Qwen3_5TextConfig``, the class it registers for model type qwen3_5_text."""
    stand_ins: dict[str, Any] = {
        "Mamba2CacheParams": SimpleNamespace,
        "is_cpu": lambda: False,
        "logging": SimpleNamespace(get_logger=logging.getLogger),
    }
    base = execute(
        root / "configs/qwen3_next.py",
        stand_ins | {"__name__": "wheel_qwen3_next"},
        {"HybridLayerType", "Qwen3NextConfig", "_is_cpu"},
    )
    namespace = {"Qwen3NextConfig": base["Qwen3NextConfig"], "__name__": "wheel_qwen3_5"}
    config_class = execute(root / "configs/qwen3_5.py", namespace, {"Qwen3_5TextConfig"})["Qwen3_5TextConfig"]
    assert issubclass(config_class, PretrainedConfig)
    return config_class.from_dict(values)


def check_target_config(root: Path, values: dict[str, Any]) -> None:
    """The wheel understands a target's config.json as it is meant.

    Raises
    ------
    AssertionError
        A field is read differently, or is only filled by a default.
    """
    config = load_target_config(root, values)
    for key in _TARGET_KEYS:
        assert key in values, f"{key}: absent; the wheel would take its own default"
        assert getattr(config, key) == values[key], (
            f"{key}: file {values[key]!r}, wheel {getattr(config, key)!r}"
        )
    assert config.architectures == ["Qwen3_5ForCausalLM"] and values["model_type"] == "qwen3_5_text"
    # The wheel derives the layers from full_attention_interval, transformers from layer_types.
    understood = [_LAYER_NAMES[name] for name in config.layers_block_type]
    assert understood == values["layer_types"], (
        f"layer_types: file {values['layer_types']}, wheel {understood}"
    )
    rope_config = execute(root / "utils/hf_transformers/common.py", {}, {"get_rope_config"})[
        "get_rope_config"
    ]
    theta, parameters = rope_config(config)
    assert theta == values["rope_parameters"]["rope_theta"]
    assert parameters.get("rope_type", "default") == "default"
    # With a section list SGLang would ask the scheduler for 3-row positions.
    assert "mrope_section" not in parameters
    assert (
        parameters.get("partial_rotary_factor", values["partial_rotary_factor"])
        == values["partial_rotary_factor"]
    )


def check_drafter_config(root: Path, values: dict[str, Any]) -> None:
    """The wheel understands a DFlash2 or DSpark drafter's config.json as this engine does.

    Raises
    ------
    AssertionError
        A field is read differently, or attention would not be bidirectional and full in every layer.
    """
    assert values["model_type"] == "qwen3", "transformers reads a drafter's config by model_type"
    hf_config = Qwen3Config.from_dict(values)
    wheel = execute(
        root / "speculative/dflash_utils.py",
        {},
        {
            "DEFAULT_DFLASH_MASK_TOKEN",
            "DFlashDraftConfig",
            "_cfg_get",
            "_get_dflash_config",
            "_get_text_config",
            "_parse_optional_int",
            "build_target_layer_ids",
            "get_dflash_attention_sliding_window_size",
            "get_dflash_layer_types",
            "is_nemotron_35_draft_config",
            "parse_dflash_draft_config",
        },
    )
    ours: BlockConfig
    own: tuple[str, ...] = ()
    if values["architectures"] == list(DFLASH2_ARCHITECTURES):
        ours = DFlash2Config.parse(values)
        own = ("conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k")
    else:
        ours = DSparkConfig.parse(values)
        _check_dspark(root, wheel, hf_config, ours)
    draft = wheel["parse_dflash_draft_config"](draft_hf_config=hf_config)
    for key in ("block_size", "mask_token_id", "num_target_layers", *own):
        assert getattr(draft, key) == getattr(ours, key), f"{key}: wheel {getattr(draft, key)!r}"
    assert draft.resolve_target_layer_ids(target_num_layers=ours.num_target_layers) == list(
        ours.target_layer_ids
    )
    assert draft.num_hidden_layers == ours.num_layers
    assert draft.output_multiplier == 1.0 and draft.final_logit_softcapping is None
    assert (
        draft.projector_type is None and draft.attention_value_scale is None and not draft.attention_sink_bias
    )
    for wheel_key, key in (
        ("hidden_size", "hidden_size"),
        ("vocab_size", "vocab_size"),
        ("num_attention_heads", "num_heads"),
        ("num_key_value_heads", "num_kv_heads"),
        ("head_dim", "head_dim"),
        ("intermediate_size", "intermediate_size"),
        ("rms_norm_eps", "rms_norm_eps"),
    ):
        assert getattr(hf_config, wheel_key) == getattr(ours, key), wheel_key
    rope_config = execute(root / "utils/hf_transformers/common.py", {}, {"get_rope_config"})[
        "get_rope_config"
    ]
    assert rope_config(hf_config)[0] == ours.rope_theta
    attention = execute(root / "layers/radix_attention.py", {}, {"AttentionType"})
    names = {"_get_dflash_attention_type", "_get_dflash_layer_attention_params"}
    params = execute(root / "models/dflash.py", wheel | attention, names)[
        "_get_dflash_layer_attention_params"
    ]
    for layer in range(ours.num_layers):
        assert params(hf_config, layer) == (-1, attention["AttentionType"].ENCODER_ONLY)


def _check_dspark(root: Path, dflash: dict[str, Any], hf_config: Any, ours: DSparkConfig) -> None:
    """What the wheel reads for a DSpark drafter beyond its DFlash keys."""
    from tests.oracles.sglang_dspark_drafter import config_parser

    wheel = config_parser(root, dflash)
    draft = wheel["parse_dspark_draft_config"](draft_hf_config=hf_config)
    assert draft.resolve_gamma() == ours.block_size
    assert (draft.mask_token_id, draft.markov_rank) == (ours.mask_token_id, ours.markov_rank)
    assert draft.target_layer_ids == list(ours.target_layer_ids)
    assert draft.markov_head_type == "vanilla" and wheel["get_dspark_sample_from_anchor"](hf_config)
    # The model itself reads the rank and the confidence head's input from the top level.
    assert hf_config.markov_rank == ours.markov_rank and hf_config.markov_head_type == "vanilla"
    assert hf_config.confidence_head_with_markov == ours.confidence_with_markov
    assert hf_config.enable_confidence_head == ours.has_confidence
