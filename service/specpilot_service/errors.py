"""The only place where errors become HTTP answers.

| error | status | code |
|---|---|---|
| RequestError | 400, or 404 for ``model_not_found`` | its own code |
| Unsupported | 400 | ``unsupported`` |
| BodyTooLarge | 413 | ``body_too_large`` |
| Overloaded | 429 and Retry-After | ``overloaded`` |
| ShuttingDown | 503 and Retry-After | ``shutting_down`` |
| body that breaks the schema | 400 | ``invalid_value``, ``missing_parameter``, ``unknown_parameter``, ... |
| unknown path, wrong method | 404, 405 | ``not_found``, ``method_not_allowed`` |
| everything else | 500, without internals | ``internal_error`` |
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from specpilot.errors import Overloaded, RequestError, SpecPilotError, Unsupported
from specpilot_service.schemas import ErrorBody, ErrorDetail

__all__ = ["AnswerCut", "BodyTooLarge", "ErrorReply", "ShuttingDown", "error_reply", "install_error_handlers"]

log = logging.getLogger(__name__)

# What nginx logs when the client has gone: nobody reads the answer, but the metric tells it from a success.
_CLIENT_CLOSED_REQUEST = 499
_MAX_SHOWN_CHARS = 80


class ShuttingDown(Overloaded):
    """This process takes no new work; another replica or the next process does."""


class AnswerCut(ShuttingDown):
    """A running answer was cancelled. If its client is still there, a drain ran out of time."""

    def __init__(self) -> None:
        super().__init__("The answer was cut because this server is shutting down.", retry_after_s=5.0)


class BodyTooLarge(HTTPException):
    """The body is larger than ``max_body_bytes``. An HTTPException: those pass through body parsing."""

    def __init__(self, num_bytes: int, max_bytes: int) -> None:
        super().__init__(413, f"The body has {num_bytes} bytes or more, at most {max_bytes} are taken.")


@dataclass(frozen=True)
class ErrorReply:
    status: int
    detail: ErrorDetail
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return ErrorBody(error=self.detail).model_dump_json().encode()

    def response(self) -> Response:
        return Response(self.body, self.status, self.headers, media_type="application/json")


def error_reply(error: BaseException, request_id: str) -> ErrorReply:
    """The answer to a failed request; what the caller cannot mend is only logged, under the request id."""
    match error:
        case RequestError():
            status = 404 if error.code == "model_not_found" else 400
            return _reply(status, "invalid_request_error", str(error), error.code, error.param)
        case Unsupported():
            return _reply(400, "invalid_request_error", str(error), "unsupported")
        case BodyTooLarge():
            return _reply(413, "invalid_request_error", error.detail, "body_too_large")
        case ShuttingDown():
            return _with_retry(_reply(503, "server_error", str(error), "shutting_down"), error)
        case Overloaded():
            return _with_retry(_reply(429, "rate_limit_error", str(error), "overloaded"), error)
        case RequestValidationError():
            return _validation_reply(error.errors())
        case HTTPException():
            return _http_reply(error)
        case ClientDisconnect():
            return _reply(
                _CLIENT_CLOSED_REQUEST, "client_error", "the client closed the connection", "client_closed"
            )
    log.error("request %s failed", request_id, exc_info=error)
    message = f"The server failed on this request; its log has the cause under request id {request_id}."
    return _reply(500, "server_error", message, "internal_error")


def install_error_handlers(app: FastAPI) -> None:
    async def handle(request: Request, error: Exception) -> Response:
        return error_reply(error, request.state.request_id).response()

    for kind in (SpecPilotError, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, handle)


def _reply(status: int, kind: str, message: str, code: str, param: str | None = None) -> ErrorReply:
    # A body may spell lone surrogates ("\\ud800") in a field name; they have no UTF-8 and must not break the
    # answer.
    message = message.encode(errors="backslashreplace").decode()
    param = param and param.encode(errors="backslashreplace").decode()
    return ErrorReply(status, ErrorDetail(message=message, type=kind, param=param, code=code))


def _with_retry(reply: ErrorReply, error: Overloaded) -> ErrorReply:
    reply.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return reply


def _http_reply(error: HTTPException) -> ErrorReply:
    known = {
        404: ("not_found", "Unknown path; see /openapi.json for the paths served here."),
        405: ("method_not_allowed", "This path does not take this method."),
        400: ("invalid_body", "The body is not UTF-8 JSON."),
    }
    code, message = known.get(error.status_code, ("http_error", str(error.detail)))
    reply = _reply(error.status_code, "invalid_request_error", message, code)
    reply.headers.update(error.headers or {})
    return reply


def _validation_reply(problems: Sequence[Any]) -> ErrorReply:
    """The first problem of a body, named as the client wrote it (``messages.0.role``)."""
    problem = problems[0]
    kind = problem["type"]
    param = ".".join(str(part) for part in problem["loc"] if part != "body") or None
    if kind == "json_invalid":
        return _reply(
            400, "invalid_request_error", f"The body is not JSON: {problem['ctx']['error']}.", "invalid_body"
        )
    if param is None and kind in ("missing", "model_attributes_type", "model_type", "dict_type"):
        message = "Expected a JSON object as body, with the header Content-Type: application/json."
        return _reply(400, "invalid_request_error", message, "invalid_body")
    if kind == "unsupported_parameter":
        name = problem["ctx"]["param"]
        param = name if param is None else f"{param}.{name}"
        message = problem["msg"].replace(name, param, 1)
        return _reply(400, "invalid_request_error", message, kind, param)
    if kind == "missing":
        return _reply(400, "invalid_request_error", f"{param} is required", "missing_parameter", param)
    if kind == "extra_forbidden":
        return _reply(
            400, "invalid_request_error", f"{param} is not a known parameter", "unknown_parameter", param
        )
    if param is None:
        return _reply(
            400, "invalid_request_error", f"The body is not a request: {problem['msg']}.", "invalid_body"
        )
    shown = repr(problem.get("input"))
    shown = shown if len(shown) <= _MAX_SHOWN_CHARS else shown[:_MAX_SHOWN_CHARS] + "..."
    expected = problem["msg"][:1].lower() + problem["msg"][1:]
    return _reply(400, "invalid_request_error", f"{param}: got {shown}, {expected}", "invalid_value", param)
