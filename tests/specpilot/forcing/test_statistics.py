"""The two rules' distributions against tables and enumeration, and the rules at their own numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from specpilot.forcing.events import audit_order, event_test
from specpilot.forcing.rates import rate_interval, rate_test
from specpilot.forcing.scores import ArmCounts
from specpilot.forcing.statistics import binomial_tail, student_quantile, wilson_interval


@pytest.mark.parametrize(
    ("share", "freedom", "table"),
    [
        (0.95, 1, 6.313752),
        (0.95, 10, 1.812461),
        (0.975, 5, 2.570582),
        (0.99, 30, 2.457262),
        (0.95, 1e6, 1.644855),
    ],
)
def test_student_quantile_is_the_tables(share, freedom, table):
    assert student_quantile(share, freedom) == pytest.approx(table, abs=2e-6)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7])
def test_binomial_tail_is_the_enumerated_one(share):
    for count in range(7):
        exact = sum(
            math.prod(share if bit else 1 - share for bit in bits)
            for bits in itertools.product((0, 1), repeat=6)
            if sum(bits) >= count
        )
        assert binomial_tail(count, 6, share) == pytest.approx(exact, rel=1e-12)
    assert binomial_tail(2100, 4000, 0.5) == pytest.approx(0.00083, abs=2e-5)


def test_wilson_interval_holds_the_share_and_is_no_point_at_zero():
    low, high = wilson_interval(0, 1000, 1.96)
    assert low == 0 and 0.0037 < high < 0.0039
    assert wilson_interval(5, 10, 1.96) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@pytest.mark.parametrize(("stock", "reject_at"), [(0, 5), (1, 7), (2, 9), (5, 13)])
def test_event_rule_at_equal_exposure_and_five_percent(stock, reject_at):
    assert event_test(0, stock, 1000, 1000, 0.05).reject_at == reject_at
    assert not event_test(reject_at - 1, stock, 1000, 1000, 0.05).is_rejected
    assert event_test(reject_at, stock, 1000, 1000, 0.05).is_rejected


def test_more_of_stock_finds_rarer_events():
    assert event_test(0, 0, 1000, 1000, 0.02).reject_at == 6
    assert event_test(0, 0, 1000, 5000, 0.02).reject_at == 3


def test_audit_order_takes_whole_requests_until_enough():
    counts = [0, 3, 0, 5, 2, 0, 0, 1]
    assert sorted(audit_order(counts, 200, seed=1)) == list(range(8))
    some = audit_order(counts, 4, seed=1)
    assert sum(counts[row] for row in some) >= 4 > sum(counts[row] for row in some[:-1])
    assert some == audit_order(counts, 4, seed=1) and some != audit_order(counts, 4, seed=2)
    assert audit_order(counts, 1, seed=1, fewest=6) == audit_order(counts, 200, seed=1)[:6]


def arm(tokens, mismatches, names="abcdefghijklmnop"):
    tokens, mismatches = np.array(tokens), np.array(mismatches)
    return ArmCounts(tuple(names[: len(tokens)]), tokens, mismatches, np.zeros_like(tokens))


def test_rate_rule_needs_more_than_the_limit():
    stock = arm([2000] * 10, [14] * 10)
    for extra, is_rejected in ((0, False), (8, False), (14, True), (40, True)):
        test = rate_test(arm([2000] * 10, [14 + extra] * 10), stock, limit=0.005, level=0.05)
        assert test.difference == pytest.approx(extra / 2000)
        assert test.is_rejected is is_rejected and test.lower <= test.difference


def test_one_request_full_of_mismatches_is_no_rate():
    """A burst in one of ten answers is one observation; token by token it would reject."""
    burst = arm([2000] * 10, [0] * 9 + [240])
    test = rate_test(burst, arm([2000] * 10, [0] * 10), limit=0.005, level=0.05)
    assert test.difference == pytest.approx(0.012) and not test.is_rejected
    low, high = rate_interval(burst)
    assert low == 0 and high > 0.03


def test_pairs_leave_out_what_requests_share():
    """Rates that differ from request to request, and equally for both systems."""
    base = np.array([2, 80, 5, 60, 1, 90, 3, 70, 2, 50])
    stock, system = arm([2000] * 10, base), arm([2000] * 10, base + 20)
    other = arm([2000] * 10, base + 20, names="ABCDEFGHIJ")
    assert rate_test(system, stock, limit=0.005, level=0.05).is_rejected
    assert not rate_test(other, stock, limit=0.005, level=0.05).is_rejected
