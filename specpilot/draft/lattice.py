"""The lattice: a drafter's candidates by depth with an edge score from every candidate to every candidate one
deeper.

Depth t of the lattice (t = 0 .. D-1) proposes the token t + 1 places after the root, the last committed
token. Chains and draft trees are both read off a lattice; a drafter without edge scores is the special case
of equal rows. A drafter that runs along its own chain knows what follows the chain's tokens and no others: all edges
from a candidate whose successors are not known are minus infinity, so that neither a chain nor a tree goes on there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from specpilot_kernels.draft_candidates import greedy_chain

__all__ = ["Lattice"]


@dataclass(frozen=True, eq=False)
class Lattice:
    """Candidates and edge scores of one draft.

    Attributes
    ----------
    candidate_ids : Tensor, int64, (D, K)
        Token ids proposed at each depth; no id twice among the known children of one candidate. A drafter that grows a
        tree has a column for each node of a depth: the same token may then stand there under several parents.
    edge_scores : Tensor, float32, (D, K, K)
        ``edge_scores[t, p, c]`` is the score of candidate ``c`` at depth t when candidate ``p`` was taken at depth
        t - 1. Depth 0 follows the root, so only its row 0 has a meaning. Minus infinity: the candidate does not
        follow; a whole row of it: what follows is not known.
    are_logprobs : bool
        The scores are natural-log probabilities as they stand, each at most 0, and the mass that is missing in a row
        lies outside the candidates. False: they are unnormalised, a row's softmax says what follows, and no mass lies
        outside.
    """

    candidate_ids: Tensor
    edge_scores: Tensor
    are_logprobs: bool = False

    def __post_init__(self) -> None:
        if self.candidate_ids.ndim != 2 or self.edge_scores.shape != (*self.candidate_ids.shape, self.width):
            raise ValueError(
                f"lattice: candidate_ids {tuple(self.candidate_ids.shape)} and edge_scores "
                f"{tuple(self.edge_scores.shape)} do not fit; expected (D, K) and (D, K, K)"
            )

    @property
    def depth(self) -> int:
        """D, the number of drafted positions."""
        return self.candidate_ids.shape[0]

    @property
    def width(self) -> int:
        """K, the number of candidates at each depth."""
        return self.candidate_ids.shape[1]

    @cached_property
    def edge_logprobs(self) -> Tensor:
        """Natural-log probability of a candidate given the one before it, float32, (D, K, K); minus infinity in rows
        that are not known."""
        if self.are_logprobs:
            return self.edge_scores
        is_known = self.edge_scores.amax(-1, keepdim=True) > -torch.inf
        return torch.log_softmax(self.edge_scores, dim=-1).masked_fill(~is_known, -torch.inf)

    def greedy_chain(self) -> Tensor:
        """Follow the best edge from the root.

        Returns
        -------
        Tensor, int64, (D,)
            Token ids. Among equal scores the lowest token id wins, whatever the candidates' order.

        Raises
        ------
        ValueError
            The chain comes to a candidate after which nothing is known.
        """
        ids, edges = self.candidate_ids.contiguous(), self.edge_scores.contiguous()
        chain = greedy_chain(ids.numpy(), edges.numpy())
        if len(chain) and chain[-1] < 0:
            raise _unknown(int((chain < 0).argmax()))
        return torch.from_numpy(chain)

    def sample_chain(self, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw a chain, each token from softmax(score / temperature) of the row the chain has reached.

        Parameters
        ----------
        temperature
            Above 0.
        generator
            Advanced by D * K float64 draws, whatever the scores.

        Returns
        -------
        ids : Tensor, int64, (D,)
        q_rows : Tensor, float64, (D, K)
            The law each token was drawn from, over the candidates of its depth.

        Raises
        ------
        ValueError
            No temperature above 0, or the chain comes to a candidate after which nothing is known.
        """
        if not temperature > 0.0:
            raise ValueError(
                f"temperature: got {temperature}, expected a number above 0 (greedy_chain draws nothing)"
            )
        scores = self.edge_scores.double() / temperature
        # Gumbel-max: argmax(score + g) with g = -log(exponential) has law softmax(score). One noise row per
        # depth is enough because a chain visits one parent per depth.
        noise = torch.empty(self.candidate_ids.shape, dtype=torch.float64, device=scores.device)
        noise = noise.exponential_(generator=generator).log_().neg_()
        child_of = (scores + noise[:, None, :]).argmax(-1).tolist()
        parents, picks, row = [], [], 0
        for children in child_of:
            parents.append(row)
            row = children[row]
            picks.append(row)
        depths = torch.arange(self.depth, device=scores.device)
        ids = self.candidate_ids[depths, torch.tensor(picks, device=scores.device)]
        rows = scores[depths, torch.tensor(parents, device=scores.device)]
        highest = rows.amax(-1, keepdim=True)
        if self.depth and float(highest.min()) == -torch.inf:
            raise _unknown(int(highest[:, 0].argmin()))
        # Written out: torch.softmax wakes all threads even for a few numbers, which can cost milliseconds.
        weights = (rows - highest).exp()
        return ids, weights / weights.sum(-1, keepdim=True)


def _unknown(depth: int) -> ValueError:
    return ValueError(
        f"lattice: the chain leaves what the drafter knows, at depth {depth}; take the chain of the draft it came with"
    )
