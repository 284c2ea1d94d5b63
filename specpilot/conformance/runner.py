"""All cases, and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from specpilot.conformance.case import Case, CaseResult, run_case

__all__ = ["MECHANISMS", "all_cases", "conformance_report"]

MECHANISMS = (
    "chain",
    "best-first",
    "wide tree",
    "DDTree",
    "EAGLE-2",
    "Sequoia",
    "GDN path",
    "GDN WY",
    "commit",
    "TLV",
    "certified head",
    "shared budget",
    "drafter block",
    "prompt admission",
    "sampled trees",
)
"""What a report must have a row of."""


def all_cases() -> Iterator[Case[Any]]:
    """Every case of every group, made when it is asked for."""
    from specpilot.conformance import (
        batch_cases,
        builder_cases,
        greedy_cases,
        head_cases,
        sampled_cases,
        target_cases,
    )

    for group in (builder_cases, sampled_cases, head_cases, target_cases, batch_cases, greedy_cases):
        yield from group.cases()


def conformance_report(
    cases: Iterable[Case[Any]] | None = None,
    on_case: Callable[[CaseResult], None] = lambda result: None,
    required: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Run cases; ``ok`` says that every mechanism has a row, agrees with its oracle, and that every fault was found."""
    results = []
    for case in all_cases() if cases is None else cases:
        results.append(run_case(case))
        on_case(results[-1])
    wanted = MECHANISMS if required is None else required
    missing = [name for name in wanted if name not in {result.mechanism for result in results}]
    return {
        "ok": not missing and all(result.ok and result.control_caught for result in results),
        "missing": missing,
        "rows": [result.as_json() for result in results],
    }
