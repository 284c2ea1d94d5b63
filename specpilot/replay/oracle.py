"""The best any tree can do on a lattice.

The oracle keeps taking the target's own next token while it is among the drafter's candidates of that depth and the
drafter knows what follows the token before. Its tree is that path, cut to N nodes: no tree of N nodes from the same
lattice accepts more. Paper section 3.1 states it without the bound by N, which is ``N = D + 1`` here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.errors import ConfigError
from specpilot.replay.records import ReplayStep
from specpilot.replay.selection import ReplayRow, summarise_counts

__all__ = ["oracle_depth", "replay_oracle"]


def oracle_depth(lattice: Lattice, truth: NDArray[np.int64]) -> int:
    """Length of the longest path of the lattice that ``truth`` (T,), the tokens after the root, follows."""
    ids, scores = lattice.candidate_ids.numpy(), lattice.edge_scores.numpy()
    row = 0
    for depth, token in enumerate(truth.tolist()[: lattice.depth]):
        places = np.flatnonzero((ids[depth] == token) & (scores[depth, row] > -np.inf))
        if not len(places):
            return depth
        row = int(places[0])
    return min(lattice.depth, len(truth))


def replay_oracle(steps: Sequence[ReplayStep], nodes: Sequence[int]) -> Iterator[ReplayRow]:
    """Rows of the oracle for every N of ``nodes``."""
    reach = np.array([oracle_depth(step.lattice, step.truth) for step in steps], np.int64)
    for num_nodes in nodes:
        if num_nodes < 1:
            raise ConfigError(f"nodes: got {num_nodes}, expected at least 1: the root")
        accepted = np.minimum(reach, num_nodes - 1)
        yield summarise_counts("oracle", num_nodes, steps, accepted, accepted + 1, None)
