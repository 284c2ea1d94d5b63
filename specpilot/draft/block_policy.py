"""How many rows a request drafts next: 16, 12 or 8, by what was accepted lately and how sure the drafter is.

A block costs the drafter its rows whether they are accepted or not, so a request gets a longer one only while its
accepted drafts come near the end of the one before. Two estimates of the drafts that the next step accepts are kept,
each a running mean in which a step counts for ``RECENT`` and all before it for the rest:

* *acceptance*: the correct drafts of the steps;
* *confidence*: the correct drafts the drafter expects, the sum over depths of its probability that all drafts up to
  there are right (:func:`expected_drafts`).

Their mean is the forecast. The block is the shortest one of which the forecast fills less than ``FILL``, else the
longest. A tree's depth is capped by the block: a lattice of so many rows, root included, has one depth less.
"""

from __future__ import annotations

import numpy as np

from specpilot.draft.drafter import Draft

__all__ = ["BLOCK_ROWS", "FILL", "RECENT", "BlockPolicy", "expected_drafts"]

BLOCK_ROWS = (8, 12, 16)
"""Rows of a block, root included, shortest first."""

FILL = 0.5
"""Share of a block's drafts from which on the forecast asks for the next longer one."""

RECENT = 0.25
"""Weight of the newest step in the running means."""


class BlockPolicy:
    """The block of one request. It begins with the shortest; nothing is drawn and no clock is read."""

    def __init__(self) -> None:
        self._acceptance: float | None = None
        self._confidence: float | None = None

    @property
    def forecast(self) -> float:
        """Correct drafts expected of the next step; 0 before the first one."""
        if self._acceptance is None or self._confidence is None:
            return 0.0
        return (self._acceptance + self._confidence) / 2

    @property
    def num_rows(self) -> int:
        """Rows of the next block, root included."""
        return next((rows for rows in BLOCK_ROWS[:-1] if self.forecast < FILL * (rows - 1)), BLOCK_ROWS[-1])

    def learn(self, num_correct_drafts: int, num_expected: float) -> None:
        """Take a step in: what it accepted, and what :func:`expected_drafts` said of its draft."""
        self._acceptance = _mean(self._acceptance, num_correct_drafts)
        self._confidence = _mean(self._confidence, num_expected)


def _mean(before: float | None, new: float) -> float:
    return new if before is None else (1.0 - RECENT) * before + RECENT * new


def expected_drafts(draft: Draft) -> float:
    """Correct drafts of the chain that the drafter expects.

    By its own estimate of survival where it has one, else by the probabilities of its edges along the chain.
    """
    if draft.survival is not None:
        return float(draft.survival.double().sum())
    candidate_ids, scores = draft.lattice.candidate_ids.numpy(), draft.lattice.edge_scores.numpy()
    chain = draft.token_ids.numpy()
    picks = (candidate_ids == chain[:, None]).argmax(1)
    rows = scores[np.arange(len(chain)), np.concatenate(([0], picks[:-1]))].astype(np.float64)
    weights = np.exp(rows - rows.max(1, keepdims=True))
    taken = weights[np.arange(len(chain)), picks] / weights.sum(1)
    return float(taken.cumprod().sum())
