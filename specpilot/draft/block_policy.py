"""How many rows a request drafts next: 16, 12 or 8, by what was accepted lately and how sure the drafter is.

A block costs the drafter its rows whether they are accepted or not, so a request gets a longer one only while its
accepted drafts come near the end of the one before. What the drafter expects of a draft (:func:`expected_drafts`, its
confidence) is set right by what came of the drafts before:

    forecast = expected of the last draft x (running mean of correct drafts / running mean of expected ones)

In a running mean the newest step counts for ``RECENT`` and all before it for the rest. The block is the shortest one of
which the forecast fills less than ``FILL``, else the longest. A tree's depth is capped by the block: a lattice of so
many rows, root included, has one depth less.
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
        self._correct: float | None = None
        self._expected: float | None = None
        self._last_expected = 0.0

    @property
    def forecast(self) -> float:
        """Correct drafts expected of the next step; 0 before the first one."""
        if not self._correct or not self._expected:
            return 0.0
        return self._last_expected * self._correct / self._expected

    @property
    def num_rows(self) -> int:
        """Rows of the next block, root included."""
        return next((rows for rows in BLOCK_ROWS[:-1] if self.forecast < FILL * (rows - 1)), BLOCK_ROWS[-1])

    def learn(self, num_correct_drafts: int, num_expected: float) -> None:
        """Take a step in: what it accepted, and what :func:`expected_drafts` said of its draft."""
        self._correct = _mean(self._correct, num_correct_drafts)
        self._expected = _mean(self._expected, num_expected)
        self._last_expected = num_expected


def _mean(before: float | None, new: float) -> float:
    return new if before is None else (1.0 - RECENT) * before + RECENT * new


def expected_drafts(draft: Draft) -> float:
    """Correct drafts of the chain that the drafter expects.

    By its own estimate of survival where it has one, else by the probabilities of its edges along the chain.
    """
    if draft.survival is not None:
        return float(draft.survival.double().sum())
    lattice, chain = draft.lattice, draft.token_ids.numpy()
    picks = (lattice.candidate_ids.numpy() == chain[:, None]).argmax(1)
    depths, parents = np.arange(len(chain)), np.concatenate(([0], picks[:-1]))
    rows = lattice.edge_scores.numpy()[depths, parents].astype(np.float64)
    if not lattice.are_logprobs:
        rows -= np.logaddexp.reduce(rows, 1, keepdims=True)
    return float(np.exp(rows[depths, picks]).cumprod().sum())
