"""Profiles as the sidecar sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from specpilot.errors import ConfigError, Unsupported
from specpilot.profiles import Machine, Profile, ProfileStore, check, find_machine, load_profiles
from specpilot_service.schemas.admin import ProfileDetail, ProfileList, ProfileSummary, ResolvedView
from specpilot_service.sidecar.errors import SidecarError, not_found

__all__ = ["Catalogue", "LibraryCatalogue"]


class Catalogue(Protocol):
    """Blocking: not for the event loop. Errors are SidecarError: 404 for an unknown profile, 409 for one that this
    machine cannot run."""

    def list(self) -> ProfileList: ...

    def show(self, reference: str) -> ProfileDetail: ...

    def resolve(self, reference: str) -> ResolvedView: ...

    def admit(self, reference: str) -> ResolvedView:
        """Like ``resolve``, for a start: refuses what cannot run here as specified."""
        ...


class LibraryCatalogue:
    """The profiles of ``specpilot.profiles``, judged for this machine or for the device class ``gpu``."""

    def __init__(self, gpu: str | None, models: Path) -> None:
        self._store: ProfileStore = load_profiles()
        self._machine: Machine = find_machine(self._store, gpu)
        self._models = models

    def list(self) -> ProfileList:
        return ProfileList(
            gpu=self._machine.gpu, profiles=[self._summary(profile) for profile in self._store.profiles]
        )

    def show(self, reference: str) -> ProfileDetail:
        profile = self._find(reference)
        summary = self._summary(profile)
        return ProfileDetail(**summary.model_dump(), document=profile.content())

    def resolve(self, reference: str) -> ResolvedView:
        resolved = check(self._find(reference), self._machine, self._models).resolved
        try:
            command = resolved.command
        except Unsupported as error:
            raise SidecarError(409, "not_runnable", str(error)) from None
        return ResolvedView(
            profile_id=resolved.profile_id,
            name=resolved.name,
            command=command,
            environment=resolved.environment,
            origins=resolved.origins,
            startup_budget_s=resolved.startup_budget_s,
            switch=resolved.switch,
        )

    def admit(self, reference: str) -> ResolvedView:
        verdict = check(self._find(reference), self._machine, self._models)
        if verdict.status != "runnable":
            reasons = "; ".join(verdict.reasons)
            raise SidecarError(
                409, "not_runnable", f"profile {verdict.resolved.name}: {verdict.status}: {reasons}"
            )
        return self.resolve(reference)

    def _find(self, reference: str) -> Profile:
        try:
            return self._store.find(reference, self._machine.gpu)
        except ConfigError as error:
            raise not_found(str(error)) from None

    def _summary(self, profile: Profile) -> ProfileSummary:
        verdict = check(profile, self._machine, self._models)
        deployment = profile.deployment
        return ProfileSummary(
            profile_id=profile.profile_id,
            name=profile.name,
            title=profile.title,
            gpu=deployment.gpu,
            target=deployment.target.name,
            drafter=deployment.drafter.kind,
            regime=deployment.regime,
            engine=profile.engine.kind,
            switch=profile.switch,
            status=verdict.status,
            reasons=list(verdict.reasons),
        )
