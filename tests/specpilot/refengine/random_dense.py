"""Small dense targets with random weights, made and saved by transformers itself where it has the family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from specpilot.refengine.checkpoint import WEIGHTS_FILE
from specpilot.refengine.dense_checkpoint import dense_shapes
from specpilot.refengine.dense_families import read_dense_config

__all__ = ["FAMILIES", "save_muse_glimmer", "save_random"]

_SHAPE = {
    "vocab_size": 300,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1}),
    "llama tied, stretched rope": (
        "Llama",
        {
            "num_hidden_layers": 3,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "qwen3": ("Qwen3", {"num_hidden_layers": 3, "rope_parameters": {"rope_theta": 1e6}}),
    "qwen3 with a window": (
        "Qwen3",
        {
            "num_hidden_layers": 4,
            "use_sliding_window": True,
            "sliding_window": 20,
            "max_window_layers": 2,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            "num_hidden_layers": 6,
            "num_key_value_heads": 1,
            "sliding_window": 24,
            "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2,
            "query_pre_attn_scalar": 48,
            "tie_word_embeddings": False,
            "final_logit_softcapping": 8.0,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
            },
        },
    ),
}
"""Name -> (prefix of transformers' classes, settings). Windows are shorter than the sequences of the tests."""

_MUSE_GLIMMER: dict[str, Any] = {
    **_SHAPE,
    "model_type": "muse_glimmer_text",
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "hidden_activation": "silu",
    "rms_norm_eps": 1e-5,
    "post_norm_eps": 1e-3,
    "sliding_window": 24,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "layer_rope_theta": [1000.0, 1000.0, 1000.0, 0],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    "final_logit_softcapping": 5.0,
    "output_multiplier": 0.5,
    "qk_scale_factor": 3.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
}
_VISION = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}


def save_random(folder: Path, name: str, seed: int = 0) -> Any:
    """Write a float32 model folder; transformers' model comes back, in evaluation mode."""
    family, settings = FAMILIES[name]
    config_class = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    config = getattr(transformers, config_class)(**{**_SHAPE, **settings})
    model: Any = getattr(transformers, f"{family}ForCausalLM")(config)
    generator = torch.Generator().manual_seed(seed)
    is_tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(_draw(parameter_name, parameter, is_tied, generator))
    model.eval().save_pretrained(folder)
    return model


def save_muse_glimmer(folder: Path, seed: int = 0) -> None:
    """Write a float32 model folder of a family that transformers has from 5.16 on, a vision tensor in it."""
    config = {
        "architectures": ["MuseGlimmerForConditionalGeneration"],
        "model_type": "muse_glimmer",
        "text_config": _MUSE_GLIMMER,
        "vision_config": _VISION,
        "out_hidden_size": 128,
        "projector_hidden_size": 16,
    }
    generator = torch.Generator().manual_seed(seed)
    tensors = {"model.vision_tower.ln_pre.weight": torch.ones(32)}
    for name, shape in dense_shapes(read_dense_config(config)).items():
        is_final_norm = name == "model.language_model.norm.weight"
        start = torch.ones(shape) if is_final_norm else torch.zeros(shape)
        tensors[name] = _draw(name, start, False, generator)
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _draw(name: str, parameter: Tensor, is_tied: bool, generator: torch.Generator) -> Tensor:
    """Weights of a scale at which every part of a layer matters; those of tied targets are BF16 numbers."""
    draw = torch.randn(parameter.shape, generator=generator)
    if "embed_tokens" in name or "lm_head" in name:
        draw *= 0.3
    elif parameter.dim() == 2:
        draw /= parameter.shape[1] ** 0.5
    else:  # norms: about as transformers starts them, zero or one
        draw = parameter + 0.2 * draw
    return draw.bfloat16().float() if is_tied else draw
