"""One request through the gateway: wait for a place, send it to the engine, bring the answer back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

from specpilot_service.sidecar.errors import SidecarError
from specpilot_service.sidecar.gateway.call import Call
from specpilot_service.sidecar.gateway.client_side import DONE_FRAME, ClientSide
from specpilot_service.sidecar.gateway.event_relay import EventRelay, TokenUsage, read_usage
from specpilot_service.sidecar.gateway.exchange import Broken, Exchange, Unreachable, open_exchange
from specpilot_service.sidecar.gateway.router import Flight, Lease, Router
from specpilot_service.sidecar.metrics import SidecarMetrics
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.tracing import NO_TRACING, Tracing
from specpilot_service.streaming import USAGE_HEADER, event_frame

__all__ = ["Passing"]

log = logging.getLogger(__name__)

_PASSED_HEADERS = ("content-type", "cache-control", "x-accel-buffering", "retry-after")
_NUM_TRIES = 3
_WATCH_EVERY_S = 1.0


class Passing:
    """``usage`` and ``num_events`` are complete when ``run`` has ended, whatever way it ended."""

    def __init__(
        self,
        settings: SidecarSettings,
        router: Router,
        metrics: SidecarMetrics,
        client: ClientSide,
        call: Call,
        request_id: str,
        arrived_at_s: float,
        *,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._tracing = tracing
        self._settings, self._router, self._metrics = settings, router, metrics
        self._client, self._call, self._request_id = client, call, request_id
        self._arrived_at_s = arrived_at_s
        self._read_since_s: float | None = None
        self._relay = EventRelay()
        self.usage = TokenUsage()

    @property
    def num_events(self) -> int:
        return self._relay.num_events

    async def run(self, flight: Flight) -> None:
        """Ends when the client has its answer or its error. A cut flight tells its client why."""
        task = asyncio.current_task()
        assert task is not None
        flight.task = task
        if flight.cut_by is not None:  # before this task ran for the first time
            await self._client.fail(flight.cut_by)
            return
        beside = [asyncio.create_task(self._watch(flight))]
        if self._call.is_stream:
            beside.append(asyncio.create_task(self._client.keep_alive(self._settings.keep_alive_s)))
        try:
            await self._run(flight)
        except asyncio.CancelledError:
            if flight.cut_by is None:
                raise
            task.uncancel()
            await self._client.fail(flight.cut_by)
        except SidecarError as error:
            await self._client.fail(error)
        finally:
            for other in beside:
                other.cancel()
            self._metrics.events.inc(self._relay.num_events)

    async def _run(self, flight: Flight) -> None:
        for num_left in reversed(range(_NUM_TRIES)):
            with self._tracing.span("gateway.queue"):
                lease = await self._router.admit(flight, self._call.model, self._settings.hold_timeout_s)
            try:
                with self._tracing.span(
                    "gateway.engine", **{"engine.id": lease.upstream.instance_id}
                ) as span:
                    try:
                        return await self._exchange(lease, flight)
                    finally:
                        span.set_attribute("gateway.events", self._relay.num_events)
            except Unreachable as error:
                # Nothing has reached the engine, so the request may be sent again, to whoever serves then.
                log.warning("request %s: %s", self._request_id, error)
                if num_left == 0:
                    raise self._broken(error) from error
            finally:
                lease.release()
            await asyncio.sleep(0.2)

    async def _exchange(self, lease: Lease, flight: Flight) -> None:
        upstream, exchange = lease.upstream, None
        upstream.breaker.check()
        try:
            headers = [
                ("content-type", "application/json"),
                ("x-request-id", self._request_id),
                (USAGE_HEADER, "comment"),
            ]
            if traceparent := self._tracing.traceparent(self._call.traceparent):
                headers.append(("traceparent", traceparent))
            exchange = await open_exchange(
                upstream.host, upstream.port, "POST", self._call.path, headers, self._call.body
            )
            self._read_since_s = time.monotonic()
            status = await self._bring(exchange)
            if status >= 500 and status != 503:
                upstream.breaker.fail()
            elif status < 400:
                upstream.breaker.succeed()
        except (Unreachable, Broken) as error:
            upstream.breaker.fail()
            if isinstance(error, Broken):
                raise self._broken(error) from error
            raise
        except asyncio.CancelledError:
            if flight.cut_by is not None and flight.cut_by.code == "engine_failed":  # it hangs
                upstream.breaker.fail()
            raise
        finally:
            upstream.breaker.drop()
            if exchange is not None:
                exchange.abort()

    async def _bring(self, exchange: Exchange) -> int:
        """The answer to the client; returns the engine's status."""
        head = await exchange.head()
        self._metrics.first_byte_seconds.observe(time.monotonic() - self._arrived_at_s)
        headers = {name: head.headers[name] for name in _PASSED_HEADERS if name in head.headers}
        client = self._client
        if head.status == 200 and headers.get("content-type", "").startswith("text/event-stream"):
            if not client.has_started:
                await client.start(200, headers)
            await self._bring_events(exchange)
            return head.status
        # Anything else is kept until it is whole: a broken answer then still becomes an error with a status.
        body = b"".join([part async for part in _parts(exchange)])
        self.usage.take(read_usage(body))
        if not client.has_started:
            await client.answer(head.status, headers, body)
        else:  # keep-alive has committed the status: the refusal goes into the stream
            refusal = " ".join(body.decode(errors="replace").split())
            await client.write(event_frame(refusal) + DONE_FRAME, is_last=True)
        return head.status

    async def _bring_events(self, exchange: Exchange) -> None:
        relay, client = self._relay, self._client
        self.usage = relay.usage
        # The end of the connection is not waited for: what breaks behind [DONE] is no loss.
        while not relay.is_done and (data := await exchange.read()):
            self._read_since_s = None
            if events := relay.feed(data):
                await client.write(events)
            self._read_since_s = time.monotonic()
        if relay.is_done:
            await client.write(b"", is_last=True)
        elif relay.has_error:
            await client.write(DONE_FRAME, is_last=True)
        else:
            raise Broken("the engine ended the stream without [DONE]")

    def _broken(self, error: Exception) -> SidecarError:
        self._metrics.engine_failures.inc()
        message = f"The engine failed on this request: {error}. The answer is not complete; ask again."
        return SidecarError(502, "engine_failed", message)

    async def _watch(self, flight: Flight) -> None:
        """Cuts a request whose engine sends nothing or whose client takes nothing for too long."""
        settings, client = self._settings, self._client
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            now_s = time.monotonic()
            if (
                client.blocked_since_s is not None
                and now_s - client.blocked_since_s > settings.stall_timeout_s
            ):
                log.warning("request %s: its client takes no bytes; closing", self._request_id)
                client.has_ended = True  # nothing more can be told to it
                flight.cut(SidecarError(499, "client_stalled", "the client took no bytes"))
            elif self._read_since_s is not None and now_s - self._read_since_s > settings.engine_timeout_s:
                message = f"The engine sent nothing for {settings.engine_timeout_s:.0f} s."
                flight.cut(SidecarError(504, "engine_failed", message))


async def _parts(exchange: Exchange) -> AsyncIterator[bytes]:
    while part := await exchange.read():
        yield part
