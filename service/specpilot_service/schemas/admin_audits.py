"""Options and results of audits: jobs of the kind ``audit``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from specpilot_service.schemas.base import RequestModel, ResponseModel

__all__ = ["AuditOptions", "AuditResult"]


class AuditOptions(RequestModel):
    """``scored_by``: a ``second`` engine over the same checkpoint, the ``live`` one with every mechanism bypassed, or
    ``auto``: a second one where memory has room for it. ``seed`` draws the prompts and the events that are audited.
    ``model`` is the checkpoint of an engine that was found by its URL; other engines' profiles name theirs."""

    prompts: int = Field(default=220, ge=8, le=5000)
    max_tokens: int = Field(default=160, ge=8, le=4096)
    seed: int = Field(default=0, ge=0)
    scored_by: Literal["auto", "second", "live"] = "auto"
    model: str | None = None


class AuditResult(ResponseModel):
    """``verdict`` is a document of the format ``specpilot-verdict`` with its first events, ``num_events`` counts all.

    ``picture`` is an SVG of rates, limit and accuracy; ``files`` lie in the job's folder.
    """

    passed: bool | None
    message: str
    verdict: dict[str, Any]
    num_events: int
    files: list[str]
    picture: str
