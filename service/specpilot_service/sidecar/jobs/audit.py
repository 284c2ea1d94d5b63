"""The kind ``audit``: token forcing of the engine that runs, or of the candidate of a switch."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specpilot.errors import CheckpointError, ConfigError
from specpilot.models.folders import BUNDLED_MODEL_ID, model_folders
from specpilot_service.schemas.admin import ResolvedView
from specpilot_service.schemas.admin_audits import AuditOptions
from specpilot_service.sidecar.jobs.kinds import JobPlace

__all__ = ["AuditKind", "has_room", "model_of"]

_MOST_BYTES = 2 * 2**30
"""Weights of a second engine, at most: it runs on the CPU, and larger ones would take hours."""

_ROOM_FACTOR = 3
"""A second engine takes the weights, their decoded copy and its states: memory must hold three times their bytes."""


class AuditKind:
    """Runs ``specpilot.forcing.job`` on the engine's URL, scored by a second engine where there is room for one."""

    name = "audit"

    def unavailable(self) -> str:
        return ""

    def unavailable_for(self, resolved: ResolvedView | None) -> str:
        if resolved is None:
            return ""
        if "specpilot_service" not in resolved.command:
            return (
                "audits here are for the embedded engine; audit SGLang with specpilot forcing audit, against a scorer "
                "of its own"
            )
        model = model_of(resolved.command)
        if model not in (None, BUNDLED_MODEL_ID) and not has_room(model):
            return "there is no room for a second engine, and no probe set of this model for the live one"
        return ""

    def gate_options(self) -> Mapping[str, Any]:
        # About 2,500 tokens: the smallest audit that says something, decided within a minute on an idle core.
        return {"prompts": 28, "max_tokens": 112}

    def command(self, options: Mapping[str, Any], place: JobPlace) -> Sequence[str]:
        try:
            chosen = AuditOptions.model_validate(dict(options))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                known = ", ".join(AuditOptions.model_fields)
                raise ConfigError(f"options: got {where}, expected some of: {known}") from None
            raise ConfigError(f"options.{where}: got {first['input']!r}, {first['msg']}") from None
        model = model_of(place.resolved.command) if place.resolved is not None else chosen.model
        scored_by = chosen.scored_by
        if scored_by == "auto":
            scored_by = "second" if has_room(model) else "live"
        words = [sys.executable, "-P", "-m", "specpilot.forcing.job", "--out", str(place.result)]
        words += ["--url", place.engine_url or "http://127.0.0.1:9", "--scored-by", scored_by]
        words += ["--prompts", str(chosen.prompts), "--max-tokens", str(chosen.max_tokens)]
        words += ["--seed", str(chosen.seed)]
        if model is not None:
            words += ["--model", model]
        return words


def model_of(command: Sequence[str]) -> str | None:
    """The checkpoint that an engine's command names; None for the bundled one."""
    for flag, value in itertools.pairwise(command):
        if flag in ("--model", "--model-path"):
            return value
    return None


def has_room(model: str | None) -> bool:
    """Whether this box can hold a second engine over the checkpoint."""
    try:
        _, folder, _ = model_folders(model)
        weights = sum(
            path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".w12")
        )
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (CheckpointError, OSError, StopIteration):
        return False
    return 0 < weights <= _MOST_BYTES and weights * _ROOM_FACTOR < free_kib * 1024
