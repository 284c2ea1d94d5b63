"""The one shape of every error."""

from __future__ import annotations

from specpilot_service.schemas.base import ResponseModel

__all__ = ["ErrorBody", "ErrorDetail"]


class ErrorDetail(ResponseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(ResponseModel):
    error: ErrorDetail
