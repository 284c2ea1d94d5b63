"""What a kind of jobs is. A kind names a program; the runner knows nothing else of it (DESIGN.md, Jobs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specpilot.errors import ConfigError
from specpilot_service.schemas.admin import ResolvedView

__all__ = ["JobKind", "JobPlace", "MissingKind"]


@dataclass(frozen=True)
class JobPlace:
    """Where one job runs and what it looks at.

    Attributes
    ----------
    folder
        The job's own folder, which exists; reports go there. The last folders are kept, older ones are removed.
    result
        File in ``folder`` that the program writes its result to: a JSON object with at least ``passed`` (true, false,
        or null: not decided) and ``message`` (one line for people).
    engine_url
        The engine to check, asked directly and without a key; None if none is ready.
    resolved
        The profile that this engine was started with; None for an engine that was found by its URL.
    """

    folder: Path
    result: Path
    engine_url: str | None
    resolved: ResolvedView | None


class JobKind(Protocol):
    """A program that checks something.

    It writes progress to stdout, one JSON object a line: ``{"done": 3, "total": 40, "message": "scored 3 answers"}``
    (``total`` and ``message`` may be left out), writes its result to ``place.result`` and exits with 0. Any other exit
    is a failed job; what it wrote to stderr and its other lines of stdout are in its log, the last line in the job's
    error.
    """

    @property
    def name(self) -> str: ...

    def unavailable(self) -> str:
        """Why jobs of this kind cannot run on this box; empty when they can."""
        ...

    def unavailable_for(self, resolved: ResolvedView | None) -> str:
        """Why engines of this profile cannot be checked; empty when they can. No engine can bring it about."""
        ...

    def gate_options(self) -> Mapping[str, Any]:
        """Options of the job that gates a switch: it decides within a minute or so."""
        ...

    def command(self, options: Mapping[str, Any], place: JobPlace) -> Sequence[str]:
        """The program and its arguments. Raises ConfigError for options that it does not know."""
        ...


@dataclass(frozen=True)
class MissingKind:
    """A check that this build does not have. It says so, and never runs."""

    name: str
    why: str

    def unavailable(self) -> str:
        return self.why

    def unavailable_for(self, resolved: ResolvedView | None) -> str:
        return self.why

    def gate_options(self) -> Mapping[str, Any]:
        return {}

    def command(self, options: Mapping[str, Any], place: JobPlace) -> Sequence[str]:
        raise ConfigError(f"{self.name}: {self.why}")
