"""Errors of the sidecar, each with its HTTP status and code; both listeners answer with them."""

from __future__ import annotations

import math

from specpilot.errors import SpecPilotError
from specpilot_service.schemas import ErrorBody, ErrorDetail

__all__ = [
    "SidecarError",
    "conflict",
    "forbidden",
    "no_engine",
    "not_found",
    "too_many",
    "unauthorized",
    "unavailable",
]


class SidecarError(SpecPilotError):
    """What a caller is told.

    Attributes
    ----------
    status, code
        HTTP status and the stable word of the table in DESIGN.md.
    retry_after_s
        When it may work, for the header Retry-After; None without one.
    closes
        The connection cannot be used again.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after_s = status, code, param, retry_after_s
        self.closes = closes

    @property
    def body(self) -> bytes:
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        # A body may spell lone surrogates ("\\ud800"); they have no UTF-8 and must not break the answer.
        message = str(self).encode(errors="backslashreplace").decode()
        detail = ErrorDetail(message=message, type=kind, param=self.param, code=self.code)
        return ErrorBody(error=detail).model_dump_json().encode()

    @property
    def headers(self) -> dict[str, str]:
        headers = (
            {} if self.retry_after_s is None else {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}
        )
        headers |= {"Connection": "close"} if self.closes else {}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def unauthorized(code: str, message: str) -> SidecarError:
    return SidecarError(401, code, message)


def forbidden(code: str, message: str) -> SidecarError:
    return SidecarError(403, code, message)


def not_found(message: str, *, code: str = "not_found", param: str | None = None) -> SidecarError:
    return SidecarError(404, code, message, param=param)


def conflict(message: str) -> SidecarError:
    return SidecarError(409, "conflict", message)


def too_many(code: str, message: str, retry_after_s: float) -> SidecarError:
    return SidecarError(429, code, message, retry_after_s=retry_after_s)


def no_engine(message: str, retry_after_s: float = 5.0) -> SidecarError:
    return SidecarError(503, "no_engine", message, retry_after_s=retry_after_s)


def unavailable(message: str) -> SidecarError:
    return SidecarError(503, "unavailable", message)
