"""Mechanisms of speculation, each an option that is off by default; with all off an engine decodes as before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from specpilot.errors import ConfigError, RequestError

__all__ = ["MAX_TREE_NODES", "STOCK", "BatchMechanisms", "Builder", "GdnForm", "Mechanisms", "QWeights"]

Builder = Literal["chain", "best_first", "ddtree", "eagle2", "sequoia"]
GdnForm = Literal["path", "wy"]
QWeights = Literal["w12_view", "int8", "int6"]

MAX_TREE_NODES = 64
"""Most rows of a request's verify step, root included."""


@dataclass(frozen=True)
class Mechanisms:
    """How one request speculates.

    Attributes
    ----------
    builder
        What is verified of a draft: "chain", the drafter's own chain, or a tree (:mod:`specpilot.draft.builders`).
    num_nodes
        N, verified rows of a step, root included, 1 to ``MAX_TREE_NODES``. None: the drafter's block.
    num_positions
        Drafted positions, the lattice's depth, >= 1. None: what the drafter was trained for.
    is_cost_aware
        Stop a tree where its next node would cost more than it is expected to bring.
    gdn_form
        Gated DeltaNet layers of a tree: "path" has the bits of a chain, "wy" is faster and differs by rounding; judge
        mode refuses "wy".
    q_weights
        Two-level verification: the low-precision copy of the target that checks a first tree. None: one level.
    is_q_gated
        Skip the Q pass in steps where it is not expected to pay.
    has_certified_head
        Greedy tokens from an INT8 screen of the LM head with exact rescoring.
    """

    builder: Builder = "chain"
    num_nodes: int | None = None
    num_positions: int | None = None
    is_cost_aware: bool = False
    gdn_form: GdnForm = "path"
    q_weights: QWeights | None = None
    is_q_gated: bool = False
    has_certified_head: bool = False

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("builder", self.builder, get_args(Builder)),
            ("gdn_form", self.gdn_form, get_args(GdnForm)),
            ("q_weights", self.q_weights, (None, *get_args(QWeights))),
        ):
            if value not in choices:
                raise RequestError(f"{name}: got {value!r}, expected one of: {choices}", param=name)
        if self.num_nodes is not None and not 1 <= self.num_nodes <= MAX_TREE_NODES:
            raise RequestError(
                f"num_nodes: got {self.num_nodes}, expected 1 to {MAX_TREE_NODES}", param="num_nodes"
            )
        if self.num_positions is not None and self.num_positions < 1:
            raise RequestError(
                f"num_positions: got {self.num_positions}, expected 1 or more", param="num_positions"
            )
        # Options that do nothing beside the others.
        for tree_option, is_set in (
            ("is_cost_aware", self.is_cost_aware),
            ("gdn_form", self.gdn_form != "path"),
        ):
            if is_set and self.builder == "chain":
                raise RequestError(
                    f"{tree_option}: got {getattr(self, tree_option)!r} with builder 'chain'; it is an option of "
                    "trees: name a builder of trees, or leave it out",
                    param=tree_option,
                )
        if self.is_q_gated and self.q_weights is None:
            raise RequestError(
                "is_q_gated: got true without q_weights; name the copy that checks, or leave the gate out",
                param="is_q_gated",
            )


STOCK = Mechanisms()
"""Everything off: the drafter's own chain, one exact pass a step."""


@dataclass(frozen=True)
class BatchMechanisms:
    """How an engine spends rows over the requests of a step.

    Attributes
    ----------
    node_budget
        Nodes of a step shared by all its decoding requests that verify trees, roots included: the most likely ones of
        all (one heap). None: every request has its own N.
    has_drafter_blocks
        Requests draft 16, 12 or 8 rows (root included) each step, by recent acceptance and draft confidence.
    whole_prompt_rows
        Prompts of up to so many tokens enter a step whole when they would otherwise be held back; 0: never.
    prompt_rows
        Prompt rows of one step, all requests together (whole prompts aside); None: the engine's own.
    """

    node_budget: int | None = None
    has_drafter_blocks: bool = False
    whole_prompt_rows: int = 0
    prompt_rows: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("node_budget", 1), ("whole_prompt_rows", 0), ("prompt_rows", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: got {value}, expected at least {least}")
