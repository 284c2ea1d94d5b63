"""Configuration of an EAGLE-3 drafter: the config.json that SGLang 0.5.20 reads for ``LlamaForCausalLMEagle3``.

SGLang ignores what it does not know and serves on; here a key that is unknown, or known but not computed by this
engine, is refused by name. Three top-level keys are ours and optional: ``block_size`` (rows of a verify step, root
included; 8), ``num_target_layers`` and ``target_tap_convention``, so that a drafter of another target is caught.

**Which layers.** ``eagle_aux_hidden_state_layer_ids`` are layer *outputs*, counted from 0: every
``set_eagle3_layers_to_capture`` of SGLang 0.5.20 marks layer id + 1 and its model records the residual stream entering
a marked layer. The last layer's output cannot be tapped: no layer follows it. (Without the key SGLang takes layers 2,
n / 2 and n - 3 as *inputs*; such a config is refused here.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpilot.errors import CheckpointError
from specpilot.refengine.config import read_json_object
from specpilot.refengine.config_reader import WITHOUT_EFFECT, ConfigReader

__all__ = ["EAGLE3_ARCHITECTURE", "Eagle3Config"]

EAGLE3_ARCHITECTURE = "LlamaForCausalLMEagle3"

# What Llama configs carry beside the keys without an effect on any model.
_WITHOUT_EFFECT = (
    *WITHOUT_EFFECT,
    "attention_dropout",
    "eos_token_id",
    "max_position_embeddings",
    "pretraining_tp",
)


@dataclass(frozen=True)
class Eagle3Config:
    """Dimensions of a drafter. ``tap_layers`` are 0-based target layers whose output its features are made of."""

    hidden_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    tap_layers: tuple[int, ...]
    block_size: int = 8
    num_target_layers: int | None = None

    def __post_init__(self) -> None:
        _require(self.block_size >= 2, "block_size", self.block_size, "2 or more (the root and one draft)")
        _require(self.head_dim % 16 == 0, "head_dim", self.head_dim, "a multiple of 16, a vector register")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            "num_key_value_heads",
            self.num_kv_heads,
            f"a divisor of num_attention_heads = {self.num_heads}",
        )
        _require(
            bool(self.tap_layers) and list(self.tap_layers) == sorted(set(self.tap_layers)),
            "eagle_config.eagle_aux_hidden_state_layer_ids",
            list(self.tap_layers),
            "strictly increasing layer ids: SGLang records in layer order, another order would be permuted silently",
        )

    @classmethod
    def read(cls, path: Path) -> Eagle3Config:
        """Read ``path/config.json``."""
        return cls.parse(read_json_object(path, "config.json"))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Eagle3Config:
        """Check and take over the fields of a config.json.

        Raises
        ------
        CheckpointError
            A key is missing, unknown, of the wrong type, out of range, or asks for arithmetic that this engine does not
            have; the message names it.
        """
        _require(
            values.get("architectures") == [EAGLE3_ARCHITECTURE],
            "architectures",
            values.get("architectures"),
            [EAGLE3_ARCHITECTURE],
        )
        if values.get("draft_vocab_size") is not None:
            raise CheckpointError(
                f"EAGLE-3 config, draft_vocab_size: got {values['draft_vocab_size']!r}, expected null, which borrows "
                "the target's head; a drafter with a vocabulary and head of its own is not served"
            )
        reader = ConfigReader(values, "EAGLE-3 config, ", (*_WITHOUT_EFFECT, "draft_vocab_size"))
        reader.fixed(
            model_type="llama",
            num_hidden_layers=1,
            hidden_act="silu",
            attention_bias=False,
            mlp_bias=False,
            bias=False,
            tie_word_embeddings=False,
            norm_before_fc=False,
            fc_norm=False,
            use_aux_norm=False,
            norm_output=False,
            target_tap_convention="layer_output",
        )
        for key in ("rope_scaling", "quantization_config"):
            if (got := reader.raw(key)) is not None:
                reader.refuse(key, got, "null or absent; this engine computes nothing else")
        eagle = reader.inner("eagle_config")
        eagle.fixed(use_aux_hidden_state=True, norm_before_fc=False)
        layers = eagle.raw("eagle_aux_hidden_state_layer_ids")
        if not isinstance(layers, list):
            eagle.refuse("eagle_aux_hidden_state_layer_ids", layers, "a list of layer ids")
        taps = eagle.ids("eagle_aux_hidden_state_layer_ids")
        eagle.finish()
        hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
        reader.fixed(target_hidden_size=hidden, num_aux_hidden_states=len(taps))
        config = cls(
            hidden_size=hidden,
            vocab_size=reader.integer("vocab_size"),
            num_heads=heads,
            num_kv_heads=reader.integer("num_key_value_heads"),
            head_dim=reader.integer("head_dim", hidden // heads),
            intermediate_size=reader.integer("intermediate_size"),
            rms_norm_eps=reader.number("rms_norm_eps"),
            rope_theta=_rope_theta(reader),
            tap_layers=taps,
            block_size=reader.integer("block_size", 8),
            num_target_layers=reader.integer("num_target_layers")
            if reader.has("num_target_layers")
            else None,
        )
        reader.finish()
        return config

    def check_taps(self, num_layers: int) -> None:
        """CheckpointError unless every tapped layer exists in a target of ``num_layers`` and has one behind it."""
        _require(
            self.tap_layers[0] >= 0 and self.tap_layers[-1] <= num_layers - 2,
            "eagle_config.eagle_aux_hidden_state_layer_ids",
            list(self.tap_layers),
            f"ids in 0..{num_layers - 2} for a target of {num_layers} layers; this drafter belongs to another target",
        )


def _require(holds: bool, key: str, got: object, expected: object) -> None:
    if not holds:
        raise CheckpointError(f"EAGLE-3 config, {key}: got {got!r}, expected {expected}")


def _rope_theta(reader: ConfigReader) -> float:
    """Rotary base of ``rope_parameters`` (or the older top-level ``rope_theta``); only the plain form is computed."""
    if not reader.has("rope_parameters"):
        return reader.number("rope_theta")
    rope = reader.inner("rope_parameters")
    rope.fixed(rope_type="default")
    theta = rope.number("rope_theta")
    rope.finish()
    return theta
