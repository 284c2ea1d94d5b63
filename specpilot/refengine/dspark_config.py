"""Configuration of a DSpark drafter; see :mod:`specpilot.refengine.block_config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpilot.errors import Unsupported
from specpilot.refengine.block_config import BlockConfig, ConfigValues, require
from specpilot.refengine.config import read_json_object

__all__ = ["DSPARK_ARCHITECTURES", "DSparkConfig"]

DSPARK_ARCHITECTURES = ("Qwen3DSparkModel", "DSparkDraftModel")

_INNER_KEYS = (
    "block_size",
    "mask_token",
    "mask_token_id",
    "num_target_layers",
    "projector_type",
    "target_layer_ids",
)

# As in block_config: what SGLang would compute differently, and the only value this engine computes.
_FIXED_VALUES: dict[str, tuple[Any, ...]] = {
    "projector_type": (None, "dspark"),
    "sample_from_anchor": (None, True),
    "has_embed_tokens": (None, False),
}


@dataclass(frozen=True)
class DSparkConfig(BlockConfig):
    """Dimensions of a drafter; ``block_size`` is gamma, the rows of a block and the tokens it drafts.

    Attributes
    ----------
    markov_rank
        r of the bias ``<W1[previous], W2[token]>``.
    has_confidence, confidence_with_markov
        Whether there is a confidence head, and whether it reads ``W1[previous]`` beside the hidden row.
    """

    markov_rank: int
    has_confidence: bool
    confidence_with_markov: bool

    @classmethod
    def read(cls, path: Path) -> DSparkConfig:
        """Read ``path/config.json``."""
        return cls.parse(read_json_object(path, "config.json"))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> DSparkConfig:
        """Check and take over the fields of a config.json; raises as :class:`ConfigValues` does.

        SGLang reads keys prefixed ``dspark_`` as a head bundled in another model; they are refused. A confidence head
        that ``enable_confidence_head`` does not mention is there, as SGLang has it.
        """
        if prefixed := sorted(key for key in values if key.startswith("dspark_") and values[key] is not None):
            raise Unsupported(
                f"{prefixed[0]}: got {values[prefixed[0]]!r}, expected the plain keys of a DSpark folder"
            )
        reader = ConfigValues(values, DSPARK_ARCHITECTURES, _INNER_KEYS, _FIXED_VALUES)
        for key, value in (values.get("dflash_config") or {}).items():
            # SGLang takes the top level for the mask token and the inner object for the rest.
            require(values.get(key, value) == value, key, values.get(key), f"{value!r} as in dflash_config")
        if (kind := reader.raw("markov_head_type")) != "vanilla":
            raise Unsupported(
                f"markov_head_type: got {kind!r}, expected 'vanilla', the only head computed here"
            )
        return cls(
            **reader.block_fields(),
            markov_rank=reader.positive("markov_rank"),
            has_confidence=reader.boolean("enable_confidence_head", True),
            confidence_with_markov=reader.boolean("confidence_head_with_markov", True),
        )
