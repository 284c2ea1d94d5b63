"""Configuration of a DFlash2 drafter: the Hugging Face config.json that SGLang 0.5.20 reads, checked before
serving.

SGLang ignores what it does not know and serves on; here a key that is unknown, or known but not computed by
this engine, is refused by name. One top-level key is ours and optional: ``target_tap_convention`` says
whether ``target_layer_ids`` mean layer inputs or layer outputs, so that a drafter exported for another class
of target is caught.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from specpilot.errors import CheckpointError, Unsupported
from specpilot.refengine.config import read_json_object

__all__ = ["DFlash2Config", "TapConvention", "resolve_target_taps", "tap_convention"]

TapConvention = Literal["layer_input", "layer_output"]

_ARCHITECTURE = "DFlash2DraftModel"

_DFLASH_KEYS = {
    "block_size",
    "conv_group_size",
    "conv_kernel_size",
    "mask_token",
    "mask_token_id",
    "num_target_layers",
    "selector_rank",
    "selector_top_k",
    "target_layer_ids",
}

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
            "its tap convention is not known, so a DFlash2 drafter cannot be attached"
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
            f"dflash_config.target_layer_ids: got {list(layer_ids)}, expected strictly increasing layer ids; "
            "re-export the drafter with its taps in layer order"
        )
    if layer_ids[0] < first or layer_ids[-1] > last:
        raise CheckpointError(
            f"dflash_config.target_layer_ids: got {list(layer_ids)}, expected ids in {first}..{last} for "
            f"{architecture} with {num_layers} layers; this drafter belongs to another target"
        )
    return tuple(layer_id - first for layer_id in layer_ids)


@dataclass(frozen=True)
class DFlash2Config:
    """Dimensions of a drafter. ``target_layer_ids`` are as stored; see :func:`resolve_target_taps`."""

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
    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int
    target_tap_convention: TapConvention | None

    def __post_init__(self) -> None:
        _require(self.block_size >= 2, "block_size", self.block_size, "2 or more (the anchor and one draft)")
        _require(
            self.head_dim % 16 == 0, "head_dim", self.head_dim, "a multiple of 16, which the kernels take"
        )
        _require(
            self.num_heads % self.num_kv_heads == 0,
            "num_key_value_heads",
            self.num_kv_heads,
            f"a divisor of num_attention_heads = {self.num_heads}",
        )
        _require(
            self.hidden_size % self.conv_group_size == 0,
            "dflash_config.conv_group_size",
            self.conv_group_size,
            f"a divisor of hidden_size = {self.hidden_size}",
        )
        _require(
            0 <= self.mask_token_id < self.vocab_size,
            "dflash_config.mask_token_id",
            self.mask_token_id,
            f"an id below vocab_size = {self.vocab_size}",
        )
        _require(
            self.selector_top_k <= self.vocab_size,
            "dflash_config.selector_top_k",
            self.selector_top_k,
            f"at most vocab_size = {self.vocab_size}",
        )
        _require(
            self.target_tap_convention in (None, *get_args(TapConvention)),
            "target_tap_convention",
            self.target_tap_convention,
            f"one of {get_args(TapConvention)} or absent",
        )

    @property
    def num_groups(self) -> int:
        """Channel groups that share a dynamic convolution coefficient."""
        return self.hidden_size // self.conv_group_size

    @classmethod
    def read(cls, path: Path) -> DFlash2Config:
        """Read ``path/config.json``."""
        return cls.parse(read_json_object(path, "config.json"))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> DFlash2Config:
        """Check and take over the fields of a config.json.

        Raises
        ------
        CheckpointError
            A key is missing, of the wrong type, out of range, or unknown inside ``dflash_config``.
        Unsupported
            A key asks for arithmetic that this engine does not have.
        """
        _require(
            values.get("architectures") == [_ARCHITECTURE],
            "architectures",
            values.get("architectures"),
            [_ARCHITECTURE],
        )
        dflash = values.get("dflash_config")
        if not isinstance(dflash, dict):
            raise CheckpointError(
                f"dflash_config: got {dflash!r}, expected an object with {sorted(_DFLASH_KEYS)}"
            )
        if unknown := sorted(set(dflash) - _DFLASH_KEYS):
            raise CheckpointError(
                f"dflash_config: unknown keys {unknown}, expected only {sorted(_DFLASH_KEYS)}; "
                "a drafter with these needs an engine that computes them"
            )
        for key, allowed in _FIXED_VALUES.items():
            if (got := values.get(key, allowed[0])) not in allowed:
                raise Unsupported(
                    f"{key}: got {got!r}, expected {allowed[-1]!r} or absent; "
                    "this engine computes nothing else"
                )
        num_layers = _positive(values, "num_hidden_layers")
        layer_types = values.get("layer_types")
        if layer_types not in (None, ["full_attention"] * num_layers):
            raise Unsupported(
                f"layer_types: got {layer_types!r}, expected {num_layers} x 'full_attention' or absent"
            )
        # As SGLang reads them: these two may stand inside dflash_config (which wins) or at the top level.
        merged = {**values, **{f"dflash_config.{key}": value for key, value in dflash.items()}}
        return cls(
            hidden_size=_positive(values, "hidden_size"),
            vocab_size=_positive(values, "vocab_size"),
            num_layers=num_layers,
            num_heads=_positive(values, "num_attention_heads"),
            num_kv_heads=_positive(values, "num_key_value_heads"),
            head_dim=_positive(values, "head_dim"),
            intermediate_size=_positive(values, "intermediate_size"),
            rms_norm_eps=_number(values, "rms_norm_eps"),
            rope_theta=_rope_theta(values),
            block_size=_positive(
                merged, "dflash_config.block_size" if "block_size" in dflash else "block_size"
            ),
            num_target_layers=_positive(
                merged,
                "dflash_config.num_target_layers" if "num_target_layers" in dflash else "num_target_layers",
            ),
            target_layer_ids=_layer_ids(dflash.get("target_layer_ids")),
            mask_token_id=_integer(merged, "dflash_config.mask_token_id"),
            conv_kernel_size=_positive(merged, "dflash_config.conv_kernel_size"),
            conv_group_size=_positive(merged, "dflash_config.conv_group_size"),
            selector_rank=_positive(merged, "dflash_config.selector_rank"),
            selector_top_k=_positive(merged, "dflash_config.selector_top_k"),
            target_tap_convention=values.get("target_tap_convention"),
        )


def _require(holds: bool, key: str, got: object, expected: object) -> None:
    if not holds:
        raise CheckpointError(
            f"{key}: got {got!r}, expected {expected}; config.json is damaged or not a DFlash2 drafter's"
        )


def _integer(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(
            f"{key}: got {value!r}, expected an integer; config.json is damaged or not a DFlash2 drafter's"
        )
    return value


def _positive(values: Mapping[str, Any], key: str) -> int:
    value = _integer(values, key)
    _require(value >= 1, key, value, "1 or more")
    return value


def _number(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise CheckpointError(f"{key}: got {value!r}, expected a number above 0")
    return float(value)


def _layer_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(item, int) and not isinstance(item, bool) for item in value
    ):
        raise CheckpointError(f"dflash_config.target_layer_ids: got {value!r}, expected a list of layer ids")
    return tuple(value)


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
