"""Random DSpark checkpoints."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from tests.oracles import random_dflash2

BASE_CONFIG: dict[str, Any] = {
    **{key: value for key, value in random_dflash2.BASE_CONFIG.items() if key != "dflash_config"},
    "architectures": ["Qwen3DSparkModel"],
    "block_size": 7,
    "mask_token_id": 7,
    "target_layer_ids": [1, 3, 5],
    "markov_rank": 24,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


def make_config(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(BASE_CONFIG) | changes


def make_tensors(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Weights large enough that every part of the model moves the scores."""
    blocks = {**random_dflash2.BASE_CONFIG["dflash_config"], "target_layer_ids": config["target_layer_ids"]}
    every = random_dflash2.make_tensors({**config, "dflash_config": blocks}, seed)
    tensors = {name: t for name, t in every.items() if "conv" not in name and "selector" not in name}
    generator = torch.Generator().manual_seed(seed + 1000)
    vocab, rank, hidden = config["vocab_size"], config["markov_rank"], config["hidden_size"]
    for name in ("w1", "w2"):
        tensors[f"markov_head.markov_{name}.weight"] = torch.randn(vocab, rank, generator=generator)
    if config.get("enable_confidence_head", True):
        width = hidden + (rank if config.get("confidence_head_with_markov", True) else 0)
        weight = 2.0 * torch.randn(1, width, generator=generator) * width**-0.5
        tensors |= {"confidence_head.proj.weight": weight, "confidence_head.proj.bias": torch.tensor([0.7])}
    return tensors
