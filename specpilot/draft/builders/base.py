"""What every tree builder offers, and how it reads a lattice."""

from __future__ import annotations

from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree
from specpilot.errors import DraftError
from specpilot_kernels.draft_tree import FlawError

__all__ = ["TreeBuilder", "arrays_of", "refuse_flaw"]


class TreeBuilder(Protocol):
    """Chooses the nodes of one verify step from a lattice.

    A builder draws nothing: the same lattice gives the same tree. Nodes stand in falling order of what the builder
    ranks them by, parents first, so that the first n nodes of a tree are a tree.
    """

    @property
    def name(self) -> str:
        """As in :class:`specpilot.engines.mechanisms.Mechanisms`."""
        ...

    def build(self, lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        """A tree of at most ``num_nodes`` >= 1 nodes, the root included.

        It has fewer where the lattice knows no more. ``logprobs`` of the tree are the drafter's.

        Raises
        ------
        DraftError
            An edge score is NaN or plus infinity, or above 0 where the scores are log-probabilities.
        """
        ...


def arrays_of(lattice: Lattice) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Candidates (D, K) int64 and edge scores (D, K, K) float32 of a lattice, contiguous."""
    return lattice.candidate_ids.contiguous().numpy(), lattice.edge_scores.contiguous().numpy()


def refuse_flaw(error: FlawError) -> NoReturn:
    """Raise :class:`DraftError` for a score that is none."""
    raise DraftError(f"{error}; the drafter's weights or the taps it was given are damaged") from error
