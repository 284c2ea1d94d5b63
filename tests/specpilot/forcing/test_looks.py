"""Looks at growing data: planned ones at divided levels, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specpilot.forcing import Answer, ForcingError, Rules, ScoredArm
from specpilot.forcing.looks import SequentialAudit
from specpilot.forcing.power.trials import GPU_NOISE, simulated_arm
from specpilot.forcing.rates import rate_test
from specpilot.forcing.scores import ArmCounts

RULES = Rules(delta=0.125)


def arm_of(num_requests, mismatches, begin=0):
    names = tuple(f"r{i:03d}" for i in range(begin, begin + num_requests))
    counts = ArmCounts(
        names, np.full(num_requests, 100), np.full(num_requests, mismatches), np.zeros(num_requests, np.int64)
    )
    answers = tuple(Answer(name, (1,), (2,) * 100, "length") for name in names)
    return ScoredArm(answers, counts, ((),) * num_requests)


def test_only_the_last_planned_look_accepts(scorer):
    audit = SequentialAudit(RULES, [2_000, 4_000])
    first = audit.look(arm_of(20, 0), arm_of(60, 0), scorer)
    assert first.decision == "go on"
    assert first.verdict.limits["event_level"] == pytest.approx(0.01)
    assert audit.look(arm_of(40, 0), arm_of(40, 0), scorer).decision == "accept"
    with pytest.raises(ForcingError, match="has ended"):
        audit.look(arm_of(60, 0), arm_of(60, 0), scorer)


def test_the_last_look_leaves_no_request_out(scorer):
    audit = SequentialAudit(RULES, [2_000])
    with pytest.raises(ForcingError, match="20 requests of the other arm have no answer"):
        audit.look(arm_of(40, 0), arm_of(60, 0), scorer)


def test_a_rejection_ends_it(scorer):
    audit = SequentialAudit(RULES, [2_000, 4_000])
    assert audit.look(arm_of(20, 4), arm_of(60, 0), scorer).decision == "reject"
    with pytest.raises(ForcingError, match="has ended"):
        audit.look(arm_of(40, 0), arm_of(60, 0), scorer)


def test_looks_that_were_not_planned_are_refused(scorer):
    audit = SequentialAudit(RULES, [2_000, 4_000])
    audit.look(arm_of(20, 0), arm_of(60, 0), scorer)
    with pytest.raises(ForcingError, match="expected at least 4000"):
        audit.look(arm_of(30, 0), arm_of(60, 0), scorer)
    with pytest.raises(ForcingError, match="gone or changed"):
        audit.look(arm_of(40, 0, begin=10), arm_of(60, 0), scorer)
    for planned in ([], [500], [4_000, 4_000]):
        with pytest.raises(ForcingError, match="increasing"):
            SequentialAudit(RULES, planned)


def test_five_looks_at_divided_levels_reject_stock_no_more_often_than_one():
    """And at undivided ones more often: the simulation can tell. The limit is set to 0, where the null is sharp."""
    rng = np.random.default_rng(5)
    found = {1: 0, 5: 0}
    for _ in range(300):
        arms = [simulated_arm(50, 200, replace(GPU_NOISE, rate=0.02), rng, name) for name in "ab"]
        for num_looks in found:
            rows = [np.arange(size) for size in (10, 20, 30, 40, 50)]
            found[num_looks] += any(
                rate_test(
                    arms[0].take(row, "a"), arms[1].take(row, "b"), limit=1e-9, level=0.05 / num_looks
                ).is_rejected
                for row in rows
            )
    assert found[5] / 300 < 0.05 + 0.03 and found[1] > found[5] + 5
