"""The one place that holds the bundled models' dimensions and training settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specpilot.models.train.dflash2 import DFlash2Shape
from specpilot.models.train.dspark import DSparkShape
from specpilot.models.train.eagle3 import Eagle3Shape
from specpilot.refengine.config import TargetConfig

__all__ = ["BUNDLED", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Settings of a training run; sizes in tokens, sequences and anchors per batch."""

    target: dict[str, object]
    tap_outputs: tuple[int, ...]
    seed: int
    pretrain_steps: int
    pretrain_rows: int
    pretrain_length: int
    pretrain_lr: float
    answer_length: int
    max_new_tokens: int
    greedy_share: float
    temperature: float
    answer_passes: int
    generation_rows: int
    draft_steps: int
    draft_sequences: int
    draft_anchors: int
    draft_lr: float

    def target_config(self, vocab_size: int, eos_ids: tuple[int, ...]) -> TargetConfig:
        return TargetConfig(vocab_size=vocab_size, eos_ids=eos_ids, **self.target)  # type: ignore[arg-type]

    def dflash2_shape(self, config: TargetConfig, mask_token_id: int) -> DFlash2Shape:
        return DFlash2Shape(**self._block_fields(config, mask_token_id))

    def dspark_shape(self, config: TargetConfig, mask_token_id: int) -> DSparkShape:
        return DSparkShape(**self._block_fields(config, mask_token_id))

    def eagle3_shape(self, config: TargetConfig) -> Eagle3Shape:
        return Eagle3Shape(
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            num_target_layers=config.num_layers,
            tap_outputs=self.tap_outputs,
            context_length=config.context_length,
        )

    def _block_fields(self, config: TargetConfig, mask_token_id: int) -> dict[str, Any]:
        return {
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
            "num_target_layers": config.num_layers,
            "mask_token_id": mask_token_id,
            "tap_outputs": self.tap_outputs,
            "context_length": config.context_length,
        }


BUNDLED = Recipe(
    target={
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_layers": 8,
        "full_attention_interval": 4,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 64,
        "rotary_dim": 16,
        "rope_theta": 100_000.0,
        "norm_eps": 1e-6,
        "context_length": 8192,
        "gdn_num_key_heads": 1,
        "gdn_num_value_heads": 2,
        "gdn_key_dim": 128,
        "gdn_value_dim": 128,
        "gdn_conv_size": 4,
        "tie_word_embeddings": True,
    },
    tap_outputs=(1, 4, 6),
    seed=20261129,
    pretrain_steps=3000,
    pretrain_rows=128,
    pretrain_length=512,
    pretrain_lr=3e-3,
    answer_length=512,
    max_new_tokens=256,
    greedy_share=0.7,
    temperature=0.7,
    answer_passes=2,
    generation_rows=4096,
    draft_steps=7000,
    draft_sequences=128,
    draft_anchors=48,
    draft_lr=2e-3,
)
