"""Tensors of a DFlash2 drafter: their names and shapes as SGLang 0.5.20 loads them, read and checked.

SGLang skips tensors it does not know and never notices a missing one; here both are refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specpilot.errors import CheckpointError
from specpilot.refengine.dflash2_config import DFlash2Config

__all__ = ["expected_shapes", "read_tensors"]

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def expected_shapes(config: DFlash2Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the checkpoint. No embedding and no head: they are the target's."""
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    kv_width, taps = config.num_kv_heads * config.head_dim, len(config.target_layer_ids)
    kernel = {
        "base_kernel": (2, config.conv_kernel_size, hidden),
        "kernel_projection.weight": (2 * config.conv_kernel_size * config.num_groups, hidden),
    }
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (width, hidden),
        "self_attn.k_proj.weight": (kv_width, hidden),
        "self_attn.v_proj.weight": (kv_width, hidden),
        "self_attn.o_proj.weight": (hidden, width),
        "self_attn.q_norm.weight": (config.head_dim,),
        "self_attn.k_norm.weight": (config.head_dim,),
        "mlp.gate_proj.weight": (config.intermediate_size, hidden),
        "mlp.up_proj.weight": (config.intermediate_size, hidden),
        "mlp.down_proj.weight": (hidden, config.intermediate_size),
        **{
            f"{conv}.{name}": shape
            for conv in ("attention_conv", "mlp_conv")
            for name, shape in kernel.items()
        },
    }
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "candidate_selector.predecessor_codebook": (config.vocab_size, config.selector_rank),
        "candidate_selector.successor_codebook": (config.vocab_size, config.selector_rank),
        "candidate_selector.hidden_projection.weight": (config.selector_rank, hidden),
    }
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def read_tensors(path: Path, expected: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read exactly the ``expected`` tensors of a checkpoint folder, as float32.

    Parameters
    ----------
    path
        Folder with ``model.safetensors``, or with shards and ``model.safetensors.index.json``.
    expected
        Shape by tensor name.

    Raises
    ------
    CheckpointError
        A file is missing or damaged; a tensor is missing, unexpected, of another shape or type, or not
        finite.
    """
    tensors: dict[str, Tensor] = {}
    for file in _shards(path):
        try:
            with safe_open(file, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118  a safetensors file is not a dict
                    if name in tensors:
                        raise CheckpointError(
                            f"{file}: tensor {name!r} stands in two files; re-export the checkpoint"
                        )
                    tensors[name] = shard.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{file}: not a readable safetensors file ({error}); copy the checkpoint again"
            ) from error
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        raise CheckpointError(
            f"{path}: missing tensors {missing}, unexpected tensors {extra}; expected exactly those that "
            "config.json implies"
        )
    for name, shape in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape or tensor.dtype not in _DTYPES:
            raise CheckpointError(
                f"{path}: tensor {name!r}: got shape {tuple(tensor.shape)} {tensor.dtype}, expected {shape} "
                "in BF16, FP16 or FP32; config.json and weights do not belong together"
            )
        tensors[name] = tensor.float()
        if not bool(tensors[name].isfinite().all()):
            raise CheckpointError(
                f"{path}: tensor {name!r} has values that are not finite; the file is damaged"
            )
    return tensors


def _shards(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return [path / "model.safetensors"]
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [path / name for name in sorted(set(names))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{index}: not a safetensors index ({error!r}); copy the checkpoint again"
        ) from error
