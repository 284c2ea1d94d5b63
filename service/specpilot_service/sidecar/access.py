"""Keys at work: who asks, and what they may do. In memory, so a revocation holds from the next request on."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from specpilot_service.schemas.admin_access import KeyView, Scope
from specpilot_service.sidecar.errors import forbidden, unauthorized
from specpilot_service.sidecar.limits import KeyLimiter
from specpilot_service.sidecar.store.database import utc_now

__all__ = ["OPEN", "KeyRing", "Principal", "hash_secret", "make_secret"]

_PREFIX = "sp_"
_IMPLIED: dict[str, tuple[str, ...]] = {
    "viewer": ("viewer", "operator", "admin"),
    "operator": ("operator", "admin"),
    "admin": ("admin",),
    "inference": ("inference",),
}


def make_secret() -> tuple[str, str]:
    """A key id and the whole secret that carries it: 256 random bits behind the id."""
    key_id = secrets.token_hex(6)
    return key_id, f"{_PREFIX}{key_id}_{secrets.token_urlsafe(32)}"


def hash_secret(secret: str) -> bytes:
    """sha256, not a slow hash: the secret is random, and every request pays for this (DESIGN.md)."""
    return hashlib.sha256(secret.encode()).digest()


@dataclass
class Principal:
    """A key that has proved itself. ``limiter`` is shared by all its requests."""

    key_id: str
    name: str
    scopes: tuple[Scope, ...]
    models: frozenset[str] | None = None
    limiter: KeyLimiter = field(default_factory=lambda: KeyLimiter(None, None))

    @property
    def actor(self) -> str:
        return f"{self.name} ({self.key_id})"

    def require(self, scope: Scope) -> None:
        """Raise 403 unless this key has the scope, by itself or by implication."""
        if not set(_IMPLIED[scope]) & set(self.scopes):
            raise forbidden(
                "wrong_scope",
                f"scope: this key has {', '.join(self.scopes)}, expected {scope}; use another key",
            )


OPEN = Principal("open", "open", ("inference",))
"""Who asks a gateway that was started with ``--open``."""


class KeyRing:
    """All keys, by id. Belongs to the event loop."""

    def __init__(self, keys: Iterable[tuple[KeyView, bytes]]) -> None:
        self._known: dict[str, tuple[Principal, bytes, bool]] = {}
        self.last_used: dict[str, datetime] = {}
        for view, digest in keys:
            self.put(view, digest)

    def put(self, view: KeyView, digest: bytes) -> None:
        models = None if view.models is None else frozenset(view.models)
        limiter = KeyLimiter(view.requests_per_minute, view.tokens_per_minute)
        principal = Principal(view.id, view.name, tuple(view.scopes), models, limiter)
        self._known[view.id] = (principal, digest, view.revoked_at is not None)

    def revoke(self, key_id: str) -> None:
        principal, digest, _ = self._known[key_id]
        self._known[key_id] = (principal, digest, True)

    @property
    def names(self) -> dict[str, str]:
        return {key_id: entry[0].name for key_id, entry in self._known.items()}

    def authenticate(self, authorization: str | None) -> Principal:
        """The key of an ``Authorization`` header; 401 without one, with a wrong one, with a revoked one."""
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise unauthorized(
                "missing_key", "Authorization: got no key, expected the header 'Authorization: Bearer sp_...'"
            )
        key_id = secret.removeprefix(_PREFIX).partition("_")[0]
        known = self._known.get(key_id)
        # Compared also for an unknown id, so that the answer takes as long.
        digest = b"\0" * 32 if known is None else known[1]
        is_right = hmac.compare_digest(hash_secret(secret), digest)
        if known is None or not is_right:
            raise unauthorized("wrong_key", "Authorization: this key is not known here; ask an admin for one")
        principal, _, is_revoked = known
        if is_revoked:
            raise unauthorized("revoked_key", "Authorization: this key was revoked; ask an admin for another")
        self.last_used[key_id] = utc_now()
        return principal
