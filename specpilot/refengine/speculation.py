"""What the options of a request come to on this engine, or why it cannot keep them. All refusals stand here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specpilot.draft.block_policy import BLOCK_ROWS
from specpilot.draft.builders import TreeBuilder, make_builder
from specpilot.draft.drafter import Drafter
from specpilot.draft.step_cost import StepCost
from specpilot.engines.mechanisms import MAX_TREE_NODES, STOCK, BatchMechanisms, GdnForm, Mechanisms
from specpilot.errors import RequestError, Unsupported
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.target import Target

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
    """

    drafter: Drafter | None = None
    name: str = "plain"
    builder: TreeBuilder | None = None
    max_rows: int = 1
    num_positions: int | None = 0
    is_sharing: bool = False
    gdn_form: GdnForm = "path"


def plan_speculation(
    target: Target,
    drafter: Drafter | None,
    mechanisms: Mechanisms = STOCK,
    batch: BatchMechanisms | None = None,
    step_costs: Mapping[str, StepCost] | None = None,
) -> SpeculationPlan:
    """The plan of a request.

    Parameters
    ----------
    step_costs
        What steps cost here by drafter, for trees that stop by it; None: not measured.

    Raises
    ------
    RequestError
        Options that contradict each other.
    Unsupported
        Options that make sense but that this engine, target or drafter does not keep.
    """
    batch = batch or BatchMechanisms()
    _refuse_missing(target, mechanisms)
    if drafter is None:
        if mechanisms != STOCK:
            raise RequestError(
                f"mechanisms: got {mechanisms} without a drafter; name one, or leave the options out",
                param="builder",
            )
        return SpeculationPlan()
    has_blocks = batch.has_drafter_blocks and mechanisms.num_positions is None
    num_positions = mechanisms.num_positions or drafter.block_size - 1
    longest = max(BLOCK_ROWS) - 1 if has_blocks else num_positions
    if longest > drafter.max_positions:
        asked = "drafter blocks" if has_blocks else "num_positions"
        raise Unsupported(
            f"{asked}: got {longest} positions, expected at most {drafter.max_positions}, which is what drafter "
            f"{drafter.name!r} drafts; ask for fewer"
        )
    builder, is_sharing = None, False
    if mechanisms.builder == "chain":
        max_rows = min(mechanisms.num_nodes or MAX_TREE_NODES, longest + 1)
    else:
        cost = _cost_of(drafter, batch, step_costs) if mechanisms.is_cost_aware else None
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
    )


def _cost_of(drafter: Drafter, batch: BatchMechanisms, step_costs: Mapping[str, StepCost] | None) -> StepCost:
    if step_costs is None or drafter.name not in step_costs:
        raise Unsupported(
            f"is_cost_aware: got true, but this engine has not measured what steps with {drafter.name!r} cost; build "
            "it with step costs, or leave the option out"
        )
    if batch.node_budget is not None:
        raise Unsupported(
            "is_cost_aware: got true on an engine with a shared node budget, which bounds steps already; leave one out"
        )
    return step_costs[drafter.name]


def _refuse_missing(target: Target, mechanisms: Mechanisms) -> None:
    if mechanisms.gdn_form == "wy":
        # TODO wy
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
        if value:
            raise Unsupported(f"{name}: got {value!r}, but this engine does not have it; leave it out")
