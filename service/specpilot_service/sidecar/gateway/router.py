"""Which engine takes a request, and where requests wait until one does.

All of this belongs to the event loop. A request holds one place of one engine from admission until its end, whatever
way it ends; ``Lease`` gives the place back exactly once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from specpilot_service.sidecar.errors import SidecarError, no_engine, not_found, too_many
from specpilot_service.sidecar.gateway.breaker import Breaker

__all__ = ["Flight", "Lease", "Router", "Upstream"]


class Flight:
    """One open request. ``cut`` ends it with an error that its client is told."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.cut_by: SidecarError | None = None
        self.task: asyncio.Task[None] | None = None

    def cut(self, error: SidecarError) -> None:
        if self.cut_by is None:
            self.cut_by = error
            if self.task is not None:
                self.task.cancel()


class Upstream:
    """An engine that serves. ``share`` is its weight among the routed ones, ``cards`` its own ``/v1/models``."""

    def __init__(
        self,
        instance_id: str,
        host: str,
        port: int,
        cards: Iterable[dict[str, Any]],
        max_in_flight: int,
        breaker: Breaker,
    ) -> None:
        self.instance_id, self.host, self.port = instance_id, host, port
        self.cards = tuple(cards)
        self.models = tuple(str(card["id"]) for card in self.cards)
        self.max_in_flight, self.breaker = max_in_flight, breaker
        self.share = 1.0
        self.credit = 0.0  # of the weighted round robin
        self.flights: set[Flight] = set()
        self.is_idle = asyncio.Event()
        self.is_idle.set()

    @property
    def has_room(self) -> bool:
        return len(self.flights) < self.max_in_flight

    async def finish(self, timeout_s: float, error: SidecarError) -> int:
        """Wait for open requests, cut those that are left at the timeout; how many were cut."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.is_idle.wait()
            return 0
        except TimeoutError:
            left = list(self.flights)
            for flight in left:
                flight.cut(error)
            # A cut flight leaves within a few turns of the loop, unless its client takes no bytes.
            try:
                async with asyncio.timeout(5.0):
                    await self.is_idle.wait()
            except TimeoutError:
                pass
            return len(left)


class Lease:
    """A place in an engine."""

    def __init__(self, router: Router, upstream: Upstream, flight: Flight) -> None:
        self._router, self.upstream, self._flight = router, upstream, flight

    def release(self) -> None:
        if self._flight in self.upstream.flights:
            self.upstream.flights.remove(self._flight)
            if not self.upstream.flights:
                self.upstream.is_idle.set()
            self._router.pump()


class Router:
    """``is_holding`` says whether requests wait while no engine is routed; else they are refused at once. ``cards``
    are the models of the engines routed last, by name."""

    def __init__(self, max_queued: int) -> None:
        self.max_queued = max_queued
        self.is_holding = False
        self.why_no_engine = "no engine has been started yet"
        self.is_closed_by: SidecarError | None = None
        self.cards: dict[str, dict[str, Any]] = {}
        self._routed: list[Upstream] = []
        self._waiting: deque[tuple[asyncio.Future[Lease], Flight, str]] = deque()

    @property
    def routed(self) -> tuple[Upstream, ...]:
        return tuple(self._routed)

    @property
    def num_waiting(self) -> int:
        return sum(not future.done() for future, _, _ in self._waiting)

    @property
    def is_saturated(self) -> bool:
        """Whether requests wait, or the next one would."""
        full = bool(self._routed) and not any(upstream.has_room for upstream in self._routed)
        return full or self.num_waiting > 0

    def route(self, shares: dict[Upstream, float]) -> None:
        """From now on new requests go to these engines, by these shares; running ones stay where they are."""
        for upstream, share in shares.items():
            upstream.share, upstream.credit = share, 0.0
        self._routed = [upstream for upstream, share in shares.items() if share > 0]
        self.cards = {str(card["id"]): card for upstream in self._routed for card in upstream.cards}
        self.pump()

    def hold(self, why: str) -> None:
        """New requests wait until ``route`` or ``refuse``."""
        self.is_holding, self.why_no_engine, self._routed = True, why, []

    def refuse(self, why: str) -> None:
        """New requests and those that wait are told that no engine is there."""
        self.is_holding, self.why_no_engine, self._routed = False, why, []
        while self._waiting:
            future, _, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(no_engine(f"No engine serves: {why}."))

    async def admit(self, flight: Flight, model: str, hold_timeout_s: float) -> Lease:
        """A place, at once or after waiting; 429 when too many wait already, 503 without an engine."""
        if self.is_closed_by is not None:
            raise self.is_closed_by
        if not self._routed and not self.is_holding:
            raise no_engine(f"No engine serves: {self.why_no_engine}.")
        if not self.num_waiting and (upstream := self._choose(model)) is not None:
            return self._lease(upstream, flight)
        if self.num_waiting >= self.max_queued:
            if not self._routed:
                raise no_engine(f"{self.max_queued} requests wait already: {self.why_no_engine}.")
            raise too_many("overloaded", f"{self.max_queued} requests wait already; try again later.", 1.0)
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, flight, model))
        try:
            async with asyncio.timeout(hold_timeout_s):
                try:
                    return await future
                except asyncio.CancelledError:
                    # The place may have been given in the same turn of the loop in which the client left.
                    if future.done() and not future.cancelled() and future.exception() is None:
                        future.result().release()
                    raise
        except TimeoutError:
            raise no_engine(f"No place came free in {hold_timeout_s:.0f} s; try again later.") from None

    def serves(self, model: str) -> bool:
        return any(not upstream.models or model in upstream.models for upstream in self._routed)

    def unknown_model(self, model: str) -> SidecarError:
        served = ", ".join(map(repr, self.cards)) or "none"
        return not_found(
            f"The model {model!r} is not served here; served: {served}.",
            code="model_not_found",
            param="model",
        )

    def _choose(self, model: str) -> Upstream | None:
        """Smooth weighted round robin over the routed engines with room that serve the model."""
        fitting = [u for u in self._routed if u.has_room and (not u.models or model in u.models)]
        if not fitting:
            return None
        for upstream in fitting:
            upstream.credit += upstream.share
        best = max(fitting, key=lambda upstream: upstream.credit)
        best.credit -= sum(upstream.share for upstream in fitting)
        return best

    def _lease(self, upstream: Upstream, flight: Flight) -> Lease:
        upstream.flights.add(flight)
        upstream.is_idle.clear()
        return Lease(self, upstream, flight)

    def pump(self) -> None:
        """Give free places to those that wait, first come, first served."""
        while self._waiting:
            future, flight, model = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            if not self._routed:
                return
            if not self.serves(model):  # an engine with another model came while the request waited
                self._waiting.popleft()
                future.set_exception(self.unknown_model(model))
                continue
            if (upstream := self._choose(model)) is None:
                return
            self._waiting.popleft()
            future.set_result(self._lease(upstream, flight))
