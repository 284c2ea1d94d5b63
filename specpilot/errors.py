"""Every error SpecPilot raises on purpose.

SpecPilotError
├── ConfigError       a setting, file or environment value is wrong         (also ValueError)
│   └── AmbiguousError  more than one thing answers to a name or an identity
├── CheckpointError   a model folder is damaged, incomplete or does not fit (also ValueError)
├── RequestError      the caller's request cannot be served as asked        (also ValueError)
├── Unsupported       well-formed, but this build or device cannot do it
├── Overloaded        no room now; try again later
├── Cancelled         the caller gave the request up before it was done
├── ForcingError      token forcing cannot judge what it was given: 'audit unavailable'
└── EngineError       the engine itself failed
    └── DraftError    a drafter's scores are no scores

A message says what, got, expected, and what to do. The service maps this tree to HTTP codes in one file.
"""

from __future__ import annotations

__all__ = [
    "AmbiguousError",
    "Cancelled",
    "CheckpointError",
    "ConfigError",
    "DraftError",
    "EngineError",
    "ForcingError",
    "Overloaded",
    "RequestError",
    "SpecPilotError",
    "Unsupported",
]


class SpecPilotError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(SpecPilotError, ValueError):
    """A setting, file or environment value is wrong."""


class AmbiguousError(ConfigError):
    """More than one thing answers to a name or an identity; ``candidates`` are their names."""

    def __init__(self, message: str, *, candidates: tuple[str, ...]) -> None:
        super().__init__(message)
        self.candidates = candidates


class CheckpointError(SpecPilotError, ValueError):
    """A model folder is damaged, incomplete or does not fit its partner; the message names the tensor or key."""


class RequestError(SpecPilotError, ValueError):
    """The caller's request cannot be served as asked.

    ``param`` names the request field at fault and ``code`` is a stable word for programs
    (``context_length_exceeded``, ``model_not_found``, ``invalid_value``).
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class Unsupported(SpecPilotError):
    """Well-formed, but this build or device cannot do it."""


class Overloaded(SpecPilotError):
    """No room now. ``retry_after_s`` is the server's guess of when there will be."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Cancelled(SpecPilotError):
    """The caller gave the request up before it was done; nobody waits for the answer."""


class ForcingError(SpecPilotError):
    """Token forcing cannot judge what it was given; an audit is then unavailable, never passed."""


class EngineError(SpecPilotError):
    """The engine itself failed; the request may have done nothing wrong."""


class DraftError(EngineError):
    """A drafter's scores are NaN, plus infinity, or no log-probabilities where it says so."""
