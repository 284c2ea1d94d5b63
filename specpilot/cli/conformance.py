"""``specpilot conformance``: is every mechanism what its definition says, on this machine?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from specpilot.cli.options import Json
from specpilot.cli.outcome import Outcome

if TYPE_CHECKING:
    from specpilot.conformance.case import CaseResult

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    app.command("conformance")(_conformance)


def _conformance(json: Json = False) -> Outcome:
    """Check every mechanism against its oracle on the bundled models and on adversarial lattices.

    Every row also runs a variant with a fault, which the check must find. Exit code 0 only if all mechanisms agree and
    all faults are found.
    """
    from specpilot.conformance.runner import conformance_report

    report = conformance_report(on_case=_show)
    if report["missing"]:
        print(f"not checked: {', '.join(report['missing'])}", file=sys.stderr)
    if not json:
        print(
            "conformance: all mechanisms agree, all controls were found"
            if report["ok"]
            else "conformance: FAILED"
        )
    return Outcome(report, is_ok=report["ok"])


def _show(result: CaseResult) -> None:
    """One line a row on stderr."""
    verdict = "ok" if result.ok else f"FAILED ({result.detail})"
    control = "caught" if result.control_caught else f"NOT CAUGHT ({result.control_detail})"
    print(
        f"{result.mechanism:17} {verdict}, {result.num_checked} checks; control '{result.control}': {control} "
        f"[{result.seconds:.1f} s]",
        file=sys.stderr,
    )
