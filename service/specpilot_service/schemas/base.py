"""The two kinds of model on the wire."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["RequestModel", "ResponseModel"]


class RequestModel(BaseModel):
    """Strict: "0.5" is no number and true is no 1. Closed: a field nobody reads would be a silent lie."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ResponseModel(BaseModel):
    """Open to fields of a later server, so that an older client can read its answers."""

    model_config = ConfigDict(extra="ignore")
