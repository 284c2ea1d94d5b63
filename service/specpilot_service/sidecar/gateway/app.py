"""The gateway's ASGI application: authenticate, admit, pass through, count."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from specpilot_service.sidecar.access import OPEN, KeyRing, Principal
from specpilot_service.sidecar.errors import SidecarError, forbidden, not_found
from specpilot_service.sidecar.gateway.call import Call, read_body, read_call, request_id_of
from specpilot_service.sidecar.gateway.client_side import ClientSide
from specpilot_service.sidecar.gateway.passing import Passing
from specpilot_service.sidecar.gateway.router import Flight, Router
from specpilot_service.sidecar.metrics import SidecarMetrics
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.store.usage import Usage
from specpilot_service.sidecar.tracing import NO_TRACING, Tracing
from specpilot_service.streaming import until_disconnect

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

_CALLS = ("/v1/chat/completions", "/v1/completions")


@dataclass
class Gateway:
    """``why_not_ready`` is empty when ``/readyz`` may say 200. ``flights`` are all open requests."""

    settings: SidecarSettings
    router: Router
    key_ring: KeyRing
    usage: Usage
    metrics: SidecarMetrics
    why_not_ready: Callable[[], str]
    tracing: Tracing = NO_TRACING

    def __post_init__(self) -> None:
        self.flights: set[Flight] = set()

    def cut_key(self, key_id: str, error: SidecarError) -> None:
        """End all open requests of a key."""
        for flight in [flight for flight in self.flights if flight.key_id == key_id]:
            flight.cut(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the gateway serves http, got {scope['type']}")
        headers, arrived_at_s = Headers(scope=scope), time.monotonic()
        request_id = request_id_of(headers)
        client = ClientSide(send, request_id, is_stream=False)
        route = path = scope["path"]
        try:
            if path in ("/livez", "/readyz"):
                await self._tell_health(client, path)
                return
            principal = self._authenticate(headers)
            if path == "/v1/models" or path.startswith("/v1/models/"):
                route = "/v1/models"
                await self._tell_models(client, scope["method"], path, principal)
            elif path in _CALLS:
                if scope["method"] != "POST":
                    raise SidecarError(405, "method_not_allowed", "This path takes POST.")
                body = await read_body(scope, receive, self.settings.max_body_bytes)
                call = read_call(path, body, headers.get("traceparent", ""))
                client.is_stream = call.is_stream
                traced = self.tracing.span(
                    "gateway.request",
                    traceparent=call.traceparent,
                    **{"http.route": path, "gen_ai.request.model": call.model, "request.id": request_id},
                )
                with traced as span:
                    try:
                        await self._pass(client, call, principal, request_id, receive, arrived_at_s)
                    finally:
                        span.set_attribute("http.response.status_code", client.status)
            else:
                route = "unmatched"
                raise not_found("Unknown path; the gateway serves /v1/models and " + ", ".join(_CALLS) + ".")
        except SidecarError as error:
            if not client.has_started:
                await client.fail(error)
        except ClientDisconnect:
            client.status = client.status or 499
            self.metrics.cancelled.inc()
        except Exception as error:
            log.error("request %s failed", request_id, exc_info=error)
            message = (
                f"The gateway failed on this request; its log has the cause under request id {request_id}."
            )
            if client.has_started and not client.is_stream:
                raise
            await client.fail(SidecarError(500, "internal_error", message))
        finally:
            self.metrics.requests.labels(route, str(client.status)).inc()

    def _authenticate(self, headers: Headers) -> Principal:
        if self.settings.open:
            return OPEN
        principal = self.key_ring.authenticate(headers.get("authorization"))
        principal.require("inference")
        return principal

    async def _tell_health(self, client: ClientSide, path: str) -> None:
        reason = self.why_not_ready() if path == "/readyz" else ""
        body = json.dumps({"status": "not ready" if reason else "ok", "detail": reason}).encode()
        await client.answer(503 if reason else 200, {"content-type": "application/json"}, body)

    async def _tell_models(self, client: ClientSide, method: str, path: str, principal: Principal) -> None:
        if method != "GET":
            raise SidecarError(405, "method_not_allowed", "This path takes GET.")
        cards = {
            name: card
            for name, card in self.router.cards.items()
            if principal.models is None or name in principal.models
        }
        name = path.removeprefix("/v1/models").removeprefix("/")
        if name and name not in cards:
            raise self.router.unknown_model(name)
        answer = cards[name] if name else {"object": "list", "data": list(cards.values())}
        await client.answer(200, {"content-type": "application/json"}, json.dumps(answer).encode())

    async def _pass(
        self,
        client: ClientSide,
        call: Call,
        principal: Principal,
        request_id: str,
        receive: Receive,
        arrived_at_s: float,
    ) -> None:
        passing = Passing(
            *(self.settings, self.router, self.metrics, client, call, request_id, arrived_at_s),
            tracing=self.tracing,
        )
        flight = Flight(principal.key_id)
        self.flights.add(flight)
        is_refused = True
        try:
            self._check(principal, call)
            is_refused = False
            await until_disconnect(passing.run(flight), receive)
        finally:
            self.flights.discard(flight)
            usage = passing.usage
            estimated = 0 if usage.is_reported else passing.num_events
            total = usage.prompt_tokens + usage.completion_tokens + estimated
            principal.limiter.take_tokens(total)
            self.metrics.tokens.labels("prompt").inc(usage.prompt_tokens)
            self.metrics.tokens.labels("completion").inc(usage.completion_tokens)
            self.metrics.tokens.labels("estimated").inc(estimated)
            self.usage.add(
                *(principal.key_id, call.model),
                num_requests=int(not is_refused),
                num_refused=int(is_refused),
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                estimated_tokens=estimated,
            )

    def _check(self, principal: Principal, call: Call) -> None:
        if principal.models is not None and call.model not in principal.models:
            allowed = ", ".join(sorted(principal.models)) or "none"
            raise forbidden("model_not_allowed", f"model: got {call.model!r}, this key may use: {allowed}")
        if self.router.routed and not self.router.serves(call.model):
            raise self.router.unknown_model(call.model)
        principal.limiter.admit()
