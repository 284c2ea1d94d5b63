"""The operator's file that says what a controller measures with. JSON; unknown keys are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from specpilot.controller.isolation import Users
from specpilot.controller.noise import MIN_NULL_TRIALS
from specpilot.errors import ConfigError
from specpilot.forcing import Rules
from specpilot.profiles.records import read_record

__all__ = ["VERSION", "ControllerConfig", "SlotConfig", "read_config"]

VERSION: Final = 1


@dataclass(frozen=True)
class SlotConfig:
    """One place to run systems; two make pairs that swap. ``environment`` picks the device."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ControllerConfig:
    """What ``specpilot controller start --config`` reads.

    Attributes
    ----------
    folder
        Absolute path; the controller's private folder, its public one ``<folder>-public`` with socket and code
        snapshots beside it.
    users
        Null: nothing is protected, which ``start`` must be told to accept.
    launch
        Command of a system, with ``{port}`` and ``{tree}``. Empty: systems run inside the controller, on the reference
        engine; only without users.
    model
        Folder of the target that scores, and of its tokenizer. Null: the bundled model.
    development, sealed
        Request sets (``specpilot requests build``). Null: the repository's, which are public.
    """

    version: int
    folder: str
    users: Users | None = None
    slots: tuple[SlotConfig, ...] = (SlotConfig("slot 0"),)
    launch: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    stock_arguments: tuple[str, ...] = ()
    start_limit_s: int = 600
    model: str | None = None
    development: str | None = None
    sealed: str | None = None
    batch_sizes: tuple[int, ...] = (1,)
    num_runs: int = 2
    num_null_trials: int = 8
    end_of_thinking_id: int | None = None
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ConfigError(f"controller: got version {self.version}, expected {VERSION}")
        if not Path(self.folder).is_absolute():
            raise ConfigError(f"folder: got {self.folder!r}, expected an absolute path")
        if len(self.slots) not in (1, 2):
            raise ConfigError(f"slots: got {len(self.slots)}, expected one or two")
        if self.num_null_trials < MIN_NULL_TRIALS:
            raise ConfigError(
                f"num_null_trials: got {self.num_null_trials}, expected at least {MIN_NULL_TRIALS}; noise from fewer "
                "says nothing"
            )
        if self.num_runs < 2 or self.num_runs % 2:
            raise ConfigError(
                f"num_runs: got {self.num_runs}, expected an even number; arms take turns at being first"
            )
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ConfigError(
                f"batch_sizes: got {list(self.batch_sizes)}, expected one or more numbers from 1 on"
            )
        if (self.users is None) != (not self.launch):
            raise ConfigError(
                "users, launch: got one without the other; a system that is launched needs a user of its own, and one "
                "inside the controller cannot have any"
            )

    def to_json(self) -> dict[str, Any]:
        """What ``read_record`` makes this of again."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @property
    def private(self) -> Path:
        return Path(self.folder)

    @property
    def public(self) -> Path:
        return Path(f"{self.folder}-public")

    @property
    def socket(self) -> Path:
        return self.public / "socket"

    @property
    def trees(self) -> Path:
        return self.public / "trees"


def _plain(value: Any) -> Any:
    """``dataclasses.asdict`` cannot copy the read-only mappings of a record that was read."""
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def read_config(path: Path) -> ControllerConfig:
    """ConfigError for anything that is no such file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"controller: cannot read {path}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: got {type(data).__name__}, expected an object")
    return read_record(ControllerConfig, data, str(path))
