"""A GGUF file of architecture ``llama`` as a dense target: its shape, and its tensors under the names and in the row
order of a Hugging Face checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from specpilot.errors import CheckpointError, Unsupported
from specpilot.models.gguf.quants import ELEMENT_TYPES, dequantise
from specpilot.models.gguf.reader import GgufFile
from specpilot.refengine.config_reader import ConfigReader
from specpilot.refengine.dense_checkpoint import dense_shapes
from specpilot.refengine.dense_config import DenseConfig, DenseLayerType
from specpilot.refengine.rope import Rope

__all__ = ["GgufTensors", "read_llama_config"]

_ARCHITECTURE = "llama"
_LAYER_TYPE: Final[tuple[DenseLayerType, ...]] = ("full_attention",)
_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def read_llama_config(file: GgufFile) -> DenseConfig:
    """Shape of the target; a ``llama.*`` key that may change the arithmetic and is not known is refused by name.

    Raises
    ------
    Unsupported
        Another architecture.
    CheckpointError
        A key is missing, unknown, or does not fit.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != _ARCHITECTURE:
        raise Unsupported(
            f"{file.path}: general.architecture: got {architecture!r}, expected {_ARCHITECTURE!r}, the only one that "
            "is read from GGUF; give the model as a Hugging Face folder"
        )
    prefix = f"{_ARCHITECTURE}."
    data = {key.removeprefix(prefix): v for key, v in file.metadata.items() if key.startswith(prefix)}
    reader = ConfigReader(data, f"{file.path}: {prefix}")
    heads, hidden = reader.integer("attention.head_count"), reader.integer("embedding_length")
    head_dim = reader.integer("attention.key_length", hidden // heads)
    reader.fixed(**{"attention.value_length": head_dim, "rope.dimension_count": head_dim})
    num_layers = reader.integer("block_count")
    vocab_size = _vocab_size(file)
    reader.fixed(vocab_size=vocab_size)
    factor = 1.0
    if reader.raw("rope.scaling.type") not in (None, "none"):
        reader.fixed(**{"rope.scaling.type": "linear"})
        factor = reader.number("rope.scaling.factor")
    config = DenseConfig(
        "LlamaForCausalLM",
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=reader.integer("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=reader.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        layer_types=_LAYER_TYPE * num_layers,
        ropes=(Rope(reader.number("rope.freq_base", 10_000.0), factor),) * num_layers,
        norm_eps=reader.number("attention.layer_norm_rms_epsilon"),
        context_length=reader.integer("context_length"),
        tie_word_embeddings="output.weight" not in file.tensors,
        eos_ids=tuple(sorted({file.metadata[key] for key in _END_KEYS if key in file.metadata})),
        score_scale=head_dim**-0.5,
    )
    reader.finish()
    return config


class GgufTensors(Mapping[str, Tensor]):
    """The file's tensors by their names in a Hugging Face checkpoint, made anew whenever one is asked for.

    Matrices are BF16, rounded to the nearest, and norms float32. llama.cpp's files hold the rows of query and key
    projections with the two channels of every rotated pair side by side; here they stand half a head apart.

    Attributes
    ----------
    shapes : mapping
        Shape of every tensor by name, in order.

    Raises
    ------
    Unsupported
        A tensor is quantised in a way that is not read.
    CheckpointError
        A tensor is missing, not expected or of a wrong shape; when it is asked for, also: a number in it is not finite.
    """

    def __init__(self, file: GgufFile, config: DenseConfig) -> None:
        self._file, self._config = file, config
        self.shapes = dense_shapes(config)
        expected = {_gguf_name(name): shape for name, shape in self.shapes.items()}
        for name, info in file.tensors.items():
            if name not in expected:
                raise CheckpointError(f"{file.path}: {name}: not a tensor of this architecture")
            if info.shape != expected[name]:
                raise CheckpointError(
                    f"{file.path}: {name}: got shape {info.shape}, expected {expected[name]} from the metadata"
                )
            if info.element_type.decode is None:
                readable = ", ".join(kind.name for kind in ELEMENT_TYPES.values() if kind.decode)
                raise Unsupported(
                    f"{file.path}: {name}: got quantisation {info.element_type.name}, expected one of: {readable}"
                )
        for name, shape in expected.items():
            if name not in file.tensors:
                raise CheckpointError(f"{file.path}: {name}: missing; expected a tensor of shape {shape}")

    def __getitem__(self, name: str) -> Tensor:
        shape = self.shapes[name]
        info = self._file.tensors[_gguf_name(name)]
        numbers = dequantise(self._file.raw(info), info.element_type)
        if not np.isfinite(numbers).all():
            raise CheckpointError(
                f"{self._file.path}: {info.name}: holds a number that is not finite; the file is damaged, copy it "
                "again"
            )
        tensor = torch.from_numpy(numbers).view(shape)
        if "q_proj" in name or "k_proj" in name:
            dim = self._config.head_dim
            tensor = tensor.view(-1, dim // 2, 2, shape[1]).transpose(1, 2).reshape(shape)
        return tensor.bfloat16() if len(shape) == 2 else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def _gguf_name(name: str) -> str:
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_NAMES[rest.removesuffix('.weight')]}.weight"


def _vocab_size(file: GgufFile) -> int:
    tokens: Any = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise CheckpointError(f"{file.path}: tokenizer.ggml.tokens: got {tokens!r}, expected the vocabulary")
    return len(tokens)
