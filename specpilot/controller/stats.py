"""Gains of a candidate over a control: from output rates to one number with an interval.

A *gain* is the ratio of output rates, as the paper defines it: the geometric mean over requests of per-request ratios
for each benchmark and batch size (a *cell*), then the equal-weight geometric mean over cells. Everything here works on
natural logarithms of ratios, so that geometric means are means; 0.03 is about +3%.

The sampling unit is the request. One request appears at every batch size of its benchmark and in every paired run, so
its values are averaged before a variance is taken: intervals are clustered by request and stratified by benchmark. What
is common to all requests of a run (a drifting clock, a warmer device) does not show in them; ``noise.py`` adds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specpilot.controller.student import t_quantile
from specpilot.errors import ConfigError

__all__ = ["Gain", "LogRatios", "RatePair", "bootstrap_bounds", "log_ratios", "measure_gain", "welch_dof"]

# Per benchmark, float64, (requests, batch sizes, paired runs): log(candidate's rate / control's rate).
LogRatios = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class RatePair:
    """Output rates of one request in both arms of one paired run, output tokens a second, prefill included."""

    benchmark: str
    batch_size: int
    request_id: str
    run: int
    candidate_tok_s: float
    control_tok_s: float


@dataclass(frozen=True)
class Gain:
    """An estimate in log units with what is needed to put an interval around it.

    Attributes
    ----------
    log_gain
        Natural log of the gain.
    se
        Standard error over requests, clustered; closed form.
    dof
        Its degrees of freedom (Satterthwaite over benchmarks), at least 1.
    cells
        Log gain of each (benchmark, batch size).
    by_run
        Log gain of each paired run alone.
    """

    log_gain: float
    se: float
    dof: int
    cells: Mapping[tuple[str, int], float]
    by_run: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return math.exp(self.log_gain)

    @property
    def half_gap(self) -> float:
        """Runs of one order of slots or turns minus those of the other, log units; 0 with a single run."""
        if len(self.by_run) < 2:
            return 0.0
        return float(np.mean(self.by_run[0::2]) - np.mean(self.by_run[1::2]))

    def lower(self, alpha: float) -> float:
        """The one-sided lower bound at level ``alpha``, log units."""
        return self.log_gain - t_quantile(1.0 - alpha, self.dof) * self.se


def log_ratios(pairs: Iterable[RatePair]) -> tuple[LogRatios, tuple[int, ...]]:
    """Arrange pairs by benchmark, and the batch sizes in order.

    Raises
    ------
    ConfigError
        A request lacks a batch size or a run, occurs twice, or a rate is not a positive finite number: intervals that
        skip values would depend on which ones were skipped.
    """
    table: dict[tuple[str, str, int, int], float] = {}
    for pair in pairs:
        rates = (pair.candidate_tok_s, pair.control_tok_s)
        if not all(math.isfinite(rate) and rate > 0.0 for rate in rates):
            raise ConfigError(
                f"request {pair.request_id}: got output rates {rates}, expected positive numbers"
            )
        key = (pair.benchmark, pair.request_id, pair.batch_size, pair.run)
        if key in table:
            raise ConfigError(f"request {pair.request_id}: got two values of batch size and run {key[2:]}")
        table[key] = math.log(pair.candidate_tok_s / pair.control_tok_s)
    if not table:
        raise ConfigError("rates: got none, expected at least two requests a benchmark")
    sizes = sorted({key[2] for key in table})
    runs = sorted({key[3] for key in table})
    requests: dict[str, list[str]] = {}
    for benchmark, request_id in sorted({key[:2] for key in table}):
        requests.setdefault(benchmark, []).append(request_id)
    if len(table) != sum(map(len, requests.values())) * len(sizes) * len(runs):
        raise ConfigError(
            f"rates: got {len(table)} values, expected every request at batch sizes {sizes} in runs {runs}"
        )
    arrays = {
        benchmark: np.array(
            [[[table[benchmark, one, size, run] for run in runs] for size in sizes] for one in ids]
        )
        for benchmark, ids in requests.items()
    }
    return arrays, tuple(sizes)


def measure_gain(ratios: LogRatios, batch_sizes: Sequence[int]) -> Gain:
    """The gain over all cells, each with the same weight.

    Closed form: with u_i the mean of request i over batch sizes and runs, the gain is the mean over benchmarks of
    mean(u) and its variance is the mean's: sum over benchmarks of var(u) / n, over the square of their number.
    """
    clusters = _clusters(ratios)
    parts = [values.var(ddof=1) / len(values) / len(clusters) ** 2 for values in clusters]
    runs = np.mean([values.mean(axis=(0, 1)) for values in ratios.values()], axis=0)
    return Gain(
        log_gain=float(np.mean([values.mean() for values in clusters])),
        se=math.sqrt(sum(parts)),
        dof=welch_dof(parts, [len(values) - 1 for values in clusters]),
        cells={
            (benchmark, size): float(values[:, index].mean())
            for benchmark, values in ratios.items()
            for index, size in enumerate(batch_sizes)
        },
        by_run=tuple(float(value) for value in runs),
    )


def bootstrap_bounds(
    ratios: LogRatios, alpha: float, generator: np.random.Generator, num_draws: int = 4000
) -> tuple[float, float, float]:
    """Lower and upper ``alpha`` quantile of the gain when requests are drawn anew, and its standard error.

    Requests are drawn within their benchmark, with everything that belongs to them. The standard error is multiplied
    by sqrt(n / (n - 1)) of each benchmark, as the plain bootstrap's is too small by that.
    """
    draws = np.zeros(num_draws)
    clusters = _clusters(ratios)
    for values in clusters:
        size = len(values)
        means = values[generator.integers(size, size=(num_draws, size))].mean(axis=1)
        draws += (values.mean() + (means - values.mean()) * math.sqrt(size / (size - 1))) / len(clusters)
    low, high = np.quantile(draws, [alpha, 1.0 - alpha])
    return float(low), float(high), float(draws.std(ddof=1))


def welch_dof(variances: Sequence[float], dofs: Sequence[int]) -> int:
    """Degrees of freedom of a sum of variances (Satterthwaite), rounded down; one at least."""
    bottom = sum(variance**2 / dof for variance, dof in zip(variances, dofs, strict=True))
    return max(1, int(sum(variances) ** 2 / bottom)) if bottom > 0.0 else sum(dofs)


def _clusters(ratios: LogRatios) -> list[NDArray[np.float64]]:
    """Per benchmark one value for every request."""
    for benchmark, values in ratios.items():
        if len(values) < 2:
            raise ConfigError(f"{benchmark}: got {len(values)} request, expected at least 2 for an interval")
    return [values.mean(axis=(1, 2)) for values in ratios.values()]
