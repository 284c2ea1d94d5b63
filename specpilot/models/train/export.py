"""Writes trained weights as Hugging Face folders that both engines load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["MAX_SHARD_BYTES", "export_checkpoint"]

MAX_SHARD_BYTES = 12 * 2**20


def export_checkpoint(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], tokenizer: Path | None
) -> None:
    """Write config.json and BF16 safetensors, in shards of at most 12 MiB with an index when one is not enough.

    ``tokenizer`` is a folder whose files are copied beside the weights (None for a drafter, which has none).
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu", torch.bfloat16).contiguous()
        if size + tensor.nbytes > MAX_SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors", metadata={"format": "pt"})
    else:
        weight_map: dict[str, str] = {}
        for number, shard in enumerate(shards, 1):
            file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            save_file(shard, folder / file, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(shard, file)
        total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(
            json.dumps(index, indent=2) + "\n", encoding="utf-8"
        )
    if tokenizer is not None:
        for source in tokenizer.iterdir():
            shutil.copy(source, folder / source.name)
