"""Settings that change while the engine runs.

What decides how requests speculate is read when a request is planned, so a change holds for every request that is
planned after it; requests that run finish as they began. What sizes, loads or places something needs a new process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from specpilot.engines.mechanisms import BatchMechanisms
from specpilot.errors import ConfigError, SpecPilotError
from specpilot_service.runtime import Defaults, ServiceRuntime
from specpilot_service.settings import Settings, load_settings

__all__ = ["HOT_FIELDS", "RestartRequired", "change_settings"]

log = logging.getLogger(__name__)

HOT_FIELDS = frozenset(
    """drafter builder nodes positions cost_aware gdn_form q_weights q_gate certified_head drafter_blocks
    whole_prompt_rows prompt_rows""".split()
)
_BATCH_FIELDS = frozenset({"drafter_blocks", "whole_prompt_rows", "prompt_rows"})
# Where a process listens is not what it serves: whoever starts it chooses.
_PLACE_FIELDS = frozenset({"host", "port", "control_key"})


class RestartRequired(SpecPilotError):
    """The new settings need a new process; nothing was changed.

    Attributes
    ----------
    fields
        Names of the settings that do.
    """

    def __init__(self, fields: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.fields = list(fields)


_changing = threading.Lock()


def change_settings(runtime: ServiceRuntime, arguments: Sequence[str], *, is_dry_run: bool) -> list[str]:
    """Make the runtime serve as if it had been started with these command-line flags. Blocking.

    Two tokens are decoded the new way first, which also makes what it needs (the copies of two-level verification, for
    instance), so that no request waits for that and what cannot work changes nothing.

    Returns
    -------
    list[str]
        Names of the settings that differ from before.

    Raises
    ------
    RestartRequired
        A setting differs that is not hot, or the engine refuses the new ones.
    ConfigError
        For arguments that no engine would start with.
    """
    with _changing:
        before, after = runtime.settings, load_settings(arguments)
        changed = [name for name in Settings.model_fields if getattr(before, name) != getattr(after, name)]
        changed = [name for name in changed if name not in _PLACE_FIELDS]
        after = after.model_copy(update={name: getattr(before, name) for name in _PLACE_FIELDS})
        cold = [name for name in changed if name not in HOT_FIELDS]
        if "cost_aware" in changed and after.cost_aware:
            cold.append("cost_aware")  # what steps cost is measured while nothing else runs
        if before.batch != after.batch and not hasattr(runtime.engine, "change_batch"):
            cold += [name for name in changed if name in _BATCH_FIELDS]
        if cold:
            raise RestartRequired(cold, f"{', '.join(cold)}: needs a new process")
        drafter = _drafter(runtime, after.drafter)
        if not changed or is_dry_run:
            return changed
        _apply(runtime, before, after, drafter)
        log.info("settings changed while running: %s", ", ".join(changed))
        return changed


def _drafter(runtime: ServiceRuntime, name: str | None) -> str | None:
    known = runtime.description.drafters
    if name == "none":
        return None
    if name is None:
        return next(iter(known), None)
    if name not in known:
        raise RestartRequired(["drafter"], f"drafter: got {name!r}, expected one of: {', '.join(known)}")
    return name


def _apply(runtime: ServiceRuntime, before: Settings, after: Settings, drafter: str | None) -> None:
    defaults = Defaults(drafter, after.mechanisms)

    def share_rows(batch: BatchMechanisms) -> None:
        if before.batch != after.batch:
            runtime.engine.change_batch(batch)  # type: ignore[attr-defined]  # asked above

    try:
        share_rows(after.batch)
        runtime.decode_once(defaults, generate=runtime.engine.generate)
    except Exception as error:
        share_rows(before.batch)
        if isinstance(error, SpecPilotError) and not isinstance(error, ConfigError):
            raise RestartRequired([], f"the engine refuses them: {error}") from error
        raise
    runtime.defaults = defaults
    runtime.description = replace(runtime.description, default_drafter=drafter)
    runtime.settings = after
