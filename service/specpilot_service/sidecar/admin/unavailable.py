"""Rounds and memory: their routes stand, and say what is missing."""

from __future__ import annotations

from specpilot_service.schemas.admin_routes import Unavailable
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.errors import unavailable

__all__ = ["tell_no_memory", "tell_no_rounds"]


@handles("rounds.list", "rounds.start", "rounds.show", "rounds.stop")
async def tell_no_rounds() -> Unavailable:
    raise unavailable("rounds: this build has no controller yet, so no round can be run")


@handles("memory.list", "memory.show")
async def tell_no_memory() -> Unavailable:
    raise unavailable("memory: this build has no memory of mechanisms yet")
