"""What a verify step costs by its rows, and how many nodes of a tree are worth it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.errors import ConfigError

__all__ = ["StepCost"]


@dataclass(frozen=True)
class StepCost:
    """Measured time of whole steps, draft included, at some numbers of rows.

    Between two numbers of rows the time is interpolated on a line, past the last one the last line goes on, and below
    the first one the time is the first's.

    Attributes
    ----------
    rows
        Verified rows, root included, increasing, the first at least 1, two or more.
    times_us
        Time of a step of so many rows, above 0; not falling, for more rows are never less work (a measurement that
        falls is noise: smooth it).
    """

    rows: tuple[int, ...]
    times_us: tuple[float, ...]

    def __post_init__(self) -> None:
        rows, times = np.array(self.rows), np.array(self.times_us)
        if (
            len(rows) < 2
            or rows.shape != times.shape
            or rows[0] < 1
            or (np.diff(rows) < 1).any()
            or not (np.isfinite(times).all() and times[0] > 0.0 and (np.diff(times) >= 0.0).all())
        ):
            raise ConfigError(
                f"step cost: got rows {self.rows} and times_us {self.times_us}, expected two or more increasing "
                "numbers of rows from 1 on and for each a time above 0 that does not fall"
            )

    def time_us(self, num_rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Time of steps of so many rows, >= 1, in microseconds; same shape."""
        rows, times = np.array(self.rows), np.array(self.times_us)
        slope = (times[-1] - times[-2]) / (rows[-1] - rows[-2])
        past = np.maximum(num_rows - rows[-1], 0)
        total: NDArray[np.float64] = np.interp(num_rows, rows, times) + past * slope
        return total

    def best_num_nodes(self, logprobs: NDArray[np.float32]) -> int:
        """How many of a tree's first nodes bring the most tokens for the time.

        With s_i the path log-probabilities and Phi(n) the sum of exp(s_i) over the first n nodes below the root, a step
        of n + 1 rows is expected to commit 1 + Phi(n) tokens: the n is taken at which (1 + Phi(n)) / c(n + 1) is
        largest, the smallest among equals. Where the cost is convex the ratio rises and then falls, and this is where
        adding exp(s) for one more row first makes it fall, the stop of CaDDTree (https://arxiv.org/abs/2606.01813); a
        cost with steps may have several such places.

        Parameters
        ----------
        logprobs : array, float32, (N,)
            In the order of the tree, the root's 0 first.

        Returns
        -------
        int
            1 to N, root included.
        """
        tokens = np.exp(logprobs.astype(np.float64)).cumsum()
        return int((tokens / self.time_us(np.arange(1, len(logprobs) + 1))).argmax()) + 1
