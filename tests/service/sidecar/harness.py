"""A whole sidecar in a thread of the test process, with engines that are processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from specpilot_service.schemas.admin import ProfileDetail, ProfileList, ProfileSummary, ResolvedView
from specpilot_service.sidecar.core import ADMIN_KEY_FILE, Sidecar
from specpilot_service.sidecar.errors import not_found
from specpilot_service.sidecar.jobs import MissingKind
from specpilot_service.sidecar.server import serve
from specpilot_service.sidecar.settings import SidecarSettings
from specpilot_service.sidecar.store import StateStore
from tests.service.live_server import PATIENCE_S, wait_until

__all__ = [
    "END_STATES",
    "FAKE_ENGINE",
    "NO_KINDS",
    "LiveSidecar",
    "TableCatalogue",
    "body_bytes",
    "fake_profile",
    "run_sidecar",
]

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
# What this build can check is not for fake engines; tests that want checks give kinds of their own.
NO_KINDS = {name: MissingKind(name, "not in this test") for name in ("audit", "ceiling")}
END_STATES = {"applied", "rolled_back", "cancelled", "failed"}


def fake_profile(name: str, *options: str, switch: str = "surge", budget_s: float = 60.0) -> ResolvedView:
    return ResolvedView(
        profile_id=f"sha256-{name}",
        name=name,
        command=[sys.executable, str(FAKE_ENGINE), *options],
        environment={},
        origins={},
        startup_budget_s=budget_s,
        switch=switch,  # type: ignore[arg-type]
    )


@dataclass
class TableCatalogue:
    """Profiles that a test names."""

    profiles: list[ResolvedView] = field(default_factory=list)

    def list(self) -> ProfileList:
        return ProfileList(gpu="cpu", profiles=[self._summary(profile) for profile in self.profiles])

    def show(self, reference: str) -> ProfileDetail:
        return ProfileDetail(**self._summary(self.resolve(reference)).model_dump(), document={})

    def resolve(self, reference: str) -> ResolvedView:
        for profile in self.profiles:
            if reference in (profile.name, profile.profile_id):
                return profile
        raise not_found(f"profile: got {reference!r}")

    admit = resolve

    def _summary(self, profile: ResolvedView) -> ProfileSummary:
        return ProfileSummary(
            profile_id=profile.profile_id,
            name=profile.name,
            gpu="cpu",
            target="fake",
            drafter="none",
            regime="batching",
            engine="reference",
            switch=profile.switch,
            status="runnable",
            reasons=[],
        )


@dataclass
class LiveSidecar:
    sidecar: Sidecar
    loop: asyncio.AbstractEventLoop
    url: str
    admin_url: str
    client: httpx.Client
    admin: httpx.Client

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE_S)

    def call(self, method: str, path: str, status: int = 200, **body: Any) -> Any:
        """One admin call with the admin's key; the JSON of its answer."""
        answer = self.admin.request(method, f"/admin/v1{path}", json=body or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    def switch(self, profile: str, **fields: Any) -> str:
        return str(self.call("POST", "/switches", 202, profile=profile, reason="test", **fields)["id"])

    def show(self, switch_id: str) -> dict[str, Any]:
        view: dict[str, Any] = self.call("GET", f"/switches/{switch_id}")
        return view

    def wait_for_switch(self, switch_id: str, *states: str) -> dict[str, Any]:
        wanted = set(states) or END_STATES
        wait_until(lambda: self.show(switch_id)["state"] in wanted, f"switch in {wanted}")
        return self.show(switch_id)

    def wait_ready(self) -> None:
        wait_until(lambda: self.client.get("/readyz").status_code == 200, "the gateway is ready")

    def stats(self, index: int = 0) -> dict[str, Any]:
        """What the fake engine counted, asked behind the gateway's back."""
        upstream = self.sidecar.router.routed[index]
        found: dict[str, Any] = httpx.get(f"http://{upstream.host}:{upstream.port}/fake/stats").json()
        return found

    def make_key(self, *scopes: str, **limits: Any) -> tuple[str, dict[str, str]]:
        made = self.call("POST", "/keys", 201, name="test", scopes=list(scopes), **limits)
        return made["id"], {"Authorization": f"Bearer {made['secret']}"}

    def num_in_flight(self) -> int:
        return len(self.sidecar.gateway.flights)


def body_bytes(server: LiveSidecar, headers: Mapping[str, str] | None = None, **fields: Any) -> bytes:
    """A whole HTTP request for raw sockets."""
    content = json.dumps({"model": "fake", "prompt": "x", **fields}).encode()
    lines = [f"{name}: {value}\r\n" for name, value in (headers or {}).items()]
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n{''.join(lines)}\r\n"
    )
    return head.encode() + content


@contextlib.contextmanager
def run_sidecar(
    state: Path, profiles: list[ResolvedView], *, parts: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[LiveSidecar]:
    """Serve until the block ends; the first profile is applied, and yields when it is ready."""
    chosen: dict[str, Any] = {"port": 0, "admin_port": 0, "open": True, "drain_timeout_s": 20.0}
    if profiles:
        chosen["profile"] = profiles[0].name
    config = SidecarSettings(state=state, **{**chosen, **settings})
    started, failure = threading.Event(), []
    made: dict[str, Any] = {}

    def on_start(sidecar: Sidecar, url: str, admin_url: str) -> None:
        made.update(sidecar=sidecar, url=url, admin_url=admin_url)
        started.set()

    async def work() -> None:
        made.update(loop=asyncio.get_running_loop(), ending=asyncio.Event())
        await serve(
            *(config, StateStore(state), TableCatalogue(profiles)),
            on_start=on_start,
            ending=made["ending"],
            **({"kinds": NO_KINDS} | dict(parts or {})),
        )

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failure.append(error)
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(PATIENCE_S)
    if failure:
        raise failure[0]
    key = (state / ADMIN_KEY_FILE).read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with (
            httpx.Client(base_url=made["url"], timeout=PATIENCE_S) as client,
            httpx.Client(base_url=made["admin_url"], timeout=PATIENCE_S, headers=headers) as admin,
        ):
            server = LiveSidecar(made["sidecar"], made["loop"], made["url"], made["admin_url"], client, admin)
            if profiles:
                wait_until(lambda: server.sidecar.has_booted, "the first start is over")
            yield server
    finally:
        made["loop"].call_soon_threadsafe(made["ending"].set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if failure:
        raise failure[0]
