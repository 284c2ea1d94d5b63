"""The draft tree: nodes chosen from a lattice, the rows of one verify step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specpilot_kernels.draft_tree import check_tree

__all__ = ["DraftTree"]


@dataclass(frozen=True, eq=False)
class DraftTree:
    """N nodes in an order in which every parent stands before its children; node 0 is the root.

    Attributes
    ----------
    token_ids : array, int64, (N,)
        ``token_ids[0]`` is the root, the last committed token. No two children of one node have the same token.
    parents : array, int64, (N,)
        ``parents[0] == -1`` and ``0 <= parents[i] < i``.
    logprobs : array, float32, (N,)
        Natural-log probability of the path from the root under the drafter, as the builder ranked it; 0 for the root.
        Never above the parent's.

    Raises
    ------
    ValueError
        Something is not as stated: a shape, a dtype, a parent that is missing or stands behind its child (so no ring
        can be written down), a token twice under one parent, a log-probability that is NaN or rises.
    """

    token_ids: NDArray[np.int64]
    parents: NDArray[np.int64]
    logprobs: NDArray[np.float32]

    def __post_init__(self) -> None:
        ids, parents, logprobs = self.token_ids, self.parents, self.logprobs
        if ids.dtype != np.int64 or parents.dtype != np.int64 or logprobs.dtype != np.float32:
            raise ValueError(
                f"tree: got token_ids {ids.dtype}, parents {parents.dtype}, logprobs {logprobs.dtype}, expected int64, "
                "int64, float32"
            )
        if not (ids.flags.writeable and parents.flags.writeable and logprobs.flags.writeable):
            ids, parents, logprobs = ids.copy(), parents.copy(), logprobs.copy()
        # The check knows the depths; this fills the cached property.
        self.__dict__["depths"] = check_tree(ids, parents, logprobs)

    @classmethod
    def chain(cls, root_id: int, draft_ids: Sequence[int]) -> DraftTree:
        """The tree of one path; its log-probabilities are 0: not known."""
        num_nodes = len(draft_ids) + 1
        ids = np.array([root_id, *draft_ids], np.int64)
        return cls(ids, np.arange(-1, num_nodes - 1, dtype=np.int64), np.zeros(num_nodes, np.float32))

    @property
    def num_nodes(self) -> int:
        """N, verified rows, the root included."""
        return len(self.token_ids)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Distance from the root, (N,): a node's token stands so many places after the last committed one."""
        return check_tree(self.token_ids, self.parents, self.logprobs)

    @cached_property
    def children(self) -> list[dict[int, int]]:
        """For every node, the child's number by its token."""
        children: list[dict[int, int]] = [{} for _ in range(self.num_nodes)]
        tokens = self.token_ids.tolist()
        for node, parent in enumerate(self.parents.tolist()[1:], start=1):
            children[parent][tokens[node]] = node
        return children

    @property
    def is_chain(self) -> bool:
        return bool((self.parents[1:] == np.arange(self.num_nodes - 1)).all())

    def path(self, node: int) -> list[int]:
        """Nodes from the root to ``node``, both included."""
        path = []
        while node >= 0:
            path.append(node)
            node = int(self.parents[node])
        return path[::-1]

    def prefix(self, num_nodes: int) -> DraftTree:
        """The first ``num_nodes`` nodes, 1 to N: a tree because parents stand before their children."""
        if not 1 <= num_nodes <= self.num_nodes:
            raise ValueError(f"num_nodes: got {num_nodes}, expected 1 to {self.num_nodes}")
        return DraftTree(self.token_ids[:num_nodes], self.parents[:num_nodes], self.logprobs[:num_nodes])
