"""Selection and acceptance again, on recorded lattices: which tokens would a step have accepted with another tree?

The target's own tokens after the root are known, and verification accepts exactly the longest path of the tree that
they follow, so acceptance is a comparison of ids. Two means are given:

``tau``
    over all recorded steps that can be judged. Every builder is judged on the same steps.
``tau_own_steps``
    over the steps the builder itself would have taken: after a step that commits t tokens, the step t places further.
    It needs a lattice at every position of the answers. Greedy decoding in judge mode with the same builder takes
    exactly these steps, and accepts exactly these tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError
from specpilot.replay.records import ReplayStep
from specpilot.replay.steps import RecordedRequest

__all__ = ["Builder", "ReplayRow", "num_accepted", "own_steps", "replay_builder", "summarise_counts"]


class Builder(Protocol):
    """What :func:`specpilot.draft.builders.make_builder` gives."""

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree: ...


@dataclass(frozen=True)
class ReplayRow:
    """One builder at one N on one set of recorded steps.

    Attributes
    ----------
    num_steps, num_unjudged
        Steps counted; steps left out because the recording ends before the lattice does.
    mean_nodes
        Verified rows of a step, root included.
    tau, tau_own_steps
        See the module; None where no step can be judged, or where lattices between the steps are missing.
    expected_tokens
        Committed tokens of a step by the drafter's own probabilities: the mean of ``1 + sum of exp(logprob)`` over
        the nodes but the root. Equal to tau for a drafter that is calibrated. None for the oracle.
    accept_by_depth
        Share of the steps that accept a node of depth 1, 2, ...; the sum is ``tau - 1``.
    """

    builder: str
    nodes: int
    num_steps: int
    num_unjudged: int
    mean_nodes: float | None
    tau: float | None
    tau_own_steps: float | None
    expected_tokens: float | None
    accept_by_depth: tuple[float, ...]


def num_accepted(tree: DraftTree, truth: NDArray[np.int64]) -> int:
    """Drafts accepted when the target's tokens after the root are ``truth`` (T,): the length of the longest path that
    they follow."""
    parents, ids = tree.parents.tolist(), tree.token_ids.tolist()
    wanted = truth.tolist()
    node = depth = 0
    # Parents stand before their children, so one pass finds the path.
    for child in range(1, len(ids)):
        if parents[child] == node and depth < len(wanted) and ids[child] == wanted[depth]:
            node, depth = child, depth + 1
    return depth


def replay_builder(
    steps: Sequence[ReplayStep], name: str, builder: Builder, nodes: Sequence[int]
) -> Iterator[ReplayRow]:
    """Rows of one builder for every N of ``nodes``."""
    judged = [step for step in steps if step.is_whole]
    for num_nodes in nodes:
        if num_nodes < 1:
            raise ConfigError(f"nodes: got {num_nodes}, expected at least 1: the root")
        accepted = np.zeros(len(judged), np.int64)
        sizes = np.zeros(len(judged), np.int64)
        expected = np.zeros(len(judged))
        for index, step in enumerate(judged):
            tree = builder.build(step.lattice, step.root_id, num_nodes)
            accepted[index] = num_accepted(tree, step.truth)
            sizes[index] = tree.num_nodes
            expected[index] = np.exp(tree.logprobs, dtype=np.float64).sum()
        yield summarise_counts(name, num_nodes, steps, accepted, sizes, expected)


def summarise_counts(
    name: str,
    num_nodes: int,
    steps: Sequence[ReplayStep],
    accepted: NDArray[np.int64],
    sizes: NDArray[np.int64],
    expected: NDArray[np.float64] | None,
) -> ReplayRow:
    """A row from accepted drafts, N and expected tokens of the steps that can be judged, in their order."""
    judged = [step for step in steps if step.is_whole]
    count = len(judged)
    depths = range(1, int(accepted.max(initial=0)) + 1)
    return ReplayRow(
        builder=name,
        nodes=num_nodes,
        num_steps=count,
        num_unjudged=len(steps) - count,
        mean_nodes=float(sizes.mean()) if count else None,
        tau=1.0 + float(accepted.mean()) if count else None,
        tau_own_steps=_mean_of_own(judged, accepted),
        expected_tokens=None if expected is None or not count else float(expected.mean()),
        accept_by_depth=tuple(float((accepted >= depth).mean()) for depth in depths),
    )


def own_steps(steps: Sequence[ReplayStep], accepted: Sequence[int]) -> list[int] | None:
    """Places in ``steps`` of those a builder takes that accepts so many drafts at each of them; None where a lattice it
    comes to is missing."""
    by_request: dict[RecordedRequest, dict[int, int]] = defaultdict(dict)
    for index, step in enumerate(steps):
        by_request[step.request][step.position] = index
    taken: list[int] = []
    for places in by_request.values():
        position, end = min(places), max(places)
        while position <= end:
            if position not in places:
                return None
            taken.append(places[position])
            position += accepted[places[position]] + 1
    return taken


def _mean_of_own(steps: Sequence[ReplayStep], accepted: NDArray[np.int64]) -> float | None:
    taken = own_steps(steps, accepted.tolist())
    return 1.0 + float(accepted[taken].mean()) if taken else None
