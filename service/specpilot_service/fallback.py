"""Stock decoding for a request whose mechanisms the engine does not keep; the answer says so in every step record."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from specpilot.engines.base import CancelToken, Chunk, Engine, GenerateRequest
from specpilot.engines.mechanisms import STOCK
from specpilot.errors import Unsupported

__all__ = ["generate_or_stock"]

log = logging.getLogger(__name__)


def generate_or_stock(
    engine: Engine, request: GenerateRequest, cancel: CancelToken | None = None
) -> Iterator[Chunk]:
    """``engine.generate``, and again with the drafter's own chain where the engine raises Unsupported.

    What stock decoding cannot do either is raised.
    """
    try:
        return engine.generate(request, cancel)
    except Unsupported as refusal:
        if request.mechanisms == STOCK:
            raise
        log.warning(
            "request %s: stock decoding instead of %s: %s", request.request_id, request.mechanisms, refusal
        )
        return engine.generate(replace(request, mechanisms=STOCK, fallback=str(refusal)), cancel)
