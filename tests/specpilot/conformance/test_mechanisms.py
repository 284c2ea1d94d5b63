"""Every mechanism agrees with its oracle here, and every fault is found."""

from __future__ import annotations

import pytest

from specpilot.conformance.case import run_case
from specpilot.conformance.runner import MECHANISMS, all_cases

CASES = list(all_cases())


def test_every_mechanism_has_a_case() -> None:
    assert {case.mechanism for case in CASES} == set(MECHANISMS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.mechanism}, {case.control}")
def test_mechanism(case) -> None:
    result = run_case(case)
    assert result.ok, result.detail
    assert result.control_caught, result.control_detail
