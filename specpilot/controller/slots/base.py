"""What the controller asks of a slot: start a system, ask it, stop it. Times are never asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = ["Arm", "Endpoint", "Piece", "Slot", "System"]

Arm = Literal["candidate", "control"]
"""As whom a system runs: each has a user and a scratch folder of its own."""


@dataclass(frozen=True)
class System:
    """What is started.

    Attributes
    ----------
    arguments
        Options after the operator's launch command; those of stock are the operator's own.
    tree
        sha256 of the code snapshot it runs from; None for the controller's own code.
    """

    name: str
    arguments: tuple[str, ...] = ()
    tree: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system_id(self) -> str:
        """Content hash; the name does not enter."""
        content = [list(self.arguments), self.tree, dict(self.extra)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Piece:
    """Tokens as they arrive; the last piece of an answer, and only it, has a finish reason.

    ``num_steps``, verify steps of the answer, is what the system says of itself: shown, and never judged by.
    """

    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    num_steps: int | None = None


class Endpoint(Protocol):
    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Piece]:
        """A greedy answer. Thread rule: several at once, one thread each. EngineError if the system fails."""
        ...


class Slot(Protocol):
    """One place to run a system.

    ``is_isolated``: a system that runs here cannot read or change what belongs to the controller or to the other arm.
    """

    name: str
    is_isolated: bool

    def run(self, system: System, arm: Arm) -> AbstractContextManager[Endpoint]:
        """Start the system afresh, with nothing left of earlier ones; stop it at the end."""
        ...

    def environment(self) -> Mapping[str, str]:
        """What must not change during a round: device, driver, versions."""
        ...

    def notes(self) -> Mapping[str, float]:
        """Temperature, clocks and load now, where the machine tells them."""
        ...
