"""What the options of a request come to on this engine, or why it cannot keep them. All refusals stand here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from specpilot.draft.block_policy import BLOCK_ROWS
from specpilot.draft.builders import TreeBuilder, make_builder
from specpilot.draft.drafter import Drafter
from specpilot.draft.step_cost import StepCost
from specpilot.engines.mechanisms import MAX_TREE_NODES, STOCK, BatchMechanisms, GdnForm, Mechanisms
from specpilot.errors import RequestError, Unsupported
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.copies import TargetCopies
from specpilot.refengine.low_precision import LowPrecisionCopy
from specpilot.refengine.target import Target
from specpilot.verify.certified_head import CertifiedHead

__all__ = ["SpeculationPlan", "plan_speculation"]


@dataclass(frozen=True, eq=False)
class SpeculationPlan:
    """How one request speculates.

    Attributes
    ----------
    drafter
        None: plain decoding.
    name
        What step records call it.
    builder
        Makes trees of the drafter's lattices; None: the drafter's own chain is verified.
    max_rows
        Most rows of a step, root included; 1: nothing is drafted.
    num_positions
        Drafted positions of a step; None: 7, 11 or 15 by :class:`specpilot.draft.block_policy.BlockPolicy`.
    is_sharing
        Its nodes come from the budget of all requests of a step; ``max_rows`` still bounds them.
    gdn_form
        Of steps that verify a tree.
    q_copy
        Checks a first tree (:mod:`specpilot.refengine.two_level`); None: one level.
    has_q_gate
        Its pass is left out where it has not paid lately.
    certified_head
        For greedy tokens of requests that need no other logits; None: the full head.
    """

    drafter: Drafter | None = None
    name: str = "plain"
    builder: TreeBuilder | None = None
    max_rows: int = 1
    num_positions: int | None = 0
    is_sharing: bool = False
    gdn_form: GdnForm = "path"
    q_copy: LowPrecisionCopy | None = None
    has_q_gate: bool = False
    certified_head: CertifiedHead | None = None


def plan_speculation(
    target: Target,
    drafter: Drafter | None,
    mechanisms: Mechanisms = STOCK,
    batch: BatchMechanisms | None = None,
    step_costs: Mapping[str, StepCost] | None = None,
    copies: TargetCopies | None = None,
) -> SpeculationPlan:
    """The plan of a request.

    Parameters
    ----------
    step_costs
        What steps cost here by drafter, for trees that stop by it; None: not measured.
    copies
        Makes low-precision copies and the certified head, for the first request that asks; None: there are none.

    Raises
    ------
    RequestError
        Options that contradict each other.
    Unsupported
        Options that make sense but that this engine, target or drafter does not keep.
    """
    batch = batch or BatchMechanisms()
    _refuse_missing(target, mechanisms, copies)
    certified_head = None
    if copies is not None and mechanisms.has_certified_head:
        certified_head = copies.certified_head()
    if drafter is None:
        if replace(mechanisms, has_certified_head=False) != STOCK:
            raise RequestError(
                f"options of speculation: got {_asked_for(mechanisms)} without a drafter; name one, or leave them out",
                param="builder",
            )
        return SpeculationPlan(certified_head=certified_head)
    has_blocks = batch.has_drafter_blocks and mechanisms.num_positions is None
    num_positions = mechanisms.num_positions or drafter.block_size - 1
    longest = max(BLOCK_ROWS) - 1 if has_blocks else num_positions
    if longest > drafter.max_positions:
        asked = "drafter blocks" if has_blocks else "num_positions"
        raise Unsupported(
            f"{asked}: got {longest} positions, expected at most {drafter.max_positions}, which is what drafter "
            f"{drafter.name!r} drafts; ask for fewer"
        )
    builder, is_sharing, q_copy = None, False, None
    if copies is not None and mechanisms.q_weights is not None:
        if batch.node_budget is not None:
            raise Unsupported(
                f"q_weights: got {mechanisms.q_weights!r} on an engine with a shared node budget, which has no share "
                "for second trees; leave one of them out"
            )
        q_copy = copies.q_copy(mechanisms.q_weights)
    if mechanisms.builder == "chain" and q_copy is not None:
        # Both drafts of a cycle are verified as trees: nothing may be drawn for them.
        builder = make_builder("chain")
        max_rows = mechanisms.num_nodes or drafter.block_size
    elif mechanisms.builder == "chain":
        max_rows = min(mechanisms.num_nodes or MAX_TREE_NODES, longest + 1)
    else:
        cost = _cost_of(drafter, step_costs) if mechanisms.is_cost_aware else None
        builder = make_builder(mechanisms.builder, step_cost=cost)
        max_rows = mechanisms.num_nodes or drafter.block_size
        if batch.node_budget is not None:
            if mechanisms.builder != "best_first":
                raise Unsupported(
                    f"builder: got {mechanisms.builder!r} on an engine with a shared node budget, which is one heap of "
                    "best-first trees; ask for 'best_first' or 'chain'"
                )
            is_sharing = True
            max_rows = min(mechanisms.num_nodes or MAX_TREE_NODES, batch.node_budget)
    return SpeculationPlan(
        drafter,
        mechanisms.builder,
        builder,
        max_rows,
        None if has_blocks else num_positions,
        is_sharing,
        mechanisms.gdn_form,
        q_copy,
        mechanisms.is_q_gated,
        certified_head,
    )


def _cost_of(drafter: Drafter, step_costs: Mapping[str, StepCost] | None) -> StepCost:
    if step_costs is None or drafter.name not in step_costs:
        raise Unsupported(
            f"is_cost_aware: got true, but this engine has not measured what steps with {drafter.name!r} cost; build "
            "it with step costs, or leave the option out"
        )
    return step_costs[drafter.name]


def _refuse_missing(target: Target, mechanisms: Mechanisms, copies: TargetCopies | None) -> None:
    if mechanisms.gdn_form == "wy":
        if target.mode == "judge":
            raise Unsupported(
                "gdn_form: got 'wy' in judge mode, whose bits it does not have; ask for 'path', or use serve mode"
            )
        config = target.config
        if not isinstance(config, TargetConfig) or "linear_attention" not in config.layer_types:
            raise Unsupported(
                f"gdn_form: got 'wy', but {target.architecture} has no Gated DeltaNet layers; ask for 'path'"
            )
    for name, value in (
        ("q_weights", mechanisms.q_weights),
        ("has_certified_head", mechanisms.has_certified_head),
    ):
        if value and copies is None:
            raise Unsupported(f"{name}: got {value!r}, but this engine does not have it; leave it out")


def _asked_for(mechanisms: Mechanisms) -> str:
    """What differs from stock, NAME=VALUE."""
    changed = [(field.name, getattr(mechanisms, field.name)) for field in fields(Mechanisms)]
    return ", ".join(f"{name}={value}" for name, value in changed if value != getattr(STOCK, name))
