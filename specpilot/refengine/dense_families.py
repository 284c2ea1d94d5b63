"""Reading the ``config.json`` of the dense families: Llama, Qwen3, Gemma 3 text and Muse Glimmer's text part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from specpilot.errors import CheckpointError
from specpilot.refengine.config import read_json_object
from specpilot.refengine.config_reader import WITHOUT_EFFECT, ConfigReader
from specpilot.refengine.dense_config import DenseConfig, DenseLayerType
from specpilot.refengine.rope import Llama3Stretch, Rope

__all__ = ["DENSE_ARCHITECTURES", "read_dense_config"]

_TYPES: Final[tuple[DenseLayerType, ...]] = ("full_attention", "sliding_attention")
_VISION_KEYS = (
    "vision_config",
    "image_token_id",
    "video_token_id",
    "out_hidden_size",
    "projector_hidden_size",
    "projector_hidden_act",
)


def read_dense_config(source: str | Path | Mapping[str, Any]) -> DenseConfig:
    """Read a ``config.json``: a mapping, the file, or the folder that holds it.

    Raises
    ------
    CheckpointError
        The architecture is not of a dense family, or a key is missing, unknown or has a value this implementation
        cannot serve; the message names it.
    """
    data = source if isinstance(source, Mapping) else read_json_object(Path(source), "config.json")
    names = data.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    if name not in _READERS:
        known = ", ".join(_READERS)
        raise CheckpointError(f"target config, architectures: got {names!r}, expected one of: {known}")
    reader = ConfigReader(data)
    config = _READERS[name](reader)
    reader.finish()
    return config


def _llama(reader: ConfigReader) -> DenseConfig:
    reader.fixed(
        model_type="llama", hidden_act="silu", mlp_bias=False, pretraining_tp=1, rope_interleaved=False
    )
    sizes = _sizes(reader)
    num_layers = reader.integer("num_hidden_layers")
    return DenseConfig(
        "LlamaForCausalLM",
        **sizes,
        layer_types=_TYPES[:1] * num_layers,
        ropes=(_rope_of(reader, default_theta=10_000.0),) * num_layers,
        tie_word_embeddings=reader.boolean("tie_word_embeddings", False),
        score_scale=sizes["head_dim"] ** -0.5,
    )


def _qwen3(reader: ConfigReader) -> DenseConfig:
    reader.fixed(model_type="qwen3", hidden_act="silu")
    sizes = _sizes(reader, default_head_dim=128)
    num_layers = reader.integer("num_hidden_layers")
    listed = reader.words("layer_types", _TYPES, num_layers)
    window, first = reader.raw("sliding_window"), reader.integer("max_window_layers", 28)
    if not reader.boolean("use_sliding_window", False):
        window, first = None, num_layers
    types = listed or tuple(_TYPES[layer >= first] for layer in range(num_layers))
    return DenseConfig(
        "Qwen3ForCausalLM",
        **sizes,
        layer_types=types,
        ropes=(_rope_of(reader, default_theta=10_000.0),) * num_layers,
        tie_word_embeddings=reader.boolean("tie_word_embeddings", False),
        score_scale=sizes["head_dim"] ** -0.5,
        window=None if window is None else reader.integer("sliding_window"),
        qk_norm="scaled",
    )


def _gemma3(reader: ConfigReader) -> DenseConfig:
    reader.fixed(model_type="gemma3_text", hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=None)
    reader.fixed(use_bidirectional_attention=False)
    sizes = _sizes(reader, default_head_dim=256)
    num_layers = reader.integer("num_hidden_layers")
    older = reader.integer("sliding_window_pattern", 6)
    pattern = reader.integer("_sliding_window_pattern", older)
    types = reader.words("layer_types", _TYPES, num_layers) or tuple(
        _TYPES[bool((layer + 1) % pattern)] for layer in range(num_layers)
    )
    if reader.has("rope_parameters"):
        both = reader.inner("rope_parameters")
        ropes = {kind: _rope(both.inner(kind)) for kind in _TYPES}
        both.finish()
    else:
        ropes = {
            "full_attention": _rope_of(reader, default_theta=1_000_000.0),
            "sliding_attention": Rope(reader.number("rope_local_base_freq", 10_000.0)),
        }
    return DenseConfig(
        "Gemma3ForCausalLM",
        **sizes,
        layer_types=types,
        ropes=tuple(ropes[kind] for kind in types),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", True),
        score_scale=reader.number("query_pre_attn_scalar", 256) ** -0.5,
        window=reader.integer("sliding_window", 4096),
        qk_norm="scaled",
        has_post_norms=True,
        post_norm_eps=sizes["norm_eps"],
        is_norm_centred=True,
        is_final_norm_centred=True,
        activation="gelu_tanh",
        embedding_scale=math.sqrt(sizes["hidden_size"]),
        logit_cap=reader.optional_number("final_logit_softcapping"),
    )


def _muse_glimmer(outer: ConfigReader) -> DenseConfig:
    """The text part; images are not served, and what belongs to them changes no text."""
    outer.fixed(model_type="muse_glimmer")
    for key in _VISION_KEYS:
        outer.raw(key)
    reader = outer.inner("text_config", WITHOUT_EFFECT)
    reader.fixed(model_type="muse_glimmer_text", hidden_activation="silu")
    sizes = _sizes(reader)
    num_layers = reader.integer("num_hidden_layers")
    types = reader.words("layer_types", _TYPES, num_layers) or tuple(
        _TYPES[bool((num_layers - 1 - layer) % 4)] for layer in range(num_layers)
    )
    shared = _rope_of(reader, default_theta=500_000.0)
    thetas = reader.raw("layer_rope_theta")
    if thetas is None:
        thetas = [shared.theta if (num_layers - 1 - layer) % 4 else 0 for layer in range(num_layers)]
    # The model's code rotates with the shared base wherever a layer's own is not 0.
    if not isinstance(thetas, list) or len(thetas) != num_layers or not set(thetas) <= {0, shared.theta}:
        reader.refuse("layer_rope_theta", thetas, f"{num_layers} numbers, each 0 or {shared.theta}")
    config = DenseConfig(
        "MuseGlimmerForConditionalGeneration",
        **sizes,
        layer_types=types,
        ropes=tuple(shared if theta else None for theta in thetas),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", False),
        score_scale=reader.number("qk_scale_factor") * sizes["head_dim"] ** -0.5,
        window=reader.integer("sliding_window"),
        qk_norm="unit",
        has_attention_gate=True,
        has_post_norms=True,
        post_norm_eps=reader.number("post_norm_eps"),
        is_norm_centred=True,
        has_embedding_norm=True,
        logit_scale=reader.number("output_multiplier"),
        logit_cap=reader.number("final_logit_softcapping"),
        tensor_prefix="model.language_model.",
    )
    reader.finish()
    return config


_READERS: dict[str, Callable[[ConfigReader], DenseConfig]] = {
    "LlamaForCausalLM": _llama,
    "Qwen3ForCausalLM": _qwen3,
    "Gemma3ForCausalLM": _gemma3,
    "MuseGlimmerForConditionalGeneration": _muse_glimmer,
}

DENSE_ARCHITECTURES = tuple(_READERS)
"""What ``architectures`` may name."""


def _sizes(reader: ConfigReader, default_head_dim: int | None = None) -> dict[str, Any]:
    """Fields that all families spell alike."""
    reader.fixed(attention_bias=False)
    if reader.raw("attention_dropout") not in (None, 0):
        reader.refuse("attention_dropout", reader.raw("attention_dropout"), "0")
    hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    return {
        "vocab_size": reader.integer("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": reader.integer("intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": reader.integer("num_key_value_heads", heads),
        "head_dim": reader.integer("head_dim", default_head_dim or hidden // heads),
        "norm_eps": reader.number("rms_norm_eps"),
        "context_length": reader.integer("max_position_embeddings"),
        "eos_ids": reader.ids("eos_token_id"),
    }


def _rope_of(reader: ConfigReader, default_theta: float) -> Rope:
    """``rope_parameters``, or the older ``rope_theta`` beside ``rope_scaling``."""
    if reader.has("rope_parameters"):
        return _rope(reader.inner("rope_parameters"))
    theta = reader.number("rope_theta", default_theta)
    reader.raw("rope_parameters")
    return _rope(reader.inner("rope_scaling"), theta) if reader.has("rope_scaling") else Rope(theta)


def _rope(reader: ConfigReader, theta: float | None = None) -> Rope:
    kind, older = reader.raw("rope_type"), reader.raw("type")
    kind = kind or older or "default"
    if kind not in ("default", "linear", "llama3"):
        reader.refuse("rope_type", kind, "default, linear or llama3")
    theta = reader.number("rope_theta", theta)
    factor = 1.0 if kind == "default" else reader.number("factor")
    stretch = None
    if kind == "llama3":
        low, high = reader.number("low_freq_factor"), reader.number("high_freq_factor")
        if low >= high:
            reader.refuse("high_freq_factor", high, f"a number above low_freq_factor ({low})")
        stretch = Llama3Stretch(low, high, reader.integer("original_max_position_embeddings"))
    reader.finish()
    return Rope(theta, factor, stretch)
