"""Configuration of a DFlash2 drafter; see :mod:`specpilot.refengine.block_config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpilot.refengine.block_config import BlockConfig, ConfigValues, require
from specpilot.refengine.config import read_json_object

__all__ = ["DFLASH2_ARCHITECTURES", "DFlash2Config"]

DFLASH2_ARCHITECTURES = ("DFlash2DraftModel",)

_INNER_KEYS = (
    "block_size",
    "conv_group_size",
    "conv_kernel_size",
    "mask_token",
    "mask_token_id",
    "num_target_layers",
    "selector_rank",
    "selector_top_k",
    "target_layer_ids",
)


@dataclass(frozen=True)
class DFlash2Config(BlockConfig):
    """Dimensions of a drafter; a block of ``block_size`` rows drafts one token fewer."""

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.block_size >= 2, "block_size", self.block_size, "2 or more (the anchor and one draft)")
        require(
            self.hidden_size % self.conv_group_size == 0,
            "dflash_config.conv_group_size",
            self.conv_group_size,
            f"a divisor of hidden_size = {self.hidden_size}",
        )
        require(
            self.selector_top_k <= self.vocab_size,
            "dflash_config.selector_top_k",
            self.selector_top_k,
            f"at most vocab_size = {self.vocab_size}",
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
        """Check and take over the fields of a config.json; raises as :class:`ConfigValues` does."""
        inner = values.get("dflash_config")
        require(isinstance(inner, dict), "dflash_config", inner, f"an object with {list(_INNER_KEYS)}")
        reader = ConfigValues(values, DFLASH2_ARCHITECTURES, _INNER_KEYS)
        return cls(
            **reader.block_fields(),
            conv_kernel_size=reader.positive("conv_kernel_size"),
            conv_group_size=reader.positive("conv_group_size"),
            selector_rank=reader.positive("selector_rank"),
            selector_top_k=reader.positive("selector_top_k"),
        )
