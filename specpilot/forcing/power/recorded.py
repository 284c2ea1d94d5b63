"""Recorded arms as compact rows: for every request its tokens, mismatches, large-margin events and unexplained ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specpilot.errors import ConfigError
from specpilot.forcing.rules import Rules
from specpilot.forcing.scores import ArmCounts

__all__ = ["BUNDLED", "FORMAT", "RecordedArm", "Recording", "read_recording"]

BUNDLED = Path(__file__).parent / "recorded.json"
"""Rows of the bundled model; ``python -m specpilot.forcing.power.record`` makes them."""

FORMAT = {"format": "specpilot-forcing-power", "version": 1}


@dataclass(frozen=True)
class RecordedArm:
    """One system.

    Attributes
    ----------
    kind
        ``stock``, ``lossless`` or ``fault``.
    rows
        int64 (R, 3): tokens, mismatches, large-margin events of each request.
    unexplained_share
        Of the audited large-margin events; None: there were none.
    verdict
        Of the full audit: ``passed``, ``reasons``, counts and accuracy. Empty for stock.
    """

    name: str
    what: str
    kind: str
    size: float
    rows: NDArray[np.int64]
    unexplained_share: float | None
    verdict: Mapping[str, Any]

    @property
    def counts(self) -> ArmCounts:
        names = tuple(str(number) for number in range(len(self.rows)))
        return ArmCounts(names, self.rows[:, 0], self.rows[:, 1], self.rows[:, 2])

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"rows": self.rows.tolist()}


@dataclass(frozen=True)
class Recording:
    """Arms over one set of prompts, ``made`` how."""

    made: Mapping[str, Any]
    rules: Rules
    arms: tuple[RecordedArm, ...]

    def named(self, name: str) -> RecordedArm:
        return next(arm for arm in self.arms if arm.name == name)

    def of_kind(self, *kinds: str) -> list[RecordedArm]:
        return [arm for arm in self.arms if arm.kind in kinds]

    def write(self, path: Path) -> None:
        arms = ",\n".join(json.dumps(arm.to_json()) for arm in self.arms)
        head = json.dumps(FORMAT | {"made": dict(self.made), "rules": self.rules.to_json()})
        path.write_text(f'{head[:-1]}, "arms": [\n{arms}\n]}}\n', encoding="utf-8")


def read_recording(path: Path = BUNDLED) -> Recording:
    """ConfigError for another format."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"power: cannot read {path}: {error}") from None
    if {name: data.get(name) for name in FORMAT} != FORMAT:
        raise ConfigError(f"power: {path} is no recording of {FORMAT}")
    arms = tuple(
        RecordedArm(**arm | {"rows": np.array(arm["rows"], np.int64).reshape(-1, 3)}) for arm in data["arms"]
    )
    return Recording(data["made"], Rules(**data["rules"]), arms)
