"""Revisions: list, show, diff, export, import, rollback."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import yaml
from fastapi import Path, Query
from fastapi.responses import Response

from specpilot_service.schemas.admin import (
    DiffLine,
    ResolvedView,
    RevisionDetail,
    RevisionDiff,
    RevisionImport,
    RevisionList,
    RollbackRequest,
    SwitchView,
)
from specpilot_service.sidecar.admin.deps import PrincipalDep, SidecarDep
from specpilot_service.sidecar.admin.registry import handles
from specpilot_service.sidecar.core import Sidecar
from specpilot_service.sidecar.errors import SidecarError, conflict, not_found

__all__ = [
    "diff",
    "diff_lines",
    "export",
    "import_revision",
    "list_revisions",
    "roll_back",
    "show_revision",
]

_KIND, _SCHEMA = "specpilot-revision", 1
_Number = Annotated[int, Path(ge=1, le=2**62)]


async def _find(sidecar: Sidecar, number: int) -> RevisionDetail:
    revision = await sidecar.store.call(sidecar.store.revisions.get, number)
    if revision is None:
        raise not_found(f"revision: got {number}, expected a known number")
    return revision


@handles("revisions.list")
async def list_revisions(sidecar: SidecarDep) -> RevisionList:
    current = await sidecar.store.call(sidecar.store.revisions.current)
    revisions = await sidecar.store.call(sidecar.store.revisions.all)
    return RevisionList(current=None if current is None else current.number, revisions=revisions)


@handles("revisions.show")
async def show_revision(number: _Number, sidecar: SidecarDep) -> RevisionDetail:
    return await _find(sidecar, number)


@handles("revisions.diff")
async def diff(
    before: Annotated[int, Query(ge=1, le=2**62)],
    after: Annotated[int, Query(ge=1, le=2**62)],
    sidecar: SidecarDep,
) -> RevisionDiff:
    old, new = await _find(sidecar, before), await _find(sidecar, after)
    return RevisionDiff(before=before, after=after, lines=diff_lines(old.resolved, new.resolved))


def diff_lines(before: ResolvedView, after: ResolvedView) -> list[DiffLine]:
    """Everything that differs in what runs: options of the command, environment, budget, mode, profile."""
    old, new = _flat(before), _flat(after)
    return [
        DiffLine(path=path, before=old.get(path), after=new.get(path))
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]


def _flat(resolved: ResolvedView) -> dict[str, str]:
    flat = {
        name: str(getattr(resolved, name)) for name in ("profile_id", "name", "startup_budget_s", "switch")
    }
    flat |= {f"environment.{name}": value for name, value in resolved.environment.items()}
    words = iter(resolved.command)
    program: list[str] = []
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word
            flat[f"command.{flag}"] = "set"
        elif flag:
            flat[f"command.{flag}"] = word
            flag = ""
        else:
            program.append(word)
    return flat | {"command": " ".join(program)}


@handles("revisions.export")
async def export(number: _Number, sidecar: SidecarDep) -> Response:
    revision = await _find(sidecar, number)
    document = {"kind": _KIND, "schema": _SCHEMA, **revision.model_dump(mode="json")}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
    return Response(text, media_type="application/yaml")


@handles("revisions.import")
async def import_revision(
    body: RevisionImport, sidecar: SidecarDep, principal: PrincipalDep
) -> RevisionDetail:
    """The profile that the document names, as this installation resolves it.

    The command in the document is not run: whoever may import would otherwise run any program here. The profile's id is
    the hash of its content, so the same id is the same profile.
    """
    document = _read(body.document)
    profile_id = document["profile_id"]
    resolved = await asyncio.to_thread(sidecar.catalogue.resolve, profile_id)
    reason = f"imported revision {document.get('number')}: {body.reason}"
    number = await sidecar.store.call(
        sidecar.store.revisions.add, resolved, "imported", principal.actor, reason
    )
    return await _find(sidecar, number)


def _read(text: str) -> dict[str, Any]:
    def wrong(what: str) -> SidecarError:
        return SidecarError(
            400,
            "invalid_value",
            f"document: {what}; expected what the export of a revision gives",
            param="document",
        )

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise wrong(f"no YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise wrong(f"got no mapping with kind: {_KIND}")
    if document.get("schema") != _SCHEMA:
        raise wrong(f"got schema {document.get('schema')!r:.40}, this build reads {_SCHEMA}")
    if not isinstance(document.get("profile_id"), str):
        raise wrong("got no profile_id")
    return document


@handles("revisions.rollback")
async def roll_back(
    number: _Number, body: RollbackRequest, sidecar: SidecarDep, principal: PrincipalDep
) -> SwitchView:
    revision = await _find(sidecar, number)
    if revision.state not in ("superseded", "rejected"):
        raise conflict(f"revision {number}: it is {revision.state}, expected one that was applied before")
    return await sidecar.switching.begin(
        revision.resolved,
        mode=body.mode,
        actor=principal.actor,
        reason=f"rollback to revision {number}: {body.reason}",
    )
