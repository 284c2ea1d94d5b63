"""A GGUF file as a folder in the Hugging Face layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot.errors import CheckpointError
from specpilot.models.gguf.llama import GgufTensors, read_llama_config
from specpilot.models.gguf.reader import GgufFile
from specpilot.models.gguf.tokenizer import read_tokenizer
from specpilot.refengine.checkpoint import WEIGHTS_FILE
from specpilot.refengine.dense_config import DenseConfig
from specpilot_kernels.w12.convert import write_safetensors
from specpilot_kernels.w12.safetensors_file import WeightFileError

__all__ = ["export_gguf"]


def export_gguf(path: Path, out: Path, *, advance: Callable[[], None] = lambda: None) -> list[Path]:
    """Write the weights of a GGUF file as safetensors, with configuration and tokenizer.

    Matrices are dequantised and rounded to BF16, norms are float32: the very numbers that
    :func:`specpilot.models.gguf.load_gguf` computes with. One tensor is in memory at a time.

    Parameters
    ----------
    path
        The file.
    out
        Folder to make; files of these names in it are replaced, ``config.json`` last.
    advance
        Called after every tensor.

    Returns
    -------
    The files written.

    Raises
    ------
    CheckpointError, Unsupported
        As :func:`specpilot.models.gguf.load_gguf` does, and when a file cannot be written.
    """
    file = GgufFile(path)
    config = read_llama_config(file)
    tokenizer = read_tokenizer(file)
    tensors = GgufTensors(file, config)

    def contents() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        for name in tensors:
            yield name, tensors[name].contiguous().view(torch.uint8).numpy().reshape(-1)
            advance()

    try:
        out.mkdir(parents=True, exist_ok=True)
        write_safetensors(out / WEIGHTS_FILE, _header(tensors), contents())
        tokenizer.write(out)
        (out / "config.json").write_text(json.dumps(_config(config), indent=2) + "\n", encoding="utf-8")
    except WeightFileError as error:
        raise CheckpointError(str(error)) from None
    except OSError as error:
        raise CheckpointError(f"{out}: cannot write: {error.strerror}") from None
    return [out / WEIGHTS_FILE, out / "tokenizer.json", out / "tokenizer_config.json", out / "config.json"]


def _header(tensors: GgufTensors) -> bytes:
    lines: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in tensors.shapes.items():
        dtype, size = ("BF16", 2) if len(shape) == 2 else ("F32", 4)
        end = at + int(np.prod(shape)) * size
        lines[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(lines, separators=(",", ":")).encode("ascii")
    return header + b" " * (-len(header) % 8)


def _config(config: DenseConfig) -> dict[str, Any]:
    rope = config.ropes[0]
    assert rope is not None
    kind: dict[str, Any] = {"rope_type": "default"}
    if rope.factor != 1.0:
        kind = {"rope_type": "linear", "factor": rope.factor}
    return {
        "architectures": [config.architecture],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.context_length,
        "rope_parameters": {"rope_theta": rope.theta, **kind},
        "tie_word_embeddings": config.tie_word_embeddings,
        "eos_token_id": list(config.eos_ids),
        "torch_dtype": "bfloat16",
    }
