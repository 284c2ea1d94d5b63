"""Every mechanism that is lossless by construction, as arms of the bundled model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.engines.base import NumericMode
from specpilot.engines.mechanisms import STOCK, BatchMechanisms, Mechanisms
from specpilot.forcing.answer import Answer
from specpilot.forcing.collect import Prompt, collect_answers
from specpilot.models.build import build_engine

__all__ = ["LOSSLESS", "LosslessArm"]


@dataclass(frozen=True)
class LosslessArm:
    """A drafter (None: plain decoding) with mechanisms, in judge mode unless the mechanism is not for it."""

    name: str
    drafter: str | None = "dflash2"
    mechanisms: Mechanisms = STOCK
    batch: BatchMechanisms | None = None
    mode: NumericMode = "judge"

    def answers(self, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Answer]:
        engine = build_engine(
            mode=self.mode,
            max_running=8,
            max_waiting=len(prompts),
            batch=self.batch,
            has_step_costs=self.mechanisms.is_cost_aware,
        )
        return collect_answers(
            engine, prompts, max_new_tokens, drafter=self.drafter, mechanisms=self.mechanisms
        )


_TREE = Mechanisms("best_first", 16)

LOSSLESS = (
    LosslessArm("plain decoding", None),
    LosslessArm("chain, dspark", "dspark"),
    LosslessArm("chain, eagle3", "eagle3"),
    LosslessArm("chain, suffix", "suffix"),
    LosslessArm("best_first", mechanisms=_TREE),
    LosslessArm("best_first, wide", mechanisms=Mechanisms("best_first", 32, 15)),
    LosslessArm("best_first, dspark", "dspark", _TREE),
    LosslessArm("best_first, eagle3", "eagle3", _TREE),
    LosslessArm("best_first, suffix attached", "dflash2+suffix", _TREE),
    LosslessArm("best_first, cost aware", mechanisms=Mechanisms("best_first", 16, is_cost_aware=True)),
    LosslessArm("ddtree", mechanisms=Mechanisms("ddtree", 16)),
    LosslessArm("eagle2", mechanisms=Mechanisms("eagle2", 16)),
    LosslessArm("sequoia", mechanisms=Mechanisms("sequoia", 16)),
    LosslessArm("two levels, w12_view", mechanisms=Mechanisms("best_first", 16, q_weights="w12_view")),
    LosslessArm("two levels, int8", mechanisms=Mechanisms("best_first", 16, q_weights="int8")),
    LosslessArm(
        "two levels, int6, gated", mechanisms=Mechanisms("best_first", 16, q_weights="int6", is_q_gated=True)
    ),
    LosslessArm("certified head", mechanisms=Mechanisms(has_certified_head=True)),
    LosslessArm(
        "shared node budget", mechanisms=Mechanisms("best_first"), batch=BatchMechanisms(node_budget=64)
    ),
    LosslessArm("drafter blocks", mechanisms=_TREE, batch=BatchMechanisms(has_drafter_blocks=True)),
    LosslessArm("whole prompts", mechanisms=_TREE, batch=BatchMechanisms(whole_prompt_rows=384)),
    LosslessArm("serve mode, chain", mode="serve"),
    LosslessArm("serve mode, WY tree", mechanisms=Mechanisms("best_first", 16, gdn_form="wy"), mode="serve"),
)
