"""Suffix drafter: copies what followed the last tokens when they stood before, in the prompt or in the answer.

It has no weights and fits every target. With the anchor behind the committed tokens:

1. **Match.** The longest suffix that has stood before (``suffix_index.py``).
2. **Chain.** Among the places of that match the most frequent next token is drafted, the most recent place decides
   among equals; the places that agree go on voting about the token after it. A place near the end runs into the
   anchor and then into the drafts themselves, so a text with a period is drafted for as long as wanted.
3. **Length.** The chain is cut where verifying it pays best (``suffix_length.py``): without a match, or where matches
   have not helped in this request, nothing is drafted.

The idea is that of prompt lookup and of SuffixDecoding (https://arxiv.org/abs/2411.04975), here with one chain and a
stated cost of a row. A draft is a function of the request alone, so its law is 1 on the drafted token.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from specpilot.draft.drafter import Draft, DrafterState
from specpilot.draft.lattice import Lattice
from specpilot.draft.suffix_index import SuffixIndex
from specpilot.draft.suffix_length import AcceptEstimate, best_length
from specpilot.engines.mechanisms import MAX_TREE_NODES
from specpilot.errors import EngineError

__all__ = ["SuffixDrafter", "SuffixState"]

_NGRAM, _MAX_MATCH, _MAX_PLACES, _MAX_ENDS = 2, 32, 64, 8


class _Prediction(NamedTuple):
    token_id: int
    match_length: int
    agreement: float
    rate: float


class SuffixState:
    """Text of one request with its index, and how well matches have predicted it."""

    def __init__(self, max_tokens: int) -> None:
        self.index = SuffixIndex(
            max_tokens, ngram=_NGRAM, max_match=_MAX_MATCH, max_places=_MAX_PLACES, max_ends=_MAX_ENDS
        )
        self.estimate = AcceptEstimate()
        # The chain before its cut, and where its first token would stand.
        self.predictions: list[_Prediction] = []
        self.predicted_from = 0

    @property
    def num_tokens(self) -> int:
        return self.index.num_tokens

    @property
    def memory_bytes(self) -> int:
        return self.index.memory_bytes


class SuffixDrafter:
    """A :class:`specpilot.draft.Drafter` without weights.

    Parameters
    ----------
    block_size
        Most rows of a verify step, root included, 2 or more.
    row_cost
        Time of one more row in the target, as a share of a plain step; 0 always drafts the whole chain.
    """

    name = "suffix"
    target_taps: tuple[int, ...] = ()
    memory_bytes = 0
    max_positions = MAX_TREE_NODES - 1

    def __init__(self, block_size: int = 8, row_cost: float = 0.15) -> None:
        if block_size < 2:
            raise ValueError(f"block_size: got {block_size}, expected 2 or more (the root and one draft)")
        if not row_cost >= 0.0:
            raise ValueError(f"row_cost: got {row_cost}, expected 0 or more")
        self.block_size, self.row_cost = block_size, row_cost

    def new_state(self, max_tokens: int) -> SuffixState:
        return SuffixState(max_tokens)

    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        """Add n committed tokens; ``taps`` (n, 0). See :class:`specpilot.draft.Drafter`."""
        if tuple(taps.shape) != (token_ids.shape[0], 0):
            raise ValueError(
                f"taps: got shape {tuple(taps.shape)}, expected {(token_ids.shape[0], 0)}: no layer is tapped"
            )
        index = _own(state).index
        for token_id in token_ids.tolist():
            index.append(token_id)

    def propose(
        self,
        state: DrafterState,
        anchor_id: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        num_positions: int | None = None,
    ) -> Draft:
        """Draft at most ``num_positions`` tokens, or none. See :class:`specpilot.draft.Drafter`.

        ``generator`` is not advanced: nothing is drawn. ``temperature`` only decides whether ``q_rows``, all 1, are
        given.
        """
        wanted = self.block_size - 1 if num_positions is None else num_positions
        if wanted < 1:
            raise ValueError(f"num_positions: got {num_positions}, expected 1 or more")
        state = _own(state)
        _learn(state, anchor_id)
        chain = self._predict(state, anchor_id, wanted)
        state.predictions, state.predicted_from = chain, state.num_tokens + 1
        count = best_length([step.rate for step in chain], self.row_cost)
        return _certain_draft([step.token_id for step in chain[:count]], is_greedy=temperature == 0.0)

    def _predict(self, state: SuffixState, anchor_id: int, num_positions: int) -> list[_Prediction]:
        """The chain of most frequent continuations, up to where no further draft can pay."""
        index = state.index
        match = index.find(anchor_id)
        if match is None:
            return []
        chain: list[_Prediction] = []
        behind = [anchor_id]  # what stands behind the committed tokens
        ends, num_committed, reached = match.ends, index.num_tokens, 1.0
        for depth in range(num_positions):
            following = [
                index.token(end + depth)
                if end + depth < num_committed
                else behind[end + depth - num_committed]
                for end in ends
            ]
            winner, agreement = following[0], 1.0
            if following.count(winner) < len(ends):
                # The first of equals, which is the most recent place.
                winner = max(following, key=following.count)
                agreement = following.count(winner) / len(ends)
                ends = tuple(end for end, token_id in zip(ends, following, strict=True) if token_id == winner)
            length = match.length + depth
            rate = state.estimate.rate(length, agreement)
            chain.append(_Prediction(winner, length, agreement, rate))
            behind.append(winner)
            reached *= rate
            if reached < self.row_cost:
                break
        return chain


@cache
def _constants(depth: int) -> tuple[Tensor, Tensor]:
    """Edge scores 0 and probabilities 1. Kept: between two forwards of the target each call of torch finds the
    processor's caches cold and costs as much as finding the draft."""
    return torch.zeros(depth, 1, 1), torch.ones(depth, 1, dtype=torch.float64)


def _certain_draft(ids: list[int], *, is_greedy: bool) -> Draft:
    """A chain whose law is 1 on its own tokens: one candidate a depth."""
    if not ids:
        return _NOTHING
    scores, ones = _constants(len(ids))
    token_ids = torch.tensor(ids)
    return Draft(token_ids, None if is_greedy else ones, Lattice(token_ids[:, None], scores))


_NOTHING = Draft(
    torch.empty(0, dtype=torch.int64),
    torch.empty(0, 1, dtype=torch.float64),
    Lattice(torch.empty(0, 1, dtype=torch.int64), torch.empty(0, 1, 1)),
)


def _learn(state: SuffixState, anchor_id: int) -> None:
    """Compare the last chain, drafted or not, with what has been committed since."""
    index = state.index
    for offset, step in enumerate(state.predictions):
        place = state.predicted_from + offset
        if place > index.num_tokens:
            break
        is_right = step.token_id == (anchor_id if place == index.num_tokens else index.token(place))
        state.estimate.learn(step.match_length, step.agreement, is_right)
        if not is_right:
            break
    state.predictions = []


def _own(state: DrafterState) -> SuffixState:
    if not isinstance(state, SuffixState):
        raise EngineError(
            f"drafter state: got {type(state).__name__}, expected SuffixState; use a state that new_state of this "
            "drafter made"
        )
    return state
