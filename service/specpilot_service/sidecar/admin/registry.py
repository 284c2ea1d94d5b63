"""Handlers by route name. A handler without a route is an error at import, a route without a handler at start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from specpilot_service.schemas.admin_routes import find_route

__all__ = ["HANDLERS", "handles"]

HANDLERS: dict[str, Callable[..., Any]] = {}

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


def handles(*names: str) -> Callable[[HandlerT], HandlerT]:
    """Decorator: this function answers the routes with these names."""

    for name in names:
        find_route(name)

    def register(handler: HandlerT) -> HandlerT:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register
