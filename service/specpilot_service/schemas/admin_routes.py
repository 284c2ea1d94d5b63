"""Every route of the admin API: one table for the server, its OpenAPI, the command line and the console.

A route that is not here is not served, and each says which scope it needs: that is how the API denies by default. Their
order counts: of two paths that match, the first answers. ``{profile}`` is an id or a name; names have a slash in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from specpilot_service.schemas import admin, admin_access, admin_jobs
from specpilot_service.schemas.base import ResponseModel

__all__ = ["ADMIN_PREFIX", "ADMIN_ROUTES", "AdminRoute", "Unavailable", "find_route"]

ADMIN_PREFIX = "/admin/v1"

_Role = Literal["viewer", "operator", "admin"]


@dataclass(frozen=True)
class AdminRoute:
    """One route.

    Attributes
    ----------
    name
        A stable word, ``noun.verb``; also the operation id in the OpenAPI.
    role
        Least scope of the key.
    request
        Body, None without one.
    response
        JSON body of success; ``text`` is another media type: ``application/yaml`` (revision export),
        ``application/x-ndjson`` (audit export), ``text/event-stream`` (events).
    status
        Of success: 200, 201 (made), 202 (begun; watch the switch).
    query
        Names of the query parameters; all are optional unless the summary says otherwise.
    """

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    role: _Role
    summary: str
    request: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    text: str | None = None
    status: int = 200
    query: tuple[str, ...] = ()


class Unavailable(ResponseModel):
    """Of routes whose library half does not exist yet: they answer 503 with the error code ``unavailable``."""


ADMIN_ROUTES: tuple[AdminRoute, ...] = (
    AdminRoute("whoami", "GET", "/whoami", "viewer", "The key that asks", response=admin_access.WhoAmI),
    AdminRoute("overview", "GET", "/overview", "viewer", "The state of everything", response=admin.Overview),
    AdminRoute("settings", "GET", "/settings", "viewer", "Settings in force", response=admin.SettingsView),
    AdminRoute(
        "events",
        "GET",
        "/events",
        "viewer",
        "Live events (SSE; the header Last-Event-ID resumes)",
        text="text/event-stream",
    ),
    # Profiles
    AdminRoute("profiles.list", "GET", "/profiles", "viewer", "All profiles", response=admin.ProfileList),
    AdminRoute(
        "profiles.resolved",
        "GET",
        "/profiles/{profile}/resolved",
        "viewer",
        "Command, environment and origins; starts nothing",
        response=admin.ResolvedView,
    ),
    AdminRoute(
        "profiles.show", "GET", "/profiles/{profile}", "viewer", "One profile", response=admin.ProfileDetail
    ),
    # Switches
    AdminRoute("switches.list", "GET", "/switches", "viewer", "Newest first", response=admin.SwitchList),
    AdminRoute(
        "switches.start",
        "POST",
        "/switches",
        "operator",
        "Begin a switch; one at a time",
        request=admin.SwitchRequest,
        response=admin.SwitchView,
        status=202,
    ),
    AdminRoute(
        "switches.show", "GET", "/switches/{switch_id}", "viewer", "One switch", response=admin.SwitchView
    ),
    AdminRoute(
        "switches.canary",
        "POST",
        "/switches/{switch_id}/canary",
        "operator",
        "Change the canary's share",
        request=admin.CanaryRequest,
        response=admin.SwitchView,
    ),
    AdminRoute(
        "switches.promote",
        "POST",
        "/switches/{switch_id}/promote",
        "operator",
        "End the canary: all requests to the new engine",
        request=admin.PromoteRequest,
        response=admin.SwitchView,
        status=202,
    ),
    AdminRoute(
        "switches.cancel",
        "POST",
        "/switches/{switch_id}/cancel",
        "operator",
        "Stop a switch that is not promoted yet; the old revision stays",
        request=admin.ReasonRequest,
        response=admin.SwitchView,
        status=202,
    ),
    # Revisions
    AdminRoute("revisions.list", "GET", "/revisions", "viewer", "Newest first", response=admin.RevisionList),
    AdminRoute(
        "revisions.diff",
        "GET",
        "/revisions/diff",
        "viewer",
        "What differs between two revisions; before and after are required",
        response=admin.RevisionDiff,
        query=("before", "after"),
    ),
    AdminRoute(
        "revisions.import",
        "POST",
        "/revisions/import",
        "operator",
        "A revision from an exported document; applied only by a switch to its number",
        request=admin.RevisionImport,
        response=admin.RevisionDetail,
        status=201,
    ),
    AdminRoute(
        "revisions.show",
        "GET",
        "/revisions/{number}",
        "viewer",
        "One revision with its resolved command",
        response=admin.RevisionDetail,
    ),
    AdminRoute(
        "revisions.export",
        "GET",
        "/revisions/{number}/export",
        "viewer",
        "The revision as a YAML document",
        text="application/yaml",
    ),
    AdminRoute(
        "revisions.rollback",
        "POST",
        "/revisions/{number}/rollback",
        "operator",
        "Begin a switch back to this revision",
        request=admin.RollbackRequest,
        response=admin.SwitchView,
        status=202,
    ),
    # Keys
    AdminRoute(
        "keys.list", "GET", "/keys", "admin", "All keys, revoked ones too", response=admin_access.KeyList
    ),
    AdminRoute(
        "keys.create",
        "POST",
        "/keys",
        "admin",
        "A new key; its secret is in this answer and nowhere else",
        request=admin_access.KeyCreate,
        response=admin_access.KeyCreated,
        status=201,
    ),
    AdminRoute(
        "keys.revoke",
        "DELETE",
        "/keys/{key_id}",
        "admin",
        "Revoke a key; its open requests are cut",
        response=admin_access.KeyView,
    ),
    AdminRoute(
        "keys.usage", "GET", "/keys/{key_id}/usage", "admin", "Usage by hour", response=admin_access.KeyUsage
    ),
    # Audit log
    AdminRoute(
        "audit_log.list",
        "GET",
        "/audit-log",
        "viewer",
        "Newest first; limit 1 to 1000",
        response=admin_access.AuditPage,
        query=("before", "limit", "action"),
    ),
    AdminRoute(
        "audit_log.export",
        "GET",
        "/audit-log/export",
        "viewer",
        "All entries, oldest first",
        text="application/x-ndjson",
    ),
    AdminRoute(
        "audit_log.verify",
        "GET",
        "/audit-log/verify",
        "viewer",
        "Recompute the hash chain",
        response=admin_access.ChainReport,
    ),
    # Engine
    AdminRoute("engine.status", "GET", "/engine", "viewer", "Engine processes", response=admin.EngineStatus),
    AdminRoute(
        "engine.logs",
        "GET",
        "/engine/logs",
        "viewer",
        "Last lines; which is current or previous, lines 1 to 5000",
        response=admin.EngineLog,
        query=("which", "lines"),
    ),
    AdminRoute(
        "engine.restart",
        "POST",
        "/engine/restart",
        "operator",
        "Finish streams, stop, start the current revision again; requests wait meanwhile",
        request=admin.ReasonRequest,
        response=admin.EngineStatus,
        status=202,
    ),
    AdminRoute(
        "engine.drain",
        "POST",
        "/engine/drain",
        "operator",
        "Take no new requests; /readyz answers 503 until resume",
        request=admin.ReasonRequest,
        response=admin.EngineStatus,
    ),
    AdminRoute(
        "engine.resume",
        "POST",
        "/engine/resume",
        "operator",
        "Take requests again after drain",
        request=admin.ReasonRequest,
        response=admin.EngineStatus,
    ),
    # Jobs: checks at low priority
    AdminRoute(
        "jobs.list",
        "GET",
        "/jobs",
        "viewer",
        "Newest first; kind, limit 1 to 1000",
        response=admin_jobs.JobList,
        query=("kind", "limit"),
    ),
    AdminRoute(
        "jobs.start",
        "POST",
        "/jobs",
        "operator",
        "Queue a job",
        request=admin_jobs.JobRequest,
        response=admin_jobs.JobView,
        status=202,
    ),
    AdminRoute("jobs.show", "GET", "/jobs/{job_id}", "viewer", "One job", response=admin_jobs.JobView),
    AdminRoute(
        "jobs.cancel",
        "POST",
        "/jobs/{job_id}/cancel",
        "operator",
        "End a job that is queued or runs",
        request=admin.ReasonRequest,
        response=admin_jobs.JobView,
        status=202,
    ),
    AdminRoute(
        "ceilings.show",
        "GET",
        "/ceilings",
        "viewer",
        "The last ceiling check with a result",
        response=admin_jobs.JobView,
    ),
    AdminRoute(
        "ceilings.check",
        "POST",
        "/ceilings",
        "operator",
        "Measure it now: a job of the kind ceiling",
        request=admin_jobs.CheckRequest,
        response=admin_jobs.JobView,
        status=202,
    ),
    AdminRoute(
        "audits.list",
        "GET",
        "/audits",
        "viewer",
        "Token-forcing audits, newest first",
        response=admin_jobs.JobList,
        query=("limit",),
    ),
    AdminRoute(
        "audits.start",
        "POST",
        "/audits",
        "operator",
        "Begin an audit: a job of the kind audit",
        request=admin_jobs.CheckRequest,
        response=admin_jobs.JobView,
        status=202,
    ),
    AdminRoute(
        "audits.show", "GET", "/audits/{audit_id}", "viewer", "One audit", response=admin_jobs.JobView
    ),
    AdminRoute(
        "audits.cancel",
        "POST",
        "/audits/{audit_id}/cancel",
        "operator",
        "End an audit that is queued or runs",
        request=admin.ReasonRequest,
        response=admin_jobs.JobView,
        status=202,
    ),
    # Parts whose library half does not exist yet
    AdminRoute("rounds.list", "GET", "/rounds", "viewer", "Optimization rounds", response=Unavailable),
    AdminRoute("rounds.start", "POST", "/rounds", "operator", "Begin a round", response=Unavailable),
    AdminRoute("rounds.show", "GET", "/rounds/{round_id}", "viewer", "One round", response=Unavailable),
    AdminRoute(
        "rounds.stop", "POST", "/rounds/{round_id}/stop", "operator", "Stop a round", response=Unavailable
    ),
    AdminRoute("memory.list", "GET", "/memory", "viewer", "Entries of the memory", response=Unavailable),
    AdminRoute(
        "memory.show", "GET", "/memory/{entry_id}", "viewer", "One entry of the memory", response=Unavailable
    ),
)


def find_route(name: str) -> AdminRoute:
    """The route with this name; KeyError with the name for an unknown one."""
    for route in ADMIN_ROUTES:
        if route.name == name:
            return route
    raise KeyError(name)
