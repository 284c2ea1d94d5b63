"""Selection and acceptance again, on recorded lattices: which tokens would a step have accepted with another tree?

The target's own tokens after the root are known, and verification accepts exactly the longest path of the tree that
they follow, so acceptance is a comparison of ids. Which steps count matters as much:

``own``
    Those the builder itself would have taken: after a step that commits t tokens, the step t places further. It needs a
    lattice at every position of the answers (``specpilot replay record``). Greedy decoding in judge mode with the same
    builder takes exactly these steps, and accepts exactly these tokens.
``recorded``
    All that were recorded. Right for comparing trees on equal lattices, but not a rate of decoding: the steps are those
    of the builder that served, and with a lattice at every position easy passages, which decoding leaves in few steps,
    count by their length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError
from specpilot.replay.records import ReplayStep
from specpilot.replay.steps import RecordedRequest

__all__ = [
    "Builder",
    "Counted",
    "ReplayRow",
    "num_accepted",
    "own_steps",
    "replay_builder",
    "summarise_counts",
]

Counted = Literal["own", "recorded"]


class Builder(Protocol):
    """What :func:`specpilot.draft.builders.make_builder` gives."""

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree: ...


@dataclass(frozen=True)
class ReplayRow:
    """One builder at one N on one recording.

    Attributes
    ----------
    counted
        Whose steps the numbers below are over (see the module): "own" where the recording allows it.
    num_steps
        Steps counted. A step near the end of an answer is left out when the recording ends before its lattice does.
    mean_nodes
        Verified rows of a step, root included.
    tau
        Committed tokens of a step, bonus included; None without a step.
    tau_recorded
        The same over all recorded steps, and thus over the same steps for every builder.
    expected_tokens
        Committed tokens of a step by the drafter's own probabilities: the mean of ``1 + sum of exp(logprob)`` over
        the nodes but the root. Equal to tau for a drafter that is calibrated. None for the oracle.
    accept_by_depth
        Share of the steps that accept a node of depth 1, 2, ...; the sum is ``tau - 1``.
    """

    builder: str
    nodes: int
    counted: Counted
    num_steps: int
    mean_nodes: float | None
    tau: float | None
    tau_recorded: float | None
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
    for num_nodes in nodes:
        if num_nodes < 1:
            raise ConfigError(f"nodes: got {num_nodes}, expected at least 1: the root")
        accepted = np.zeros(len(steps), np.int64)
        sizes = np.zeros(len(steps), np.int64)
        expected = np.zeros(len(steps))
        for index, step in enumerate(steps):
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
    """A row from what every step accepts, its N and its expected tokens, each (S,)."""
    judged = np.array([index for index, step in enumerate(steps) if step.is_whole], np.int64)
    own = own_steps(steps, accepted.tolist())
    chosen = judged if own is None else np.array(own, np.int64)
    taken = accepted[chosen]
    has_steps = len(chosen) > 0
    return ReplayRow(
        builder=name,
        nodes=num_nodes,
        counted="recorded" if own is None else "own",
        num_steps=len(chosen),
        mean_nodes=float(sizes[chosen].mean()) if has_steps else None,
        tau=1.0 + float(taken.mean()) if has_steps else None,
        tau_recorded=1.0 + float(accepted[judged].mean()) if len(judged) else None,
        expected_tokens=float(expected[chosen].mean()) if expected is not None and has_steps else None,
        accept_by_depth=tuple(float((taken >= depth).mean()) for depth in range(1, taken.max(initial=0) + 1)),
    )


def own_steps(steps: Sequence[ReplayStep], accepted: Sequence[int]) -> list[int] | None:
    """Places in ``steps`` of those a builder takes that accepts so many drafts at each of them.

    An answer is left at the first step that cannot be judged. None: a lattice it comes to is missing.
    """
    by_request: dict[RecordedRequest, dict[int, int]] = defaultdict(dict)
    for index, step in enumerate(steps):
        by_request[step.request][step.position] = index
    taken: list[int] = []
    for places in by_request.values():
        position, end = min(places), max(places)
        while position <= end:
            if position not in places:
                return None
            index = places[position]
            if not steps[index].is_whole:
                break
            taken.append(index)
            position += accepted[index] + 1
    return taken
