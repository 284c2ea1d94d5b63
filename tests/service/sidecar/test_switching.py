"""Profile switches: what runs goes on, what comes waits or moves, and what fails comes back."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpilot_service.schemas.admin import GateResult
from specpilot_service.sidecar.engines.engine import ManagedEngine
from specpilot_service.sidecar.store import StateStore
from specpilot_service.sidecar.store.database import utc_now
from tests.service.live_server import wait_until
from tests.service.sidecar.harness import NO_KINDS, LiveSidecar, fake_profile, run_sidecar

TEXT: dict[str, Any] = {"model": "fake", "prompt": "x", "max_tokens": 40, "stream": True}
A, B = fake_profile("a"), fake_profile("b", "--start-delay-s", "0.3")
BROKEN = fake_profile("broken", "--refuse-start")


class Streams:
    """Streams that begin now and are read to their end."""

    def __init__(self, server: LiveSidecar, num: int, **fields: Any) -> None:
        self.texts: list[str] = []
        self._server, self._fields = server, fields
        self._threads = [threading.Thread(target=self._read) for _ in range(num)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        body = TEXT | self._fields
        answer = httpx.post(self._server.url + "/v1/completions", json=body, timeout=60)
        self.texts.append(answer.text if answer.status_code == 200 else f"status {answer.status_code}")

    def whole(self) -> int:
        """How many ended whole: every event there, then [DONE]."""
        for thread in self._threads:
            thread.join(60)
        return sum(text.count('"text"') == 40 and text.endswith("data: [DONE]\n\n") for text in self.texts)


class FixedGate:
    """A check with a verdict that the test chooses."""

    name = "audit"

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict

    async def check(self, candidate: ManagedEngine, stable: ManagedEngine | None) -> GateResult:
        return GateResult(name="audit", verdict=self.verdict, message="chosen", checked_at=utc_now())  # type: ignore[arg-type]


def states(view: dict[str, Any]) -> list[str]:
    return [step["state"] for step in view["steps"]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("surge", ["pending", "starting", "gating", "promoting", "applied"]),
        ("recreate", ["pending", "draining", "starting", "gating", "promoting", "applied"]),
    ],
)
def test_a_switch_drops_no_stream(tmp_path: Path, mode: str, expected: list[str]) -> None:
    with run_sidecar(tmp_path, [A, B], keep_alive_s=0.1) as server:
        before = Streams(server, 8, fake={"delay_s": 0.02})
        wait_until(lambda: server.num_in_flight() == 8, "all run")
        old = server.stats()["pid"]
        switch_id = server.switch("b", mode=mode)
        server.wait_for_switch(switch_id, "starting", "applied")
        during = Streams(server, 8)
        view = server.wait_for_switch(switch_id)
        assert (view["state"], states(view)) == ("applied", expected)
        assert before.whole() == 8 and during.whole() == 8
        assert server.stats()["pid"] != old
        (engine,) = server.call("GET", "/engine")["instances"]
        assert engine["role"] == "stable" and engine["revision"] == 2
        revisions = server.call("GET", "/revisions")
        assert revisions["current"] == 2
        assert [row["state"] for row in revisions["revisions"]] == ["current", "superseded"]


@pytest.mark.parametrize("mode", ["surge", "recreate"])
def test_a_failed_start_rolls_back(tmp_path: Path, mode: str) -> None:
    with run_sidecar(tmp_path, [A, BROKEN]) as server:
        view = server.wait_for_switch(server.switch("broken", mode=mode))
        assert view["state"] == "rolled_back" and "refuses to start" in view["error"]
        assert server.call("GET", "/revisions")["current"] == 1
        server.wait_ready()
        assert Streams(server, 1).whole() == 1
        log = server.call("GET", "/engine/logs?which=previous")
        assert log["crash"]["exit_code"] == 1 and "fake engine: refuses to start" in log["lines"]
        assert "engine.crash" in [e["action"] for e in server.call("GET", "/audit-log")["entries"]]


@pytest.mark.parametrize("mode", ["surge", "recreate"])
def test_a_failed_gate_rolls_back(tmp_path: Path, mode: str) -> None:
    gate = FixedGate("passed")
    with run_sidecar(tmp_path, [A, B], parts={"gates": {"audit": gate}}) as server:
        gate.verdict = "failed"
        view = server.wait_for_switch(server.switch("b", mode=mode))
        assert view["state"] == "rolled_back" and view["gates"][0]["verdict"] == "failed"
        assert server.call("GET", "/revisions")["current"] == 1
        server.wait_ready()
        assert Streams(server, 2).whole() == 2


def test_missing_gates_are_recorded_as_not_checked(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A]) as server:
        revision = server.call("GET", "/revisions/1")
        assert {gate["name"]: gate["verdict"] for gate in revision["gates"]} == dict.fromkeys(
            NO_KINDS, "not_checked"
        )


def test_a_canary_gets_its_share_and_is_promoted(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B]) as server:
        switch_id = server.switch("b", canary_share=0.25, is_promoted_at_once=False)
        server.wait_for_switch(switch_id, "canary")
        wait_until(lambda: len(server.sidecar.router.routed) == 2, "both are routed")
        begun = [server.stats(index)["begun"] for index in (0, 1)]
        for _ in range(20):
            assert Streams(server, 1).whole() == 1
        grown = [server.stats(index)["begun"] - begun[index] for index in (0, 1)]
        assert grown == [15, 5]
        server.call("POST", f"/switches/{switch_id}/canary", share=0.5, reason="more")
        # Who looks is told the share that counts now.
        assert server.show(switch_id)["steps"][-1]["message"] == "the new engine gets 50% of new requests"
        shares = [engine["share"] for engine in server.call("GET", "/engine")["instances"]]
        assert shares == [0.5, 0.5]
        server.call("POST", f"/switches/{switch_id}/promote", 202, reason="well")
        assert server.wait_for_switch(switch_id)["state"] == "applied"
        assert len(server.call("GET", "/engine")["instances"]) == 1


def test_a_failed_gate_stops_a_promotion_unless_forced(tmp_path: Path) -> None:
    gate = FixedGate("passed")
    with run_sidecar(tmp_path, [A, B], parts={"gates": {"audit": gate}}) as server:
        gate.verdict = "failed"
        for is_forced, expected in ((False, "rolled_back"), (True, "applied")):
            switch_id = server.switch("b", canary_share=0.5, is_promoted_at_once=False)
            server.wait_for_switch(switch_id, "canary")
            server.call("POST", f"/switches/{switch_id}/promote", 202, reason="x", is_forced=is_forced)
            assert server.wait_for_switch(switch_id)["state"] == expected


def test_a_switch_that_a_kill_cut_off_says_so(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A]):
        pass
    store = StateStore(tmp_path)
    number = store.revisions.add(B, "pending", "test", "test")
    given: dict[str, Any] = {
        "canary_share": None,
        "is_promoted_at_once": True,
        "actor": "test",
        "reason": "x",
    }
    store.switches.begin("sw-cut", mode="surge", from_revision=1, to_revision=number, **given)
    store.switches.move("sw-cut", "starting", "test")
    store.close()
    with run_sidecar(tmp_path, [A]) as server:
        view = server.show("sw-cut")
        assert view["state"] == "rolled_back" and "the sidecar ended in the state starting" in view["error"]


@pytest.mark.parametrize("mode", ["surge", "recreate"])
def test_a_switch_can_be_cancelled(tmp_path: Path, mode: str) -> None:
    slow = fake_profile("slow", "--start-delay-s", "3600")
    with run_sidecar(tmp_path, [A, slow]) as server:
        switch_id = server.switch("slow", mode=mode)
        server.wait_for_switch(switch_id, "starting")
        second = server.call("POST", "/switches", 409, profile="a", reason="too early")
        assert switch_id in second["error"]["message"]
        server.call("POST", f"/switches/{switch_id}/cancel", 202, reason="changed my mind")
        again = server.admin.post(f"/admin/v1/switches/{switch_id}/cancel", json={"reason": "again"})
        # It may be over by then; what must not be is a word that contradicts itself.
        message = again.json()["error"]["message"]
        assert again.status_code == 409 and ("already being cancelled" in message or "has ended" in message)
        assert server.wait_for_switch(switch_id)["state"] == "cancelled"
        server.wait_ready()
        assert Streams(server, 1).whole() == 1
        assert "cancelled by first admin" in server.show(switch_id)["error"]
        assert server.show(switch_id)["error"].endswith(": changed my mind")
        error = server.call("POST", f"/switches/{switch_id}/cancel", 409, reason="again")["error"]
        assert "it has ended" in error["message"]
        for action, more in (("cancel", {}), ("promote", {}), ("canary", {"share": 0.5})):
            error = server.call("POST", f"/switches/sw-none/{action}", 404, reason="x", **more)["error"]
            assert error["code"] == "not_found" and "sw-none" in error["message"]


def test_a_canary_that_dies_is_rolled_back(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B]) as server:
        switch_id = server.switch("b", canary_share=0.5, is_promoted_at_once=False)
        server.wait_for_switch(switch_id, "canary")
        wait_until(lambda: len(server.sidecar.router.routed) == 2, "both are routed")
        import os
        import signal

        os.kill(server.stats(1)["pid"], signal.SIGKILL)
        view = server.wait_for_switch(switch_id)
        assert view["state"] == "rolled_back" and "SIGKILL" in view["error"]
        assert Streams(server, 4).whole() == 4


def test_rollback_diff_export_and_import(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B]) as server:
        server.wait_for_switch(server.switch("b"))
        lines = server.call("GET", "/revisions/diff?before=1&after=2")["lines"]
        assert {line["path"]: (line["before"], line["after"]) for line in lines}[
            "command.--start-delay-s"
        ] == (
            None,
            "0.3",
        )
        exported = server.admin.get("/admin/v1/revisions/1/export").text
        made = server.call("POST", "/revisions/import", 201, document=exported, reason="from elsewhere")
        assert made["state"] == "imported" and made["resolved"]["command"] == A.command
        view = server.wait_for_switch(
            server.call("POST", "/switches", 202, revision=made["number"], reason="apply it")["id"]
        )
        assert view["state"] == "applied" and server.call("GET", "/revisions")["current"] == 3
        back = server.call("POST", "/revisions/2/rollback", 202, reason="no, back")
        assert server.wait_for_switch(back["id"])["state"] == "applied"
        current = server.call("GET", "/revisions/4")
        assert current["profile_name"] == "b" and current["reason"] == "rollback to revision 2: no, back"
        assert current["actor"].startswith("first admin")


def test_an_imported_document_cannot_bring_its_own_command(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A]) as server:
        document = server.admin.get("/admin/v1/revisions/1/export").text
        evil = document.replace("fake_engine.py", "evil.py")
        made = server.call("POST", "/revisions/import", 201, document=evil, reason="x")
        assert made["resolved"]["command"] == A.command
        for text in (
            "{",
            "[]",
            "kind: other",
            document.replace("schema: 1", "schema: 2"),
            "x: !!python/none",
        ):
            server.call("POST", "/revisions/import", 400, document=text, reason="x")
        unknown = document.replace(A.profile_id, "sha256-none")
        assert server.call("POST", "/revisions/import", 404, document=unknown, reason="x")["error"]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"mode": "in-engine"}, "in-engine"),
        ({"mode": "recreate", "canary_share": 0.5}, "canary_share"),
        ({"profile": "small", "mode": "surge"}, "no second engine fits"),
    ],
)
def test_a_mode_that_cannot_work_is_refused(tmp_path: Path, fields: dict[str, Any], word: str) -> None:
    small = fake_profile("small", switch="recreate")
    with run_sidecar(tmp_path, [A, B, small]) as server:
        answer = server.call("POST", "/switches", 409, **({"profile": "b", "reason": "x"} | fields))
        assert word in answer["error"]["message"]
        assert len(server.call("GET", "/switches")["switches"]) == 1


def test_events_show_a_switch_as_it_goes(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B]) as server:
        seen: list[str] = []
        with server.admin.stream("GET", "/admin/v1/events", headers={"Last-Event-ID": "0"}) as answer:
            switch_id = server.switch("b")
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    if event["kind"] == "switch" and event["data"]["id"] == switch_id:
                        seen.append(event["data"]["state"])
                        if seen[-1] == "applied":
                            break
        assert seen == ["pending", "starting", "gating", "promoting", "applied"]
