"""A report is good only if every mechanism was compared with its oracle and every fault was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from specpilot.conformance.case import Case, Deviation, expect_equal, expect_near, run_case
from specpilot.conformance.runner import MECHANISMS, conformance_report


def check_double(double: Callable[[int], int]) -> int:
    for number in range(5):
        expect_equal(f"double of {number}", double(number), number + number)
    return 5


GOOD = Case("doubling", "off by one", check_double, lambda n: 2 * n, lambda n: 2 * n + 1)


def test_a_part_that_agrees_and_a_fault_that_is_found() -> None:
    result = run_case(GOOD)
    assert (result.ok, result.control_caught, result.num_checked, result.detail) == (True, True, 5, "")
    assert result.control_detail == "double of 0: got 1, expected 0"
    report = conformance_report([GOOD], required=["doubling"])
    assert report["ok"] and report["missing"] == []
    (row,) = report["rows"]
    assert {
        "mechanism": "doubling",
        "ok": True,
        "control": "off by one",
        "control_caught": True,
    }.items() <= row.items()


def test_a_part_that_deviates_fails() -> None:
    report = conformance_report([replace(GOOD, real=lambda n: n * n)], required=["doubling"])
    assert not report["ok"] and not report["rows"][0]["ok"]
    assert report["rows"][0]["detail"] == "double of 1: got 1, expected 2"


def test_a_fault_that_is_not_found_fails() -> None:
    report = conformance_report([replace(GOOD, faulty=lambda n: n << 1)], required=["doubling"])
    assert not report["ok"] and report["rows"][0]["ok"] and not report["rows"][0]["control_caught"]


def crash(number: int) -> int:
    raise ZeroDivisionError("by hand")


def test_a_crash_is_neither_agreement_nor_a_find() -> None:
    crashed = run_case(replace(GOOD, real=crash))
    assert not crashed.ok and crashed.detail == "ZeroDivisionError: by hand" and crashed.control_caught
    assert not run_case(replace(GOOD, faulty=crash)).control_caught


def test_a_check_that_compares_nothing_fails() -> None:
    assert not run_case(replace(GOOD, check=lambda part: 0)).ok


def test_a_mechanism_without_a_row_fails() -> None:
    report = conformance_report([GOOD], required=["doubling", "halving"])
    assert not report["ok"] and report["missing"] == ["halving"]
    assert len(MECHANISMS) == 15


def test_nan_is_near_nothing() -> None:
    expect_near("x", 1.0, 1.00001)
    for got in (float("nan"), 1.1, float("inf")):
        with pytest.raises(Deviation):
            expect_near("x", got, 1.0)
