"""What no admin route takes: query parameters that it does not know, and a JSON object that names a field twice."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute

from specpilot_service.sidecar.errors import SidecarError

__all__ = ["refuse_what_nobody_reads"]


async def refuse_what_nobody_reads(request: Request) -> None:
    """A dependency of every route. 400 for what would be ignored in silence."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {parameter.alias for parameter in route.dependant.query_params}
    for name in request.query_params:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise SidecarError(
                400,
                "unknown_parameter",
                f"query parameter: got {name!r:.80}, expected: {expected}",
                param=name[:80],
            )
    if route.body_field is not None and (body := await request.body()):
        try:
            json.loads(body, object_pairs_hook=_once)
        except (ValueError, RecursionError):
            return  # the route itself tells what is wrong with it


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise SidecarError(
            400, "invalid_body", f"body: {name!r:.80} is given more than once", param=name[:80]
        )
    return found
