"""Random EAGLE-3 checkpoints."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from specpilot.refengine.eagle3_checkpoint import eagle3_shapes
from specpilot.refengine.eagle3_config import Eagle3Config

BASE_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "max_position_embeddings": 512,
    "vocab_size": 211,
    "draft_vocab_size": None,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "block_size": 8,
    "num_target_layers": 6,
    "target_tap_convention": "layer_output",
    "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, 2, 4]},
}


def make_config(eagle: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """BASE_CONFIG with top-level ``changes`` and changes inside ``eagle_config``."""
    config = copy.deepcopy(BASE_CONFIG) | changes
    config["eagle_config"] |= eagle or {}
    return config


def make_tensors(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Weights large enough that every part of the model moves the logits, norms included; numbers fit BF16."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: tuple[int, ...]) -> Tensor:
        noise = torch.randn(shape, generator=generator)
        tensor = 1.0 + 0.3 * noise if len(shape) == 1 else noise * shape[1] ** -0.5
        return tensor.bfloat16().float()

    return {name: draw(shape) for name, shape in eagle3_shapes(Eagle3Config.parse(config)).items()}
