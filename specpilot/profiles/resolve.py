"""From a profile to the command that starts its engine, the environment, and where every value comes from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from specpilot.errors import ConfigError, Unsupported
from specpilot.models.folders import BUNDLED_MODEL_ID, bundled_folder
from specpilot.profiles.mechanisms import CATALOGUE, arguments_of, why_not_available
from specpilot.profiles.records import Scalar
from specpilot.profiles.schema import Profile, Switch
from specpilot.profiles.speculation import REFERENCE_ARGUMENTS, SGLANG_ALGORITHMS
from specpilot.profiles.store import ProfileStore, load_profiles

__all__ = [
    "DEFAULT_MODELS",
    "MechanismState",
    "ResolvedProfile",
    "checkpoint_folders",
    "resolve",
    "resolve_profile",
]

DEFAULT_MODELS: Final = Path("/models")
"""Where folders of targets and drafters lie in the images."""

_SGLANG_PYTHON: Final = Path("/opt/sglang/bin/python")
"""SGLang 0.5.20 pins other versions than this package, so the images give it an environment of its own."""


@dataclass(frozen=True)
class MechanismState:
    """A mechanism of the profile; ``reason`` says why it is not available."""

    id: str
    title: str
    options: Mapping[str, Scalar]
    reason: str | None

    @property
    def is_available(self) -> bool:
        return self.reason is None


@dataclass(frozen=True)
class ResolvedProfile:
    """What starts a profile.

    Attributes
    ----------
    degraded_command
        Without the mechanisms that are not available; the command itself when none is missing.
    environment
        Variables to add.
    origins
        Flag, variable or ``python`` -> where its value comes from.
    """

    name: str
    profile_id: str
    engine: str
    degraded_command: list[str]
    environment: dict[str, str]
    origins: dict[str, str]
    mechanisms: tuple[MechanismState, ...]
    startup_budget_s: int
    switch: Switch
    gpu: str

    @property
    def missing(self) -> tuple[MechanismState, ...]:
        return tuple(state for state in self.mechanisms if not state.is_available)

    @property
    def is_runnable(self) -> bool:
        """All mechanisms are available; a machine may still lack the GPU, memory or models."""
        return not self.missing

    @property
    def command(self) -> list[str]:
        """The profile as specified.

        Raises
        ------
        Unsupported
            A mechanism is not available. ``degraded_command`` starts what is left, for whoever asks for that by name.
        """
        if self.missing:
            reasons = "; ".join(f"{state.id}: {state.reason}" for state in self.missing)
            raise Unsupported(
                f"profile {self.name}: not runnable as specified: {reasons}; start it degraded, or choose another one"
            )
        return list(self.degraded_command)

    def content(self) -> dict[str, Any]:
        """As plain dicts and lists; ``command`` is None when it is not runnable as specified."""
        return {
            "name": self.name,
            "profile_id": self.profile_id,
            "gpu": self.gpu,
            "engine": self.engine,
            "command": None if self.missing else self.degraded_command,
            "degraded_command": self.degraded_command if self.missing else None,
            "environment": self.environment,
            "origins": self.origins,
            "mechanisms": [
                {
                    "id": state.id,
                    "title": state.title,
                    "options": dict(state.options),
                    "state": "available" if state.is_available else "not available",
                    "reason": state.reason,
                }
                for state in self.mechanisms
            ],
            "startup_budget_s": self.startup_budget_s,
            "switch": self.switch,
        }


def resolve(
    reference: str,
    gpu: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 30000,
    models: Path = DEFAULT_MODELS,
    overrides: Mapping[str, Scalar] | None = None,
    store: ProfileStore | None = None,
) -> ResolvedProfile:
    """The profile of this name or id.

    Parameters
    ----------
    gpu
        Device class, a row of ``gpus.yaml`` or ``cpu``; it decides between rows of the same short name.
    overrides
        Engine arguments (without dashes) that replace the profile's or are added to them.

    Raises
    ------
    ConfigError
        Unknown or ambiguous reference, a profile of another device class than ``gpu``, or an override that is not an
        argument a profile may set.
    """
    rows = load_profiles() if store is None else store
    profile = rows.find(reference, gpu)
    if gpu is not None and profile.deployment.gpu != gpu:
        raise ConfigError(
            f"profile {profile.name}: is for {profile.deployment.gpu}, got {gpu}; choose a profile of this device"
        )
    return resolve_profile(profile, host=host, port=port, models=models, overrides=overrides)


def resolve_profile(
    profile: Profile,
    *,
    host: str = "127.0.0.1",
    port: int = 30000,
    models: Path = DEFAULT_MODELS,
    overrides: Mapping[str, Scalar] | None = None,
) -> ResolvedProfile:
    """See :func:`resolve`."""
    states = tuple(
        MechanismState(
            choice.id,
            CATALOGUE[choice.id].title,
            choice.options,
            why_not_available(choice, profile.engine.kind),
        )
        for choice in profile.mechanisms
    )
    arguments: dict[str, tuple[Scalar, str]] = {"host": (host, "call"), "port": (port, "call")}
    if profile.engine.kind == "reference":
        python, module = Path(sys.executable), ["-P", "-m", "specpilot_service"]
        arguments |= _reference_arguments(profile, states, models)
    else:
        is_installed = _SGLANG_PYTHON.is_file()
        python, module = (
            _SGLANG_PYTHON if is_installed else Path(sys.executable),
            ["-m", "sglang.launch_server"],
        )
        arguments |= _sglang_arguments(profile, models)
    arguments |= {name: (value, "profile") for name, value in profile.engine.arguments.items()}
    arguments |= _overrides(profile, overrides or {})
    command = [str(python), *module]
    for name, (value, _) in arguments.items():
        if value is True:
            command.append(f"--{name}")
        elif value is not False:
            command += [f"--{name}", str(value)]
    environment = dict(profile.engine.environment)
    origins = {"python": "this installation"}
    origins |= {f"--{name}": origin for name, (_, origin) in arguments.items()}
    origins |= dict.fromkeys(environment, "profile")
    return ResolvedProfile(
        name=profile.name,
        profile_id=profile.profile_id,
        engine=profile.engine.kind,
        degraded_command=command,
        environment=environment,
        origins=origins,
        mechanisms=states,
        startup_budget_s=profile.startup_budget_s,
        switch=profile.switch,
        gpu=profile.deployment.gpu,
    )


def _reference_arguments(
    profile: Profile, states: tuple[MechanismState, ...], models: Path
) -> dict[str, tuple[Scalar, str]]:
    deployment = profile.deployment
    found: dict[str, tuple[Scalar, str]] = {}
    if deployment.target.folder is not None:
        found["model"] = (str(models / deployment.target.folder), "deployment.target")
    found["drafter"] = (deployment.drafter.kind, "deployment.drafter")
    for choice, state in zip(profile.mechanisms, states, strict=True):
        if state.is_available:
            found |= {name: (value, f"mechanism {choice.id}") for name, value in arguments_of(choice).items()}
    return found


def checkpoint_folders(profile: Profile, models: Path) -> tuple[Path, Path]:
    """Folders of target and drafter. The bundled ones are W12 files, so SGLang reads a decoded copy of them."""
    target, drafter = profile.deployment.target, profile.deployment.drafter
    bundled = bundled_folder() if profile.engine.kind == "reference" else models / BUNDLED_MODEL_ID
    return (
        bundled / "target" if target.folder is None else models / target.folder,
        bundled / drafter.kind if drafter.folder is None else models / drafter.folder,
    )


def _sglang_arguments(profile: Profile, models: Path) -> dict[str, tuple[Scalar, str]]:
    drafter = profile.deployment.drafter
    path, draft = checkpoint_folders(profile, models)
    found: dict[str, tuple[Scalar, str]] = {"model-path": (str(path), "deployment.target")}
    if drafter.kind != "none":
        found["speculative-algorithm"] = (SGLANG_ALGORITHMS[drafter.kind], "deployment.drafter")
        found["speculative-draft-model-path"] = (str(draft), "deployment.drafter")
    return found


def _overrides(profile: Profile, overrides: Mapping[str, Scalar]) -> dict[str, tuple[Scalar, str]]:
    # A value outside the profile cannot be known to exist in SGLang, so only those the profile names are replaced.
    known = REFERENCE_ARGUMENTS if profile.engine.kind == "reference" else frozenset(profile.engine.arguments)
    for name in overrides:
        if name not in known:
            raise ConfigError(f"override: got {name!r}, expected one of: {', '.join(sorted(known))}")
    return {name: (value, "override") for name, value in overrides.items()}
