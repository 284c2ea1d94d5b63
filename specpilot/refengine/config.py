"""Shape of a Qwen3.5 text target, read from and written to the Hugging Face ``config.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specpilot.errors import CheckpointError

__all__ = [
    "ARCHITECTURE",
    "DEFAULT_ATTENTION_INTERVAL",
    "MODEL_TYPE",
    "LayerType",
    "TargetConfig",
    "read_json_object",
]

LayerType = Literal["linear_attention", "full_attention"]

ARCHITECTURE = "Qwen3_5ForCausalLM"
MODEL_TYPE = "qwen3_5_text"
DEFAULT_ATTENTION_INTERVAL = 4
"""What transformers and SGLang assume when ``full_attention_interval`` is missing."""

_INTEGERS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "gdn_num_key_heads": "linear_num_key_heads",
    "gdn_num_value_heads": "linear_num_value_heads",
    "gdn_key_dim": "linear_key_head_dim",
    "gdn_value_dim": "linear_value_head_dim",
    "gdn_conv_size": "linear_conv_kernel_dim",
    "context_length": "max_position_embeddings",
}
"""Fields of :class:`TargetConfig` and the keys that hold them, integers >= 1."""

_OTHERS = (
    "architectures",
    "layer_types",
    "full_attention_interval",
    "partial_rotary_factor",
    "rope_parameters",
    "rms_norm_eps",
    "tie_word_embeddings",
    "eos_token_id",
)
"""Further keys that are read."""

_FIXED: dict[str, tuple[object, ...]] = {
    "model_type": (MODEL_TYPE,),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "attention_dropout": (0, 0.0),
    "attn_output_gate": (True,),
}
"""Keys that change the arithmetic, with the only values this implementation has. Missing means the first."""

_WITHOUT_EFFECT = (
    "_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "initializer_range",
    "use_cache",
    "bos_token_id",
    "pad_token_id",
    "id2label",
    "label2id",
    "problem_type",
    "is_encoder_decoder",
    "chunk_size_feed_forward",
    "mamba_ssm_dtype",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
)
"""Keys that checkpoints carry and that change no logit of a text request."""


@dataclass(frozen=True)
class TargetConfig:
    """Everything the forward pass needs to know about a target.

    ``layer_types`` has one entry a layer and follows ``full_attention_interval``: every interval-th layer is
    full attention, the rest is Gated DeltaNet. ``rotary_dim`` of the ``head_dim`` channels are rotated.
    ``gdn_key_dim`` and ``gdn_value_dim`` are the sizes of one head. ``context_length`` counts tokens, prompt
    and answer together.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    full_attention_interval: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    gdn_num_key_heads: int
    gdn_num_value_heads: int
    gdn_key_dim: int
    gdn_value_dim: int
    gdn_conv_size: int
    norm_eps: float
    context_length: int
    tie_word_embeddings: bool
    eos_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            _refuse(
                "num_attention_heads",
                self.num_heads,
                f"a multiple of num_key_value_heads ({self.num_kv_heads})",
            )
        if self.gdn_num_value_heads % self.gdn_num_key_heads:
            multiple = f"a multiple of linear_num_key_heads ({self.gdn_num_key_heads})"
            _refuse("linear_num_value_heads", self.gdn_num_value_heads, multiple)
        if self.rotary_dim % 2 or not 2 <= self.rotary_dim <= self.head_dim:
            even = f"a fraction of head_dim ({self.head_dim}) that gives an even number of channels >= 2"
            _refuse("partial_rotary_factor", self.rotary_dim / self.head_dim, even)
        if self.gdn_conv_size < 2:
            _refuse("linear_conv_kernel_dim", self.gdn_conv_size, "an integer >= 2")
        for eos_id in self.eos_ids:
            if not 0 <= eos_id < self.vocab_size:
                _refuse("eos_token_id", eos_id, f"ids below vocab_size ({self.vocab_size})")

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        return tuple(
            "linear_attention" if (layer + 1) % self.full_attention_interval else "full_attention"
            for layer in range(self.num_layers)
        )

    @property
    def gdn_conv_channels(self) -> int:
        """Channels under the short convolution: queries, keys and values."""
        return 2 * self.gdn_num_key_heads * self.gdn_key_dim + self.gdn_num_value_heads * self.gdn_value_dim

    @classmethod
    def from_json(cls, source: str | Path | Mapping[str, Any]) -> TargetConfig:
        """Read a ``config.json``: a mapping, the file, or the folder that holds it.

        Raises
        ------
        CheckpointError
            A key is missing, unknown or has a value this implementation cannot serve; the message names it.
        """
        data = source if isinstance(source, Mapping) else read_json_object(Path(source), "config.json")
        _check_fixed(data)
        integers = {field: _integer(data, key) for field, key in _INTEGERS.items()}
        theta, fraction = _rope(data)
        config = cls(
            **integers,
            full_attention_interval=_integer(data, "full_attention_interval", DEFAULT_ATTENTION_INTERVAL),
            rotary_dim=int(integers["head_dim"] * fraction),
            rope_theta=theta,
            norm_eps=_number(data, "rms_norm_eps"),
            tie_word_embeddings=_boolean(data, "tie_word_embeddings"),
            eos_ids=_eos_ids(data),
        )
        listed = data.get("layer_types")
        if listed is not None and list(listed) != list(config.layer_types):
            interval = config.full_attention_interval
            _refuse(
                "layer_types",
                listed,
                f"{list(config.layer_types)}, as full_attention_interval {interval} gives",
            )
        return config

    def to_json_dict(self, dtype: str = "bfloat16") -> dict[str, Any]:
        """The ``config.json`` that transformers and SGLang read alike.

        SGLang derives the layers from ``full_attention_interval`` and takes the rotary fraction from the top
        level, transformers reads ``layer_types`` and ``rope_parameters``; so all four are written.
        """
        fraction = self.rotary_dim / self.head_dim
        return {
            "architectures": [ARCHITECTURE],
            **{key: allowed[0] for key, allowed in _FIXED.items()},
            **{key: getattr(self, field) for field, key in _INTEGERS.items()},
            "layer_types": list(self.layer_types),
            "full_attention_interval": self.full_attention_interval,
            "partial_rotary_factor": fraction,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": fraction,
            },
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "eos_token_id": list(self.eos_ids),
            "dtype": dtype,
        }


def read_json_object(path: Path, file_name: str) -> dict[str, Any]:
    """Read a JSON object from ``path``, or from ``file_name`` inside it when it is a folder."""
    if path.is_dir():
        path = path / file_name
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; expected the {file_name} of a model folder") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path}: not valid JSON ({error}); the file is damaged, copy it again"
        ) from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: got a JSON {type(data).__name__}, expected an object")
    return data


def _refuse(key: str, got: object, expected: str) -> None:
    raise CheckpointError(f"target config, {key}: got {got!r}, expected {expected}")


def _check_fixed(data: Mapping[str, Any]) -> None:
    architectures = data.get("architectures", [ARCHITECTURE])
    if architectures != [ARCHITECTURE]:
        _refuse("architectures", architectures, f"[{ARCHITECTURE!r}]")
    for key, allowed in _FIXED.items():
        if key in data and data[key] not in allowed:
            _refuse(key, data[key], f"{allowed[0]!r}, the only value this implementation has")
    unknown = sorted(set(data).difference(_INTEGERS.values(), _OTHERS, _FIXED, _WITHOUT_EFFECT))
    if unknown:
        _refuse(
            unknown[0],
            data[unknown[0]],
            "no such key: it may change the arithmetic, and nothing here reads it",
        )


def _integer(data: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        _refuse(key, value, "an integer >= 1")
    return int(value)


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        _refuse(key, value, "a positive finite number")
    return float(value)  # type: ignore[arg-type]


def _boolean(data: Mapping[str, Any], key: str) -> bool:
    value = data.get(key)
    if not isinstance(value, bool):
        _refuse(key, value, "true or false")
    return bool(value)


def _eos_ids(data: Mapping[str, Any]) -> tuple[int, ...]:
    value = data.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        _refuse("eos_token_id", value, "a token id, a list of token ids or null")
    return tuple(ids)


def _rope(data: Mapping[str, Any]) -> tuple[float, float]:
    """Rotary base and rotated fraction of a head."""
    rope = data.get("rope_parameters")
    if not isinstance(rope, Mapping):
        _refuse("rope_parameters", rope, "an object with rope_type, rope_theta and partial_rotary_factor")
        raise AssertionError
    unknown = sorted(set(rope) - {"rope_type", "rope_theta", "partial_rotary_factor"})
    if unknown:
        _refuse(f"rope_parameters.{unknown[0]}", rope[unknown[0]], "no such key")
    if rope.get("rope_type", "default") != "default":
        _refuse("rope_parameters.rope_type", rope["rope_type"], "'default'")
    theta = _number(rope, "rope_theta")
    fraction = _number(
        {"partial_rotary_factor": data.get("partial_rotary_factor", 0.25)}, "partial_rotary_factor"
    )
    if rope.get("partial_rotary_factor", fraction) != fraction:
        twice = f"{fraction}, the top-level partial_rotary_factor"
        _refuse("rope_parameters.partial_rotary_factor", rope["partial_rotary_factor"], twice)
    return theta, fraction
