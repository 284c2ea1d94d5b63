"""What a trial's answers say besides its speed: each check gives a reason for refusal, or none.

Every check compares the candidate with the control of the same trial, so what the machine or the engine does to both
(a prefix cache, a slow first request) is no reason. The levels are small, so that a lossless system whose answers part
from stock's at near-ties is not refused by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from specpilot.controller.measure import Measured, Pass
from specpilot.controller.noise import Noise, bound_with_noise
from specpilot.controller.stats import Gain
from specpilot.controller.student import t_quantile
from specpilot.controller.trial import Trial
from specpilot.errors import ConfigError

__all__ = ["check_hidden", "check_lengths", "check_repeats", "check_stock", "control_rates"]

_ALPHA = 0.002
_MIN_SHORTENING = 0.005
_MIN_SPEED_UP = 0.10
_MIN_SLOW_DOWN = 0.02
_MAX_LOST_SHARE = 0.25


def check_lengths(trial: Trial, end_of_thinking_id: int | None = None) -> list[str]:
    """Answers, or their thinking, that are shorter than the control's on the whole.

    A rate counts tokens, so a shorter answer is no faster by itself; but it does less work for the user, and stops
    before what is slow or wrong.
    """
    reasons = []
    counts: dict[str, Callable[[Measured], int]] = {"lengths: answers have": lambda one: len(one.output_ids)}
    if end_of_thinking_id is not None:
        counts["thinking: answers think for"] = lambda one: _thinking_tokens(one, end_of_thinking_id)
    for words, count in counts.items():
        ratios: dict[str, list[float]] = {}
        for one, other in zip(trial.answers("candidate"), trial.answers("control"), strict=True):
            ratios.setdefault(one.key, []).append(math.log((1 + count(one)) / (1 + count(other))))
        values = [float(np.mean(group)) for group in ratios.values()]
        mean, upper = _mean_upper(values)
        if upper < 0.0 and mean < -_MIN_SHORTENING:
            reasons.append(
                f"{words} {math.expm1(mean):+.1%} tokens against the control's, at most {math.expm1(upper):+.1%}"
            )
    return reasons


def check_repeats(trial: Trial) -> list[str]:
    """Answers that come faster the second time, by more than the control's do: they were remembered."""
    changes: dict[str, list[float]] = {}
    for run in trial.runs:
        for one, other in zip(run.candidate, run.control, strict=True):
            for mine, theirs in zip(
                _speed_ups(one.answers, one.repeats), _speed_ups(other.answers, other.repeats), strict=True
            ):
                changes.setdefault(mine[0], []).append(mine[1] - theirs[1])
    if len(changes) < 2:
        return []
    mean, lower = _mean_upper([-float(np.mean(group)) for group in changes.values()])
    if -lower > 0.0 and -mean > math.log1p(_MIN_SPEED_UP):
        return [
            f"repeats: asked again, the candidate is {math.exp(-mean):.2f} x faster than the first time, the control's "
            "own change taken off; answers are remembered"
        ]
    return []


def control_rates(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Mean log output rate of each pass of the control (both arms of stock against itself), run by run."""
    return tuple(
        _mean_log_rate(run.passes(arm))
        for trial in trials
        for run in trial.runs
        for arm in ("candidate", "control")
    )


def check_stock(trial: Trial, recorded: Sequence[float]) -> list[str]:
    """A control that is slower than its own record of this round: it was slowed down, or the machine changed.

    ``recorded`` is what :func:`control_rates` gave when noise was measured.
    """
    rates = [_mean_log_rate(run.control) for run in trial.runs]
    spread = float(np.std(recorded, ddof=1))
    reach = (
        t_quantile(1.0 - _ALPHA, len(recorded) - 1)
        * spread
        * math.sqrt(1.0 / len(rates) + 1.0 / len(recorded))
    )
    limit = -max(reach, _MIN_SLOW_DOWN)
    change = float(np.mean(rates) - np.mean(recorded))
    if change < limit:
        return [
            f"stock: the control runs at {math.exp(change):.3f} x the rate recorded in this round, noise allows "
            f"{math.exp(limit):.3f} x; it was slowed down, or the machine changed"
        ]
    return []


def check_hidden(development: Gain, hidden: Gain, noise: Noise) -> list[str]:
    """A gain that requests the agents have not seen do not have."""
    lost = Gain(
        development.log_gain - hidden.log_gain,
        math.hypot(development.se, hidden.se),
        max(1, min(development.dof, hidden.dof)),
        {},
        (),
    )
    # The noise of both trials.
    if (
        bound_with_noise(lost, [noise, noise], _ALPHA) > 0.0
        and lost.log_gain > _MAX_LOST_SHARE * development.log_gain
    ):
        return [
            f"hidden: the gain is {development.ratio:.3f} x on development requests and {hidden.ratio:.3f} x on "
            "requests the agents have not seen"
        ]
    return []


def _thinking_tokens(answer: Measured, end_id: int) -> int:
    """Tokens up to the end of thinking; an answer that never ends it thinks all the time."""
    ids = answer.output_ids
    return ids.index(end_id) if end_id in ids else len(ids)


def _speed_ups(answers: Sequence[Measured], repeats: Sequence[Measured]) -> list[tuple[str, float]]:
    first: Mapping[str, Measured] = {one.key: one for one in answers}
    return [(one.key, math.log(one.tok_s / first[one.key].tok_s)) for one in repeats]


def _mean_log_rate(passes: Iterable[Pass]) -> float:
    return float(np.mean([math.log(one.tok_s) for part in passes for one in part.answers]))


def _mean_upper(values: Sequence[float]) -> tuple[float, float]:
    """Mean over requests and its upper bound."""
    if len(values) < 2:
        raise ConfigError(f"checks: got {len(values)} request, expected at least 2")
    reach = t_quantile(1.0 - _ALPHA, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return mean, mean + reach
