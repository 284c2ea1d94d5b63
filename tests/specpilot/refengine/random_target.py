"""Small targets with random weights of a scale at which every part of a layer matters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specpilot.refengine.checkpoint import WEIGHTS_FILE, target_shapes
from specpilot.refengine.config import TargetConfig

__all__ = ["SMALL", "UNTIED", "random_tensors", "save_target"]

SMALL = TargetConfig(
    vocab_size=300,
    hidden_size=96,
    intermediate_size=160,
    num_layers=4,
    full_attention_interval=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    rotary_dim=16,
    rope_theta=1e6,
    gdn_num_key_heads=1,
    gdn_num_value_heads=2,
    gdn_key_dim=128,
    gdn_value_dim=128,
    gdn_conv_size=4,
    norm_eps=1e-6,
    context_length=1024,
    tie_word_embeddings=True,
    eos_ids=(1,),
)
"""The bundled target's layer shapes, smaller."""

UNTIED = replace(
    SMALL,
    num_layers=5,
    full_attention_interval=2,
    num_kv_heads=1,
    rotary_dim=32,
    gdn_num_key_heads=2,
    gdn_num_value_heads=6,
    gdn_key_dim=32,
    gdn_value_dim=48,
    gdn_conv_size=3,
    tie_word_embeddings=False,
)
"""Another head of its own, other head counts and sizes, a last layer without attention."""


def random_tensors(config: TargetConfig, seed: int = 0) -> dict[str, Tensor]:
    """Checkpoint tensors: projections keep the scale of their input, norms and gates differ from channel to channel.

    Of a tied target the numbers are such as BF16 holds, like those of shipped checkpoints; of an untied one they are
    not. So both ways in which a product keeps its weight are run.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in target_shapes(config).items():
        draw = torch.randn(shape, generator=generator)
        if "conv1d" in name:
            draw *= 0.5
        elif name == "model.embed_tokens.weight":
            draw *= 0.2 if config.tie_word_embeddings else 1.0
        elif name == "lm_head.weight":
            draw *= 0.12
        elif len(shape) == 2:
            draw /= shape[1] ** 0.5
        elif name.endswith("linear_attn.norm.weight"):
            draw = 1 + 0.2 * draw
        elif "norm" in name:
            draw *= 0.2
        tensors[name] = draw.bfloat16().float() if config.tie_word_embeddings else draw
    return tensors


def save_target(folder: Path, config: TargetConfig, seed: int = 0) -> dict[str, Tensor]:
    """Write a float32 model folder; the tensors in it come back."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = random_tensors(config, seed)
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_json_dict("float32")), encoding="utf-8")
    return tensors
