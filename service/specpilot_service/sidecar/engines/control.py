"""Asking a running engine to change its mechanisms."""

from __future__ import annotations

import json
from collections.abc import Sequence

from specpilot.errors import EngineError
from specpilot_service.routes.control import CONTROL_HEADER, CONTROL_PATH
from specpilot_service.schemas.admin import ResolvedView
from specpilot_service.sidecar.engines.engine import LocalEngine
from specpilot_service.sidecar.engines.probe import fetch
from specpilot_service.sidecar.errors import SidecarError

__all__ = ["ask_change", "restart_required"]

_CHECK_TIMEOUT_S = 20.0


def restart_required(message: str) -> SidecarError:
    return SidecarError(409, "restart_required", f"in-engine: {message}; use surge or recreate")


async def ask_change(engine: LocalEngine, resolved: ResolvedView, *, is_dry_run: bool) -> list[str]:
    """Make the engine serve as this profile says, for requests that are planned from now on.

    Returns
    -------
    list[str]
        Names of the settings that changed, or would.

    Raises
    ------
    SidecarError
        409 ``restart_required``: this profile, or this engine, needs a new process. Nothing has changed.
    EngineError
        The engine does not answer.
    """
    if engine.upstream is None:
        raise restart_required(f"the engine is {engine.state}, expected ready")
    program, arguments = _parts(resolved.command)
    if program != _parts(engine.resolved.command)[0] or resolved.environment != engine.resolved.environment:
        raise restart_required("the profile starts another program, or with another environment")
    status, body = await fetch(
        *(engine.upstream.host, engine.upstream.port, "POST", CONTROL_PATH),
        {"arguments": arguments, "is_dry_run": is_dry_run},
        headers={CONTROL_HEADER: engine.control_key},
        timeout_s=_CHECK_TIMEOUT_S if is_dry_run else resolved.startup_budget_s,
    )
    try:
        answer = json.loads(body)
        if status == 200:
            return list(answer["changed"])
        message = str(answer["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = f"got {status} {body[:200]!r}"
    if status in (400, 404, 409):
        if status == 404:
            message = "this engine changes nothing while it runs"
        raise restart_required(message)
    raise EngineError(f"{CONTROL_PATH}: {message}")


def _parts(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """The program, and its flags without the address, which is the sidecar's to choose."""
    module = command.index("-m") + 2 if "-m" in command else 1
    first = next((i for i, word in enumerate(command) if i >= module and word.startswith("--")), len(command))
    flags = list(command[first:])
    for name in ("--host", "--port"):
        if name in flags:
            del flags[flags.index(name) : flags.index(name) + 2]
    return list(command[:first]), flags
