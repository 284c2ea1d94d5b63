"""Whether a drafter was trained for the target at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specpilot.draft import BorrowedTarget
from specpilot.errors import CheckpointError

__all__ = ["refuse_another_targets"]


def refuse_another_targets(
    path: Path, target: BorrowedTarget, fits: Sequence[tuple[str, object, object]]
) -> None:
    """CheckpointError that names the first key of ``fits``, (key, got, expected), whose values differ."""
    for key, got, expected in fits:
        if got != expected:
            raise CheckpointError(
                f"{path}: {key}: got {got!r}, expected {expected!r} as in the target "
                f"({target.architecture}); this drafter was trained for another target"
            )
