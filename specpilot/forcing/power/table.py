"""The power of token forcing as numbers: false rejection, and detection by fault and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from specpilot.forcing.power.recorded import RecordedArm, Recording
from specpilot.forcing.power.trials import (
    GPU_NOISE,
    Noise,
    Rejections,
    detect,
    false_rejections,
    simulated_rejections,
)

__all__ = ["FALSE_REJECTION_LIMIT", "IN_REACH", "TOKENS", "num_rows", "power_table"]

TOKENS = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
FALSE_REJECTION_LIMIT = 0.025
IN_REACH = 0.95
"""A fault that is found with this probability is in reach."""

_SIMULATED_TRIALS = 4_000
"""At least: a share of 1.8%, the largest there is, then comes out above the limit once in a thousand runs."""
_SIMULATED = (
    GPU_NOISE,
    Noise(0.0072, 2.0, 2e-5),
    Noise(0.0072, 1.0, 5e-4),
    Noise(0.02, 1.0, 2e-3),
    Noise(0.0002, 1.0, 1e-5),
)


def num_rows(recording: Recording, tokens: Sequence[int]) -> int:
    """Rows of both tables: how often ``on_row`` is called."""
    sources = len(_measured(recording)) + len(_SIMULATED)
    return len(tokens) * (sources + len(recording.of_kind("fault")))


def power_table(
    recording: Recording,
    num_trials: int,
    *,
    tokens: Sequence[int] = TOKENS,
    seed: int = 0,
    on_row: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """``ok``, ``false_rejection`` (the largest of ``false_rejections``) and ``faults``, one row a fault and size.

    ``ok`` says that no false rejection is above the limit, that every lossless arm was accepted, and that every fault
    was rejected whose detection at the recorded size is :data:`IN_REACH`.
    """
    rng = np.random.default_rng(seed)
    stock = recording.named("stock")
    lossless = _false_rejection_rows(recording, num_trials, tokens, rng, on_row)
    faults = []
    for arm in recording.of_kind("fault"):
        for count in tokens:
            rates = [
                detect(arm, stock, recording.rules, count, num_trials, rng, noise)
                for noise in (None, GPU_NOISE)
            ]
            faults.append(
                {
                    "fault": arm.name,
                    "size": arm.size,
                    "tokens": count,
                    "detection": rates[0].either,
                    "by_rate": rates[0].by_rate,
                    "by_events": rates[0].by_events,
                    "detection_with_gpu_noise": rates[1].either,
                }
            )
            on_row()
    audits = [
        _audit_row(arm, stock, recording, num_trials, rng) for arm in recording.of_kind("lossless", "fault")
    ]
    worst = max(row["rejected"] for row in lossless)
    return {
        "ok": worst <= FALSE_REJECTION_LIMIT and all(row["as_expected"] for row in audits),
        "false_rejection": worst,
        "false_rejection_limit": FALSE_REJECTION_LIMIT,
        "false_rejections": lossless,
        "faults": faults,
        "audits": audits,
        "num_trials": num_trials,
        "recording": dict(recording.made),
        "rules": recording.rules.to_json(),
    }


def _false_rejection_rows(
    recording: Recording,
    num_trials: int,
    tokens: Sequence[int],
    rng: np.random.Generator,
    on_row: Callable[[], None],
) -> list[dict[str, Any]]:
    rows = []

    def add(source: str, count: int, rates: Rejections, trials: int) -> None:
        row = {"source": source, "tokens": count, "rejected": rates.either, "trials": trials}
        rows.append(row | _by_rule(rates))
        on_row()

    measured = _measured(recording)
    for count in tokens:
        for arm in measured:
            rates = false_rejections(arm, arm, recording.rules, count, num_trials, rng)
            add(f"measured: {arm.name}, resampled twice", count, rates, num_trials)
        for noise in _SIMULATED:
            trials = max(num_trials, _SIMULATED_TRIALS)
            rates = simulated_rejections(noise, recording.rules, count, trials, rng)
            add(f"simulated: {asdict(noise)}", count, rates, trials)
    return rows


def _measured(recording: Recording) -> list[RecordedArm]:
    """Lossless arms that mismatch somewhere, or else stock alone: an arm without mismatches is never rejected."""
    arms = [arm for arm in recording.of_kind("stock", "lossless") if len(arm.rows) >= 16]
    return [arm for arm in arms if arm.rows[:, 1].any()] or arms[:1]


def _by_rule(rates: Rejections) -> dict[str, float]:
    return {"by_rate": rates.by_rate, "by_events": rates.by_events}


def _audit_row(
    arm: RecordedArm, stock: RecordedArm, recording: Recording, num_trials: int, rng: np.random.Generator
) -> dict[str, Any]:
    """The full audit that was recorded, and whether the power at its size says the same."""
    num_tokens = int(arm.rows[:, 0].sum())
    detection = 0.0
    if arm.kind == "fault":
        detection = detect(arm, stock, recording.rules, num_tokens, num_trials, rng).either
    is_rejected = arm.verdict["passed"] is False
    is_in_reach = detection >= IN_REACH
    return {
        "system": arm.name,
        "what": arm.what,
        "kind": arm.kind,
        "verdict": {True: "accepted", False: "rejected", None: "unavailable"}[arm.verdict["passed"]],
        "tokens": num_tokens,
        "mismatches": int(arm.rows[:, 1].sum()),
        "unexplained_events": arm.verdict["counts"]["unexplained_events"],
        "audited_events": arm.verdict["counts"]["audited_events"],
        "unexplained_requests": arm.verdict["counts"]["unexplained_requests"],
        "detection": detection,
        "is_in_reach": is_in_reach,
        "accuracy": arm.verdict["accuracy"],
        "as_expected": is_rejected or not is_in_reach
        if arm.kind == "fault"
        else arm.verdict["passed"] is True,
    }
