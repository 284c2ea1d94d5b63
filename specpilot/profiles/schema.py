"""What a profile file says. ``profiles/README.md`` describes the fields; unknown keys are refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from specpilot.errors import ConfigError
from specpilot.profiles.records import Scalar

__all__ = [
    "CPU",
    "SCHEMA_VERSION",
    "Deployment",
    "DrafterChoice",
    "EngineChoice",
    "EngineKind",
    "Evidence",
    "MechanismChoice",
    "MemoryNeed",
    "Profile",
    "Switch",
    "TargetChoice",
    "TunedStock",
]

SCHEMA_VERSION: Final = 1
CPU: Final = "cpu"
"""The device class of a machine without a GPU."""

EngineKind = Literal["reference", "sglang"]
Switch = Literal["surge", "recreate", "in-engine"]
_Regime = Literal["single-request", "batching"]
_EvidenceKind = Literal["measured here", "quoted from the paper", "untested"]
_NumberName = Literal[
    "gain_over_stock",
    "speedup_over_ar",
    "speedup_over_plain",
    "stock_speedup_over_ar",
    "stock_tau",
    "tau",
    "tokens_per_s",
]

_WORD = re.compile(r"[a-z0-9][a-z0-9.]*(?:-[a-z0-9.]+)*")
_NAME = re.compile(rf"{_WORD.pattern}/{_WORD.pattern}--{_WORD.pattern}--{_WORD.pattern}")


@dataclass(frozen=True)
class TargetChoice:
    """The target. ``folder`` lies under the models folder; None is the bundled target."""

    name: str
    weights: Literal["bf16", "fp8"]
    folder: str | None = None


@dataclass(frozen=True)
class DrafterChoice:
    """The drafter. ``folder`` lies under the models folder; None for the bundled ones and those without weights."""

    kind: Literal["none", "suffix", "dflash2", "dspark", "eagle3"]
    folder: str | None = None


@dataclass(frozen=True)
class Deployment:
    """What is served where. ``num_requests`` are the batch sizes the profile is meant for."""

    gpu: str
    target: TargetChoice
    drafter: DrafterChoice
    regime: _Regime
    num_requests: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.num_requests or min(self.num_requests) < 1:
            raise ConfigError(
                f"num_requests: got {list(self.num_requests)}, expected batch sizes of 1 or more"
            )
        if self.regime == "single-request" and self.num_requests != (1,):
            raise ConfigError(f"num_requests: got {list(self.num_requests)}, expected [1] for single-request")


@dataclass(frozen=True)
class EngineChoice:
    """The engine and its own arguments, flag names without the dashes; a flag that is true is given alone."""

    kind: EngineKind
    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None


@dataclass(frozen=True)
class MechanismChoice:
    """A mechanism of :mod:`specpilot.profiles.mechanisms` and its options."""

    id: str
    options: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryNeed:
    """Device memory (host memory on a CPU). None: the model's shapes are not known here, so it is not checked.

    Attributes
    ----------
    kv_kib_per_token, state_mib_per_request
        Keys and values of target and drafter; recurrent state with the snapshots of a verify step.
    kv_tokens
        Tokens kept at a time, all requests together.
    """

    target_gib: float
    drafter_gib: float
    reserve_gib: float
    source: str
    kv_kib_per_token: float | None = None
    state_mib_per_request: float | None = None
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        given = [self.kv_kib_per_token, self.state_mib_per_request, self.kv_tokens]
        if any(value is None for value in given) and any(value is not None for value in given):
            raise ConfigError(
                "kv_kib_per_token, state_mib_per_request, kv_tokens: got some of the three, expected all or none"
            )


@dataclass(frozen=True)
class Evidence:
    """Why the profile is believed: its numbers and where they come from."""

    kind: _EvidenceKind
    source: str
    numbers: Mapping[_NumberName, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind == "untested" and self.numbers:
            raise ConfigError(f"numbers: got {dict(self.numbers)}, expected none in a row marked untested")
        if self.kind != "untested" and not self.numbers:
            raise ConfigError(f"numbers: got none, expected some in a row marked {self.kind!r}")


@dataclass(frozen=True)
class TunedStock:
    """The fastest upstream options of a recorded sweep: what a candidate must be compared with.

    Attributes
    ----------
    options
        Drafted ``positions`` of the drafter's chain; empty: as the drafter was trained.
    swept
        Every configuration tried and its speed-up over plain decoding.
    """

    drafter: str
    speedup_over_ar: float
    swept: Mapping[str, float]
    source: str
    options: Mapping[Literal["positions"], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.swept or self.speedup_over_ar < max(self.swept.values()):
            raise ConfigError(
                f"stock: got a speed-up of {self.speedup_over_ar}, expected the largest of its sweep {dict(self.swept)}"
            )


@dataclass(frozen=True)
class Profile:
    """One row: ``name`` is its path below the profiles folder, without the suffix.

    ``version`` is raised when the row's meaning changes, ``schema`` when the format does.
    """

    name: str
    schema: int
    version: int
    title: str
    deployment: Deployment
    engine: EngineChoice
    memory: MemoryNeed
    startup_budget_s: int
    switch: Switch
    evidence: Evidence
    mechanisms: tuple[MechanismChoice, ...] = ()
    stock: TunedStock | None = None

    def __post_init__(self) -> None:
        if self.schema != SCHEMA_VERSION:
            raise ConfigError(
                f"schema: got {self.schema}, expected {SCHEMA_VERSION}; convert the file, or use the release it is for"
            )
        if self.version < 1 or self.startup_budget_s < 1:
            raise ConfigError(
                f"version, startup_budget_s: got {self.version}, {self.startup_budget_s}, expected 1 or more"
            )
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"got the name {self.name!r}, expected <gpu>/<target>--<drafter>--<regime>")
        if self.name.split("/")[0] != self.deployment.gpu:
            raise ConfigError(
                f"deployment.gpu: got {self.deployment.gpu!r}, expected the folder's name {self.name.split('/')[0]!r}"
            )
        ids = [mechanism.id for mechanism in self.mechanisms]
        if len(ids) != len(set(ids)):
            raise ConfigError(f"mechanisms: got {ids}, expected every mechanism once")

    @property
    def profile_id(self) -> str:
        """``sha256-`` and 16 hex digits of what runs; titles, evidence, stock and the name do not enter."""
        content = self.content()
        for key in ("name", "title", "evidence", "stock"):
            del content[key]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def content(self) -> dict[str, Any]:
        """The profile as plain dicts and lists."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
