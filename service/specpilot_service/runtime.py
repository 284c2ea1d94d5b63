"""What one running service consists of: the engine, its places, its metrics, and whether it may take work."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specpilot.engines.base import Chunk, Engine, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.errors import RequestError
from specpilot_service.fallback import generate_or_stock
from specpilot_service.metrics import ServiceMetrics
from specpilot_service.settings import Settings
from specpilot_service.workers import WorkerPool

__all__ = ["Defaults", "ServiceRuntime"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Defaults:
    """How requests speculate that do not say; taken as one, so that no request gets half of a change."""

    drafter: str | None
    mechanisms: Mechanisms


class ServiceRuntime:
    """Made by ``create_app``; the routes get it as a dependency."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings, self.engine = settings, engine
        self.description = engine.describe()
        self.defaults = Defaults(self.description.default_drafter, settings.mechanisms)
        self.metrics = ServiceMetrics(engine)
        # A place for every request that runs or waits in the engine; a thread each reads what it decodes.
        self.workers = WorkerPool(settings.max_running + settings.max_waiting)
        self.started_at_s = int(time.time())
        self._not_ready = "the first token has not been decoded yet"

    @property
    def fingerprint(self) -> str:
        """Answers with the same one, seed and prompt are comparable: it covers all the engine says of itself."""
        return "fp_" + hashlib.sha256(repr(self.description).encode()).hexdigest()[:12]

    def check_model(self, name: str) -> None:
        if name != self.description.model_id:
            message = f"The model {name!r} is not served here; served: {self.description.model_id!r}."
            raise RequestError(message, param="model", code="model_not_found")

    async def warm_up(self) -> None:
        """Decode two tokens as a request would: ready means that this has worked."""
        try:
            await asyncio.to_thread(self.decode_once, self.defaults)
            self._not_ready = ""
            log.info("ready: %s", self.description)
        except Exception as error:
            self._not_ready = "the first decoding failed; the log has the cause"
            log.error("not ready: the first decoding failed", exc_info=error)

    def decode_once(
        self, defaults: Defaults, generate: Callable[[GenerateRequest], Iterator[Chunk]] | None = None
    ) -> None:
        """Two tokens as a request would. Raises what ``generate`` raises; by default it falls back as requests do."""
        prompt_ids = self.engine.apply_chat_template([{"role": "user", "content": "Hi"}])
        sampling = SamplingParams(max_new_tokens=2, ignore_eos=True)
        mechanisms = STOCK if defaults.drafter is None else defaults.mechanisms
        request = GenerateRequest(prompt_ids, sampling, defaults.drafter, "warm-up", mechanisms)
        for _ in generate(request) if generate is not None else generate_or_stock(self.engine, request):
            pass

    def why_not_ready(self) -> str:
        """Empty when the service can take work now. May block for a moment: not for the event loop."""
        if self.workers.is_draining:
            return "draining"
        if self._not_ready:
            return self._not_ready
        health = self.engine.health()
        if health.is_draining:
            return "the engine drains"
        return "" if health.is_ready else health.detail or "the engine is not ready"

    async def drain(self) -> bool:
        """Take no more work, finish the old within ``drain_timeout_s``; True if nothing was cancelled."""
        has_finished = await self.workers.drain(self.settings.drain_timeout_s)
        return await asyncio.to_thread(self.engine.drain, 1.0) and has_finished
