"""Tree builders: which nodes of a lattice a step verifies."""

from __future__ import annotations

from collections.abc import Sequence

from specpilot.draft.builders.base import TreeBuilder
from specpilot.draft.builders.best_first import share_nodes
from specpilot.draft.step_cost import StepCost
from specpilot.engines.mechanisms import Builder
from specpilot.errors import ConfigError

__all__ = ["TreeBuilder", "make_builder", "share_nodes"]


def make_builder(
    name: Builder,
    *,
    top_k: int | None = None,
    rates: Sequence[float] | None = None,
    step_cost: StepCost | None = None,
) -> TreeBuilder:
    """A builder by its name.

    Parameters
    ----------
    name
        "chain", "best_first", "ddtree", "eagle2" or "sequoia".
    top_k
        Nodes a depth of "eagle2"; None: its default.
    rates
        Positional acceptance rates of "sequoia"; None: its default.
    step_cost
        Stop trees by this cost.

    Raises
    ------
    ConfigError
        The name is not known, or an option does not belong to it.
    """
    from specpilot.draft.builders import best_first, chain, cost_aware, ddtree, eagle2, sequoia

    for option, value, owner in (("top_k", top_k, "eagle2"), ("rates", rates, "sequoia")):
        if value is not None and name != owner:
            raise ConfigError(f"{option}: got {value} for builder {name!r}, expected it with {owner!r} only")
    builder: TreeBuilder
    if name == "chain":
        builder = chain.ChainBuilder()
    elif name == "best_first":
        builder = best_first.BestFirstBuilder()
    elif name == "ddtree":
        builder = ddtree.DDTreeBuilder()
    elif name == "eagle2":
        builder = eagle2.Eagle2Builder() if top_k is None else eagle2.Eagle2Builder(top_k)
    elif name == "sequoia":
        builder = sequoia.SequoiaBuilder() if rates is None else sequoia.SequoiaBuilder(rates)
    else:
        raise ConfigError(f"builder: got {name!r}, expected chain, best_first, ddtree, eagle2 or sequoia")
    return builder if step_cost is None else cost_aware.CostAwareBuilder(builder, step_cost)
