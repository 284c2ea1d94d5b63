"""Keys and the audit log of the admin API."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from specpilot_service.schemas.base import MAX_INTEGER, PlainText, RequestModel, ResponseModel

__all__ = [
    "AuditEntry",
    "AuditPage",
    "ChainReport",
    "KeyCreate",
    "KeyCreated",
    "KeyList",
    "KeyUsage",
    "KeyView",
    "Scope",
    "UsageRow",
    "WhoAmI",
]

Scope = Literal["viewer", "operator", "admin", "inference"]
"""What a key may do. On the admin API admin includes operator, operator includes viewer; ``inference`` stands apart and
is the only one that opens the gateway."""


class KeyCreate(RequestModel):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$")
    scopes: list[Scope] = Field(min_length=1)
    models: list[PlainText] | None = Field(
        default=None, min_length=1, max_length=1000, description="model names it may ask for; null: all"
    )
    requests_per_minute: int | None = Field(default=None, ge=1, le=MAX_INTEGER)
    tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INTEGER,
        description="prompts and answers together; counted when an answer has ended",
    )


class KeyView(ResponseModel):
    id: str
    name: str
    scopes: list[Scope]
    models: list[str] | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    last_used_at: datetime | None


class KeyCreated(KeyView):
    secret: str = Field(description="shown here once; only its hash is stored")


class KeyList(ResponseModel):
    keys: list[KeyView]


class UsageRow(ResponseModel):
    """One hour of one key on one model.

    ``estimated_tokens`` counts answers that were cut before the engine reported them: one token for every event sent, a
    lower bound. They are not in ``completion_tokens``.
    """

    hour: datetime
    model: str
    num_requests: int
    num_refused: int
    prompt_tokens: int
    completion_tokens: int
    estimated_tokens: int


class KeyUsage(ResponseModel):
    key_id: str
    name: str
    rows: list[UsageRow]


class WhoAmI(ResponseModel):
    key_id: str
    name: str
    scopes: list[Scope]


# Audit log


class AuditEntry(ResponseModel):
    """``hash`` is sha256 of ``previous_hash`` and the canonical JSON of the other fields."""

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str


class AuditPage(ResponseModel):
    """Newest first; ``next_before`` is the ``before`` of the next page, null at the end."""

    entries: list[AuditEntry]
    next_before: int | None


class ChainReport(ResponseModel):
    is_intact: bool
    num_entries: int
    head_hash: str
    first_bad_seq: int | None
    message: str
