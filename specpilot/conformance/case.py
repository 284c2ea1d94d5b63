"""A case: one mechanism, its oracle, and a fault that the oracle must find."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Case", "CaseResult", "Deviation", "expect_equal", "expect_near", "run_case"]

Part = TypeVar("Part")


class Deviation(Exception):
    """What a check raises when the part under test is not what its oracle says: where, got, expected."""


@dataclass(frozen=True)
class Case(Generic[Part]):
    """A check of a part, run on the real part and on a faulty one.

    Attributes
    ----------
    mechanism, control
        Names in the report: what is checked, and the fault.
    check
        Compares the part with an oracle that shares no code with it; gives the number of comparisons, and raises
        :class:`Deviation` at the first that fails. Any other exception is a failure of the case, in both runs.
    real, faulty
        The product's own part, and a variant of it with the fault, made by wrapping it.
    """

    mechanism: str
    control: str
    check: Callable[[Part], int]
    real: Part
    faulty: Part


@dataclass(frozen=True)
class CaseResult:
    """One row of the report.

    Attributes
    ----------
    ok
        The real part agrees with the oracle everywhere.
    control_caught
        The same check found the fault.
    num_checked
        Comparisons on the real part.
    detail
        The first deviation of the real part, or why a run broke; empty when all is well.
    control_detail
        What the check said of the faulty part.
    """

    mechanism: str
    ok: bool
    control: str
    control_caught: bool
    num_checked: int
    detail: str
    control_detail: str
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run_case(case: Case[Any]) -> CaseResult:
    """Run both parts through the check."""
    began = time.perf_counter()
    num_checked, detail, control_detail, is_caught = 0, "", "", False
    try:
        num_checked = case.check(case.real)
        detail = "" if num_checked else "the check compared nothing"
    except Deviation as error:
        detail = str(error)
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
    try:
        case.check(case.faulty)
        control_detail = "not found"
    except Deviation as error:
        control_detail, is_caught = str(error), True
    except Exception as error:
        control_detail = f"{type(error).__name__}: {error}"
    return CaseResult(
        case.mechanism,
        not detail,
        case.control,
        is_caught,
        num_checked,
        detail,
        control_detail,
        round(time.perf_counter() - began, 3),
    )


def expect_equal(where: str, got: object, expected: object) -> None:
    if got != expected:
        raise Deviation(f"{where}: got {got}, expected {expected}")


def expect_near(where: str, got: float, expected: float, tolerance: float = 2e-5) -> None:
    """Equal up to ``tolerance`` times 1 + the expected magnitude; the default is the rounding of float32 sums."""
    if not abs(got - expected) <= tolerance * (1.0 + abs(expected)):
        raise Deviation(f"{where}: got {got}, expected {expected}")
