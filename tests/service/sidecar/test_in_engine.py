"""Switches that change the running engine: no new process, requests that run finish as they began, and the way back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.live_server import wait_until
from tests.service.sidecar.fake_job import FakeKind
from tests.service.sidecar.harness import LiveSidecar, fake_profile, run_sidecar
from tests.service.sidecar.test_switching import FixedGate, states

A, B = fake_profile("a", "--label", "old"), fake_profile("b", "--label", "new")
COLD = fake_profile("cold", "--label", "new", "--model", "other")
TEXT: dict[str, Any] = {"model": "fake", "prompt": "x", "max_tokens": 40, "stream": True}


class Answers:
    """Requests one after the other on several threads until they are told to end; the labels of their answers."""

    def __init__(self, server: LiveSidecar, num: int) -> None:
        self.texts: list[str] = []
        self.is_over = False
        self._server = server
        self._threads = [threading.Thread(target=self._ask) for _ in range(num)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self.is_over:
            body = TEXT | {"fake": {"delay_s": 0.01}}
            self.texts.append(httpx.post(self._server.url + "/v1/completions", json=body, timeout=60).text)

    def end(self) -> dict[str, int]:
        """How many whole answers have each label, and how many are not whole."""
        self.is_over = True
        for thread in self._threads:
            thread.join(60)
        found: dict[str, int] = {}
        for text in self.texts:
            is_whole = text.count('"text"') == 40 and text.endswith("data: [DONE]\n\n")
            label = text.partition(": label ")[2].partition("\n")[0] if is_whole else "not whole"
            found[label] = found.get(label, 0) + 1
        return found


def ask_label(server: LiveSidecar) -> str:
    text = server.client.post("/v1/completions", json=TEXT).text
    return text.partition(": label ")[2].partition("\n")[0]


def test_the_engine_changes_under_load_and_back(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B]) as server:
        pid = server.stats()["pid"]
        answers = Answers(server, 8)
        wait_until(lambda: len(answers.texts) >= 8, "answers come")
        view = server.wait_for_switch(server.switch("b", mode="in-engine"))
        assert (view["state"], states(view)) == (
            "applied",
            ["pending", "starting", "gating", "promoting", "applied"],
        )
        assert "none that began before is left" in view["steps"][-1]["message"]
        assert ask_label(server) == "new"
        back = server.call("POST", "/revisions/1/rollback", 202, mode="in-engine", reason="back")["id"]
        assert server.wait_for_switch(back)["state"] == "applied"
        assert ask_label(server) == "old"
        found = answers.end()
        assert found.keys() == {"old", "new"} and found["old"] > 8, found
        assert server.stats()["pid"] == pid
        revisions = server.call("GET", "/revisions")
        assert revisions["current"] == 3
        (engine,) = server.call("GET", "/engine")["instances"]
        assert (engine["revision"], engine["num_restarts"]) == (3, 0)


def test_requests_that_run_finish_as_they_began(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B], drain_timeout_s=0.2) as server:
        texts: list[str] = []

        def read() -> None:
            body = TEXT | {"fake": {"how": "gate"}}
            texts.append(httpx.post(server.url + "/v1/completions", json=body, timeout=60).text)

        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: server.stats()["open"] == 1, "it runs")
        view = server.wait_for_switch(server.switch("b", mode="in-engine"))
        assert view["state"] == "applied" and "1 that began before go on" in view["steps"][-1]["message"]
        upstream = server.sidecar.router.routed[0]
        httpx.get(f"http://{upstream.host}:{upstream.port}/fake/open")
        thread.join(60)
        assert ": label old" in texts[0] and texts[0].endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("first", "profile", "why"),
    [
        (A, COLD, "model: as asked"),
        (
            A,
            fake_profile("else", "--label", "x").model_copy(update={"environment": {"X": "1"}}),
            "environment",
        ),
    ],
)
def test_what_needs_a_new_process_is_refused(tmp_path: Path, first: Any, profile: Any, why: str) -> None:
    with run_sidecar(tmp_path, [first, profile]) as server:
        error = server.call("POST", "/switches", 409, profile=profile.name, mode="in-engine", reason="x")[
            "error"
        ]
        assert error["code"] == "restart_required" and why in error["message"]
        assert ask_label(server) == "old" and server.call("GET", "/revisions")["current"] == 1
        assert len(server.call("GET", "/revisions")["revisions"]) == 1


def test_a_job_that_looked_at_the_engine_as_it_was_starts_again(tmp_path: Path) -> None:
    parts = {"kinds": {"check": FakeKind("check")}}
    with run_sidecar(tmp_path, [A, B], parts=parts, gates=()) as server:
        options = {"steps": 3000, "pause_s": 0.01}
        job_id = server.call("POST", "/jobs", 202, kind="check", reason="x", options=options)["id"]

        def job() -> dict[str, Any]:
            found: dict[str, Any] = server.call("GET", f"/jobs/{job_id}")
            return found

        wait_until(lambda: job()["state"] == "running", "it runs")
        assert job()["revision"] == 1
        assert server.wait_for_switch(server.switch("b", mode="in-engine"))["state"] == "applied"
        wait_until(lambda: job()["state"] == "running" and job()["revision"] == 2, "it runs again")


@pytest.mark.parametrize("how", ["gate", "job", "refused", "cancelled", "died"])
def test_what_fails_changes_the_engine_back(tmp_path: Path, how: str) -> None:
    gate, kind = FixedGate("passed"), FakeKind("audit")
    parts = {"gates": {"audit": gate}} if how == "gate" else {"kinds": {"audit": kind}}
    first = fake_profile("a", "--label", "old", "--refuse-change-to", "new") if how == "refused" else A
    with run_sidecar(tmp_path, [first, B], parts=parts, gates=("audit",), backoff_s=0.1) as server:
        pid = server.stats()["pid"]
        gate.verdict = "failed"
        kind.gate = {"verdict": "failed"} if how == "job" else {"steps": 3000, "pause_s": 0.01}
        if how == "job":
            answers = Answers(server, 4)
        switch_id = server.switch("b", mode="in-engine")
        if how in ("cancelled", "died"):
            server.wait_for_switch(switch_id, "gating")
            assert ask_label(server) == "new"
        if how == "cancelled":
            server.call("POST", f"/switches/{switch_id}/cancel", 202, reason="x")
        if how == "died":
            httpx.post(server.url + "/v1/completions", json=TEXT | {"fake": {"how": "die"}}, timeout=60)
        view = server.wait_for_switch(switch_id)
        assert view["state"] == ("cancelled" if how == "cancelled" else "rolled_back"), view
        server.wait_ready()
        assert ask_label(server) == "old"
        assert server.call("GET", "/revisions")["current"] == 1
        assert (server.stats()["pid"] == pid) == (how != "died")
        if how == "job":
            assert "not whole" not in answers.end()


def test_a_restart_starts_what_the_engine_was_changed_to(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A, B], backoff_s=0.1) as server:
        assert server.wait_for_switch(server.switch("b", mode="in-engine"))["state"] == "applied"
        pid = server.stats()["pid"]
        httpx.post(server.url + "/v1/completions", json=TEXT | {"fake": {"how": "die"}}, timeout=60)
        wait_until(lambda: server.call("GET", "/engine")["instances"][0]["num_restarts"] == 1, "it ends")
        server.wait_ready()
        assert server.stats()["pid"] != pid
        assert ask_label(server) == "new"
    with run_sidecar(tmp_path, [A, B]) as server:
        server.wait_ready()
        assert ask_label(server) == "new"
