"""Can a profile run here? Device, mechanisms, models and memory are looked at before anything is loaded."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from specpilot.errors import CheckpointError
from specpilot.profiles.gpus import GpuIdentity
from specpilot.profiles.resolve import DEFAULT_MODELS, ResolvedProfile, checkpoint_folders, resolve_profile
from specpilot.profiles.schema import MemoryNeed, Profile
from specpilot.refengine.config import read_json_object
from specpilot.refengine.dflash2_config import DFLASH2_ARCHITECTURES
from specpilot.refengine.dspark_config import DSPARK_ARCHITECTURES
from specpilot.refengine.eagle3_config import EAGLE3_ARCHITECTURE

__all__ = ["Machine", "Preflight", "Status", "check", "host_free_gib"]

Status = Literal[
    "runnable",
    "smaller context only",
    "wrong gpu",
    "wrong drafter",
    "not runnable as specified",
    "cannot run here",
]
# The first of these that applies is the profile's status; all reasons are listed.
_ORDER: Final[tuple[Status, ...]] = (
    "wrong gpu",
    "wrong drafter",
    "not runnable as specified",
    "cannot run here",
    "smaller context only",
)
_ARCHITECTURES: Final[Mapping[str, tuple[str, ...]]] = {
    "dflash2": tuple(DFLASH2_ARCHITECTURES),
    "dspark": tuple(DSPARK_ARCHITECTURES),
    "eagle3": (EAGLE3_ARCHITECTURE,),
}
_LEAST_TOKENS_PER_REQUEST: Final = 2048
"""A context below this serves no request of the benchmarks; the profile then cannot run."""


@dataclass(frozen=True)
class Machine:
    """Where a profile would run: a device class, and its GPU's identity and free memory where they are known."""

    gpu: str
    identity: GpuIdentity | None = None
    free_gib: float | None = None


@dataclass(frozen=True)
class Preflight:
    """The verdict. ``reasons`` explain every status but "runnable"; ``notes`` say what was not checked."""

    resolved: ResolvedProfile
    status: Status
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    needed_gib: float

    def content(self) -> dict[str, Any]:
        is_degradable = self.status == "not runnable as specified"
        return {
            "name": self.resolved.name,
            "profile_id": self.resolved.profile_id,
            "status": self.status,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "needed_gib": round(self.needed_gib, 2),
            "degraded": {"stock_command": self.resolved.degraded_command} if is_degradable else None,
        }


def check(profile: Profile, machine: Machine, models: Path = DEFAULT_MODELS) -> Preflight:
    """Judge a profile for a machine; nothing is loaded and nothing raises for what is found."""
    resolved = resolve_profile(profile, models=models)
    found: list[tuple[Status, str]] = []
    notes: list[str] = []
    if machine.gpu != profile.deployment.gpu:
        found.append(
            ("wrong gpu", f"the profile is for {profile.deployment.gpu}, this machine is {machine.gpu}")
        )
    found += [("not runnable as specified", f"{state.id}: {state.reason}") for state in resolved.missing]
    is_own_python = resolved.degraded_command[0] == sys.executable
    if profile.engine.kind == "sglang" and is_own_python and importlib.util.find_spec("sglang") is None:
        found.append(("cannot run here", f"SGLang {profile.engine.version} is not installed"))
    found += _check_models(profile, models)
    memory, remarks = _check_memory(profile, machine)
    found += memory
    notes += remarks
    status: Status = "runnable"
    for candidate in reversed(_ORDER):
        if any(kind == candidate for kind, _ in found):
            status = candidate
    return Preflight(
        resolved,
        status,
        tuple(reason for _, reason in found),
        tuple(notes),
        _needed_gib(profile.memory, profile),
    )


def _check_models(profile: Profile, models: Path) -> list[tuple[Status, str]]:
    target, drafter = profile.deployment.target, profile.deployment.drafter
    found: list[tuple[Status, str]] = []
    configs: dict[str, dict[str, Any]] = {}
    target_folder, drafter_folder = checkpoint_folders(profile, models)
    folders = {"target": target_folder}
    if drafter.kind in _ARCHITECTURES:
        folders["drafter"] = drafter_folder
    advice = "put the checkpoint there, or name the models folder"
    if profile.engine.kind != "reference" and target.folder is None:
        advice = f"run `specpilot w12 decode --out {target_folder.parent}`"
    for role, folder in folders.items():
        try:
            configs[role] = read_json_object(folder, "config.json")
        except CheckpointError as error:
            found.append(("cannot run here", f"{role}: {error}; {advice}"))
    if "drafter" not in configs:
        return found
    architectures = configs["drafter"].get("architectures")
    expected = _ARCHITECTURES[drafter.kind]
    if not (isinstance(architectures, list) and architectures and architectures[0] in expected):
        found.append(
            (
                "wrong drafter",
                f"drafter: architectures is {architectures!r}, a {drafter.kind} has one of {expected}",
            )
        )
    if "target" in configs:
        sizes = {role: _text_config(config).get("vocab_size") for role, config in configs.items()}
        if sizes["drafter"] is not None and sizes["drafter"] != sizes["target"]:
            found.append(
                (
                    "wrong drafter",
                    f"drafter: vocabulary {sizes['drafter']}, the target's is {sizes['target']}",
                )
            )
    return found


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _needed_gib(need: MemoryNeed, profile: Profile) -> float:
    fixed = need.target_gib + need.drafter_gib + need.reserve_gib
    if need.kv_tokens is None or need.kv_kib_per_token is None or need.state_mib_per_request is None:
        return fixed
    states = need.state_mib_per_request * max(profile.deployment.num_requests) / 1024
    return fixed + states + need.kv_kib_per_token * need.kv_tokens / 2**20


def _check_memory(profile: Profile, machine: Machine) -> tuple[list[tuple[Status, str]], list[str]]:
    need, requests = profile.memory, max(profile.deployment.num_requests)
    needed = _needed_gib(need, profile)
    if machine.free_gib is None:
        return [], [f"free memory was not checked; the profile needs {needed:.1f} GiB"]
    notes = []
    if need.kv_tokens is None:
        notes.append(
            "memory of keys, values and states was not checked: the profile does not know the shapes"
        )
    if needed <= machine.free_gib:
        return [], notes
    short = f"needs {needed:.1f} GiB, {machine.free_gib:.1f} GiB are free"
    if need.kv_tokens is not None and need.kv_kib_per_token:
        room_gib = machine.free_gib - (needed - need.kv_kib_per_token * need.kv_tokens / 2**20)
        tokens = int(room_gib * 2**20 / need.kv_kib_per_token)
        if tokens >= _LEAST_TOKENS_PER_REQUEST * requests:
            return [
                (
                    "smaller context only",
                    f"{short}; room for {tokens} of {need.kv_tokens} tokens, all requests together",
                )
            ], notes
    return [("cannot run here", short)], notes


def host_free_gib() -> float | None:
    """Memory that processes can still get, a container's limit included; None where the system does not say."""
    rooms = [room for room in (_available_bytes(), _cgroup_room_bytes()) if room is not None]
    return min(rooms) / 2**30 if rooms else None


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup_room_bytes() -> int | None:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            texts = [
                (Path("/sys/fs/cgroup") / name).read_text(encoding="ascii").strip() for name in (limit, used)
            ]
        except OSError:
            continue
        return None if texts[0] == "max" else int(texts[0]) - int(texts[1])
    return None
