"""What the configurations of block drafters (DFlash2, DSpark) share: dimensions, target taps, and strict reading.

They are the Hugging Face config.json that SGLang 0.5.20 reads. SGLang ignores what it does not know and serves on; here
a key that asks for arithmetic this engine does not have is refused by name. One top-level key is ours and optional:
``target_tap_convention`` says whether ``target_layer_ids`` mean layer inputs or layer outputs, so that a drafter
exported for another class of target is caught.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from specpilot.errors import CheckpointError, Unsupported

__all__ = ["BlockConfig", "ConfigValues", "TapConvention", "require", "resolve_target_taps", "tap_convention"]

TapConvention = Literal["layer_input", "layer_output"]

# What SGLang would compute differently for these keys, and the only value this engine computes.
_FIXED_VALUES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "use_sliding_window": (False,),
    "is_causal": (None, False),
    "partial_rotary_factor": (None, 1.0),
    "rope_is_neox_style": (None, True),
    "is_neox_style": (None, True),
    "rope_scaling": (None,),
    "quantization_config": (None,),
}


def tap_convention(architecture: str) -> TapConvention:
    """What ``target_layer_ids`` mean for a target of this class in SGLang 0.5.20.

    Every target class there translates the ids in ``set_dflash_layers_to_capture`` and its decoder records
    the residual stream *entering* a marked layer. Most classes mark layer id + 1, so an id means the output
    of that layer. ``Qwen3_5ForCausalLM`` (srt/models/qwen3_5_text.py) defines the method twice; Python keeps
    the second definition, which marks layer id itself, so there an id means the *input* of that layer.
    ``Qwen3_5ForConditionalGeneration`` inherits the usual rule from srt/models/qwen3_vl.py.
    """
    conventions: dict[str, TapConvention] = {
        "Qwen3_5ForCausalLM": "layer_input",
        "Qwen3_5ForConditionalGeneration": "layer_output",
    }
    if architecture not in conventions:
        raise Unsupported(
            f"target architecture: got {architecture!r}, expected one of {sorted(conventions)}; "
            "its tap convention is not known, so no block drafter can be attached"
        )
    return conventions[architecture]


def resolve_target_taps(architecture: str, layer_ids: tuple[int, ...], num_layers: int) -> tuple[int, ...]:
    """Translate a checkpoint's ``target_layer_ids`` into 0-based layers whose output is tapped.

    Raises
    ------
    CheckpointError
        Ids not strictly increasing (SGLang records in layer order, so another order would be silently
        permuted), or out of range. The last layer's output cannot be tapped: there is no next layer whose
        input it would be.
    """
    first = 1 if tap_convention(architecture) == "layer_input" else 0
    last = num_layers - 2 + first
    if not layer_ids or list(layer_ids) != sorted(set(layer_ids)):
        raise CheckpointError(
            f"target_layer_ids: got {list(layer_ids)}, expected strictly increasing layer ids; "
            "re-export the drafter with its taps in layer order"
        )
    if layer_ids[0] < first or layer_ids[-1] > last:
        raise CheckpointError(
            f"target_layer_ids: got {list(layer_ids)}, expected ids in {first}..{last} for "
            f"{architecture} with {num_layers} layers; this drafter belongs to another target"
        )
    return tuple(layer_id - first for layer_id in layer_ids)


def require(holds: bool, key: str, got: object, expected: object) -> None:
    if not holds:
        raise CheckpointError(
            f"{key}: got {got!r}, expected {expected}; config.json is damaged or not this kind of drafter's"
        )


class ConfigValues:
    """A config.json whose object ``dflash_config`` may hold some of the keys, and wins where both do, as in SGLang.

    Raises
    ------
    CheckpointError
        Another architecture, or a key inside ``dflash_config`` that is not in ``inner_keys``.
    Unsupported
        A key asks for arithmetic that this engine does not have.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        architectures: Sequence[str],
        inner_keys: Sequence[str],
        fixed: Mapping[str, tuple[Any, ...]] | None = None,
    ) -> None:
        got = values.get("architectures")
        require(
            got in [[name] for name in architectures], "architectures", got, f"one of {list(architectures)}"
        )
        inner = values.get("dflash_config") or {}
        if not isinstance(inner, dict):
            raise CheckpointError(
                f"dflash_config: got {inner!r}, expected an object with {sorted(inner_keys)}"
            )
        if unknown := sorted(set(inner) - set(inner_keys)):
            raise CheckpointError(
                f"dflash_config: unknown keys {unknown}, expected only {sorted(inner_keys)}; "
                "a drafter with these needs an engine that computes them"
            )
        for key, allowed in {**_FIXED_VALUES, **(fixed or {})}.items():
            if (got := values.get(key, inner.get(key, allowed[0]))) not in allowed:
                raise Unsupported(
                    f"{key}: got {got!r}, expected {allowed[-1]!r} or absent; this engine computes nothing else"
                )
        self._values = {**values, **inner}
        self._names = {key: f"dflash_config.{key}" for key in inner}

    def raw(self, key: str, default: object = None) -> Any:
        return self._values.get(key, default)

    def name(self, key: str) -> str:
        """The key as messages call it."""
        return self._names.get(key, key)

    def integer(self, key: str) -> int:
        value = self.raw(key)
        require(isinstance(value, int) and not isinstance(value, bool), self.name(key), value, "an integer")
        return int(value)

    def positive(self, key: str) -> int:
        value = self.integer(key)
        require(value >= 1, self.name(key), value, "1 or more")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self.raw(key, default)
        require(isinstance(value, bool), self.name(key), value, "true or false")
        return bool(value)

    def block_fields(self) -> dict[str, Any]:
        """The fields of :class:`BlockConfig`."""
        num_layers, layer_types = self.positive("num_hidden_layers"), self.raw("layer_types")
        if layer_types not in (None, ["full_attention"] * num_layers):
            raise Unsupported(
                f"layer_types: got {layer_types!r}, expected {num_layers} x 'full_attention' or absent"
            )
        ids = self.raw("target_layer_ids")
        is_list = isinstance(ids, list) and all(
            isinstance(item, int) and not isinstance(item, bool) for item in ids
        )
        require(is_list, self.name("target_layer_ids"), ids, "a list of layer ids")
        return {
            "hidden_size": self.positive("hidden_size"),
            "vocab_size": self.positive("vocab_size"),
            "num_layers": num_layers,
            "num_heads": self.positive("num_attention_heads"),
            "num_kv_heads": self.positive("num_key_value_heads"),
            "head_dim": self.positive("head_dim"),
            "intermediate_size": self.positive("intermediate_size"),
            "rms_norm_eps": _number(self._values, "rms_norm_eps"),
            "rope_theta": _rope_theta(self._values),
            "block_size": self.positive("block_size"),
            "num_target_layers": self.positive("num_target_layers"),
            "target_layer_ids": tuple(ids),
            "mask_token_id": self.integer("mask_token_id"),
            "target_tap_convention": self.raw("target_tap_convention"),
        }


@dataclass(frozen=True)
class BlockConfig:
    """Dimensions of a drafter. ``target_layer_ids`` are as stored; see :func:`resolve_target_taps`. ``block_size`` is
    the number of rows a block has, the anchor's included."""

    hidden_size: int
    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    block_size: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    target_tap_convention: TapConvention | None

    def __post_init__(self) -> None:
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "an even number (rotary halves)")
        require(
            self.num_heads % self.num_kv_heads == 0,
            "num_key_value_heads",
            self.num_kv_heads,
            f"a divisor of num_attention_heads = {self.num_heads}",
        )
        require(
            0 <= self.mask_token_id < self.vocab_size,
            "mask_token_id",
            self.mask_token_id,
            f"an id below vocab_size = {self.vocab_size}",
        )
        require(
            self.target_tap_convention in (None, *get_args(TapConvention)),
            "target_tap_convention",
            self.target_tap_convention,
            f"one of {get_args(TapConvention)} or absent",
        )


def _number(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise CheckpointError(f"{key}: got {value!r}, expected a number above 0")
    return float(value)


def _rope_theta(values: Mapping[str, Any]) -> float:
    """Rotary base of ``rope_parameters`` (or the older top-level ``rope_theta``); only the plain rotary form
    is computed."""
    rope = values.get("rope_parameters")
    if rope is None:
        return _number(values, "rope_theta")
    if (
        not isinstance(rope, dict)
        or set(rope) - {"rope_theta", "rope_type"}
        or rope.get("rope_type", "default") != "default"
    ):
        raise Unsupported(f"rope_parameters: got {rope!r}, expected only rope_theta and rope_type 'default'")
    return _number(rope, "rope_theta")
