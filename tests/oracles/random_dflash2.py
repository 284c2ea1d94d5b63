"""Random DFlash2 checkpoints and the smallest target they can borrow from."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

BASE_CONFIG: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "max_position_embeddings": 512,
    "vocab_size": 211,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "dtype": "float32",
    "block_size": 8,
    "num_target_layers": 6,
    "target_tap_convention": "layer_input",
    "dflash_config": {
        "mask_token_id": 7,
        "target_layer_ids": [1, 3, 5],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 24,
        "selector_top_k": 16,
    },
}


def make_config(dflash: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """BASE_CONFIG with top-level ``changes`` and changes inside ``dflash_config``."""
    config = copy.deepcopy(BASE_CONFIG) | changes
    config["dflash_config"] |= dflash or {}
    return config


def make_tensors(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Weights large enough that every part of the model moves the scores: kernels, norms and codebooks
    included."""
    generator = torch.Generator().manual_seed(seed)
    dflash = config["dflash_config"]
    hidden, heads, kv_heads = (
        config["hidden_size"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
    )
    dim, middle, taps = config["head_dim"], config["intermediate_size"], dflash["conv_kernel_size"]
    groups = hidden // dflash["conv_group_size"]

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    def norm(size: int) -> Tensor:
        return 1.0 + 0.3 * torch.randn(size, generator=generator)

    tensors = {
        "fc.weight": matrix(hidden, len(dflash["target_layer_ids"]) * hidden),
        "hidden_norm.weight": norm(hidden),
        "norm.weight": norm(hidden),
        "candidate_selector.predecessor_codebook": torch.randn(
            config["vocab_size"], dflash["selector_rank"], generator=generator
        ),
        "candidate_selector.successor_codebook": torch.randn(
            config["vocab_size"], dflash["selector_rank"], generator=generator
        ),
        "candidate_selector.hidden_projection.weight": matrix(dflash["selector_rank"], hidden),
    }
    for index in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": norm(hidden),
            "post_attention_layernorm.weight": norm(hidden),
            "self_attn.q_proj.weight": matrix(heads * dim, hidden),
            "self_attn.k_proj.weight": matrix(kv_heads * dim, hidden),
            "self_attn.v_proj.weight": matrix(kv_heads * dim, hidden),
            "self_attn.o_proj.weight": matrix(hidden, heads * dim),
            "self_attn.q_norm.weight": norm(dim),
            "self_attn.k_norm.weight": norm(dim),
            "mlp.gate_proj.weight": matrix(middle, hidden),
            "mlp.up_proj.weight": matrix(middle, hidden),
            "mlp.down_proj.weight": matrix(hidden, middle),
        }
        for conv in ("attention_conv", "mlp_conv"):
            layer[f"{conv}.base_kernel"] = 0.7 * torch.randn(2, taps, hidden, generator=generator)
            layer[f"{conv}.kernel_projection.weight"] = 0.5 * matrix(2 * taps * groups, hidden)
        tensors |= {f"layers.{index}.{name}": tensor for name, tensor in layer.items()}
    return tensors


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@dataclass(frozen=True)
class TinyTargetConfig:
    hidden_size: int
    vocab_size: int
    num_layers: int


class TinyTarget:
    """A target reduced to what a drafter borrows: a tied table as embedding and head."""

    def __init__(self, config: dict[str, Any], seed: int, architecture: str = "Qwen3_5ForCausalLM") -> None:
        self.config = TinyTargetConfig(
            config["hidden_size"], config["vocab_size"], config["num_target_layers"]
        )
        self.architecture = architecture
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(self.config.vocab_size, self.config.hidden_size, generator=generator)

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.table[token_ids]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.table.T
