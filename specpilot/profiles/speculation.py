"""Arguments an engine needs, may have, and must not have: speculation is given whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specpilot.errors import ConfigError
from specpilot.profiles.mechanisms import check_options
from specpilot.profiles.schema import Profile

__all__ = ["REFERENCE_ARGUMENTS", "SGLANG_ALGORITHMS", "check_arguments"]

REFERENCE_ARGUMENTS: Final = frozenset({"max-kv-tokens", "max-running", "max-waiting", "mode", "num-threads"})
"""Flags of ``specpilot serve`` a profile may set; mechanisms bring their own, the resolver sets address and drafter."""

SGLANG_ALGORITHMS: Final[Mapping[str, str]] = {"dflash2": "DFLASH", "dspark": "DSPARK", "eagle3": "EAGLE3"}
"""``--speculative-algorithm`` of a kind of drafter."""

# What stock SGLang 0.5.20 otherwise guesses or takes from the target's arguments.
_SGLANG_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "dflash2": ("speculative-num-draft-tokens", "speculative-draft-attention-backend"),
    "dspark": ("speculative-dspark-block-size", "speculative-draft-attention-backend"),
    "eagle3": ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"),
}
_SGLANG_ALWAYS: Final = ("attention-backend", "context-length", "max-running-requests", "mem-fraction-static")
_SGLANG_RESOLVED: Final = (
    "model-path",
    "host",
    "port",
    "speculative-algorithm",
    "speculative-draft-model-path",
)


def check_arguments(profile: Profile) -> None:
    """Refuse a profile whose engine arguments are incomplete, contradictory or not its own to set.

    Raises
    ------
    ConfigError
        Names the argument, and what the profile must say instead.
    """
    for choice in profile.mechanisms:
        check_options(choice)
    if profile.engine.kind == "reference":
        _check_reference(profile)
    else:
        _check_sglang(profile)


def _check_reference(profile: Profile) -> None:
    for name in profile.engine.arguments:
        if name not in REFERENCE_ARGUMENTS:
            raise ConfigError(
                f"engine.arguments: got {name!r}, expected some of: {', '.join(sorted(REFERENCE_ARGUMENTS))}"
            )
    if profile.engine.version is not None:
        raise ConfigError("engine.version: got one, expected none; the reference engine is this build's")
    drafter = profile.deployment.drafter
    if drafter.folder is not None and profile.deployment.target.folder is None:
        raise ConfigError("deployment.drafter.folder: got one with the bundled target, expected none")
    if drafter.kind == "none" and profile.mechanisms:
        raise ConfigError(f"mechanisms: got {profile.mechanisms[0].id!r} without a drafter, expected none")


def _check_sglang(profile: Profile) -> None:
    arguments, drafter = profile.engine.arguments, profile.deployment.drafter
    if profile.engine.version is None:
        raise ConfigError("engine.version: is missing; arguments of SGLang change from version to version")
    for name in _SGLANG_RESOLVED:
        if name in arguments:
            raise ConfigError(
                f"engine.arguments: got {name!r}, which follows from the deployment; leave it out"
            )
    needed = list(_SGLANG_ALWAYS)
    if drafter.kind in _SGLANG_NEEDS:
        needed += _SGLANG_NEEDS[drafter.kind]
        if profile.deployment.target.weights == "fp8":  # it would be taken for the drafter too
            needed.append("speculative-draft-model-quantization")
    elif drafter.kind == "none":
        extra = [name for name in arguments if name.startswith("speculative-")]
        if extra:
            raise ConfigError(
                f"engine.arguments: got {extra[0]!r} without a drafter; name one or leave it out"
            )
    else:
        raise ConfigError(f"deployment.drafter.kind: got {drafter.kind!r}, which SGLang does not run")
    missing = [name for name in needed if name not in arguments]
    if missing:
        raise ConfigError(
            f"engine.arguments: {missing[0]!r} is missing; a {drafter.kind} profile on SGLang gives all of: "
            f"{', '.join(needed)}"
        )
