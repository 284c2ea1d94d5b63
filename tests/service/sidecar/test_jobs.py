"""Jobs: lowest priority, one at a time, out of the way of requests, and gates that decide by them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpilot.errors import ConfigError
from specpilot_service.sidecar.jobs import MissingKind
from specpilot_service.sidecar.store import StateStore
from tests.service.live_server import wait_until
from tests.service.sidecar.fake_job import FakeKind
from tests.service.sidecar.harness import LiveSidecar, fake_profile, run_sidecar

A, B = fake_profile("a"), fake_profile("b")
LONG = {"steps": 3000, "pause_s": 0.01}


def kinds_of(*kinds: Any) -> dict[str, Any]:
    return {"kinds": {kind.name: kind for kind in kinds}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSidecar]:
    """One place in the engine, so that a second request waits."""
    kinds = kinds_of(
        FakeKind("check"), MissingKind("audit", "not in this test"), MissingKind("ceiling", "neither")
    )
    with run_sidecar(tmp_path_factory.mktemp("state"), [A], parts=kinds, max_in_flight=1) as server:
        yield server


def start(server: LiveSidecar, **options: Any) -> str:
    body = {"kind": "check", "reason": "test", "options": options}
    return str(server.call("POST", "/jobs", 202, **body)["id"])


def show(server: LiveSidecar, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = server.call("GET", f"/jobs/{job_id}")
    return found


def wait_for(server: LiveSidecar, job_id: str, *states: str) -> dict[str, Any]:
    wanted = states or ("succeeded", "failed", "cancelled")
    wait_until(lambda: show(server, job_id)["state"] in wanted, f"job in {wanted}")
    return show(server, job_id)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_job_runs_at_the_lowest_priority_and_its_result_is_kept(server: LiveSidecar) -> None:
    job = wait_for(server, start(server))
    assert job["state"] == "succeeded", job["error"]
    result = job["result"]
    assert result["passed"] is True and result["message"] == "fake: passed"
    assert (result["nice"], result["scheduler"], result["threads"]) == (19, os.SCHED_IDLE, "1")
    upstream = server.sidecar.router.routed[0]
    assert result["engine_url"] == f"http://{upstream.host}:{upstream.port}" and job["revision"] == 1
    assert job["progress"] == {"done": 2, "total": 3, "message": "step 2"}
    actions = [e["action"] for e in server.call("GET", "/audit-log?action=job.")["entries"]]
    assert actions[:3] == ["job.succeeded", "job.running", "job.queued"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("die", "exit code 7; its last line: fake job: dies as asked"),
        ("silent", "wrote none"),
        ("garbage", "expected an object with passed"),
    ],
)
def test_a_job_without_a_result_has_failed(server: LiveSidecar, how: str, said: str) -> None:
    job = wait_for(server, start(server, how=how))
    assert job["state"] == "failed" and said in job["error"] and job["result"] is None


def test_wrong_requests_are_refused(server: LiveSidecar) -> None:
    body = {"reason": "test", "kind": "check", "options": {"wrong": 1}}
    assert "wrong" in server.call("POST", "/jobs", 400, **body)["error"]["message"]
    assert server.call("POST", "/jobs", 404, kind="nothing", reason="test")["error"]["code"] == "not_found"
    for path in ("/audits", "/ceilings"):
        assert server.call("POST", path, 503, reason="test")["error"]["code"] == "unavailable"
    assert server.call("GET", "/jobs/none", 404)["error"]["code"] == "not_found"
    done = wait_for(server, start(server))["id"]
    assert server.call("POST", f"/jobs/{done}/cancel", 409, reason="x")["error"]["code"] == "conflict"
    assert server.call("GET", f"/audits/{done}", 404)["error"]["code"] == "not_found"


def test_jobs_run_one_at_a_time_and_cancel_ends_their_whole_group(server: LiveSidecar) -> None:
    first = start(server, how="child", **LONG)
    second, third = start(server), start(server)
    child = server.sidecar.jobs.folder(first) / "child"
    wait_until(child.exists, "the job started its child")
    assert [show(server, job)["state"] for job in (first, second, third)] == ["running", "queued", "queued"]
    assert server.call("POST", f"/jobs/{third}/cancel", 202, reason="x")["state"] == "cancelled"
    server.call("POST", f"/jobs/{first}/cancel", 202, reason="x")
    assert wait_for(server, first)["state"] == "cancelled"
    wait_until(lambda: not is_alive(int(child.read_text())), "its child is gone")
    assert wait_for(server, second)["state"] == "succeeded"
    assert show(server, third)["started_at"] is None


def test_a_job_stands_still_while_requests_wait(server: LiveSidecar) -> None:
    job_id = start(server, **LONG)
    wait_until(lambda: show(server, job_id)["progress"] is not None, "it runs")
    log = server.sidecar.jobs.folder(job_id) / "log"
    pid = int(log.read_text().partition('"pid": ')[2].partition("}")[0])
    body = {"model": "fake", "prompt": "x", "max_tokens": 100_000, "stream": True, "fake": {"delay_s": 0.01}}
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=60) as answer:
        parts = answer.iter_bytes()  # kept: its end would be the request's
        next(parts)
        wait_until(lambda: show(server, job_id)["is_paused"], "the job is paused")
        stat = Path(f"/proc/{pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "its process is stopped")
        before = show(server, job_id)["progress"]
        threading.Event().wait(0.3)
        assert show(server, job_id)["progress"] == before
    wait_until(lambda: not show(server, job_id)["is_paused"], "it goes on")
    wait_until(lambda: show(server, job_id)["progress"] != before, "and comes forward")
    server.call("POST", f"/jobs/{job_id}/cancel", 202, reason="x")
    assert wait_for(server, job_id)["state"] == "cancelled"


def test_progress_is_told_live(server: LiveSidecar) -> None:
    events = server.sidecar.bus._kept
    last = events[-1].id
    job_id = start(server, steps=60, pause_s=0.01)
    wait_for(server, job_id)
    told = [e.data for e in list(events) if e.id > last and e.kind == "job" and e.data["id"] == job_id]
    assert [told[0]["state"], told[-1]["state"]] == ["queued", "succeeded"]
    assert any(
        view["progress"] and view["progress"]["done"] > 0 for view in told if view["state"] == "running"
    )
    assert len(told) < 20  # 60 steps are not 60 events


@pytest.mark.parametrize(
    ("mode", "gate", "ended"),
    [
        ("surge", {"verdict": "passed"}, "applied"),
        ("surge", {"verdict": "failed"}, "rolled_back"),
        ("recreate", {"verdict": "failed"}, "rolled_back"),
        ("surge", {"verdict": "undecided"}, "rolled_back"),
        ("surge", {"how": "die"}, "rolled_back"),
    ],
)
def test_a_gate_waits_for_the_verdict_of_its_job(
    tmp_path: Path, mode: str, gate: dict[str, Any], ended: str
) -> None:
    kind = FakeKind("audit")
    parts = kinds_of(kind, MissingKind("ceiling", "not in this test"))
    with run_sidecar(tmp_path, [A, B], parts=parts) as server:
        other = start_long(server, kind)
        kind.gate = gate
        view = server.wait_for_switch(server.switch("b", mode=mode))
        assert view["state"] == ended, view
        verdicts = {row["name"]: row["verdict"] for row in view["gates"]}
        assert verdicts == {"audit": "passed" if ended == "applied" else "failed", "ceiling": "not_checked"}
        (job,) = [row for row in server.call("GET", "/jobs")["jobs"] if row["origin"] == "gate"][:1]
        assert job["revision"] == 2 and (job["id"] in view["gates"][0]["message"])
        # The one that ran made room, and runs again on the engine that is there now.
        wait_until(lambda: show(server, other)["state"] == "running", "the other job runs again")
        overview = server.call("GET", "/overview")
        assert overview["revision"]["number"] == (2 if ended == "applied" else 1)
        assert overview["audit"]["verdict"] == "passed"


def start_long(server: LiveSidecar, kind: FakeKind) -> str:
    body = {"kind": kind.name, "reason": "test", "options": LONG}
    job_id = str(server.call("POST", "/jobs", 202, **body)["id"])
    wait_until(lambda: show(server, job_id)["state"] == "running", "it runs")
    return job_id


def test_cancelling_a_switch_cancels_the_job_that_it_waits_for(tmp_path: Path) -> None:
    kind = FakeKind("audit")
    with run_sidecar(tmp_path, [A, B], parts=kinds_of(kind), gates=("audit",)) as server:
        kind.gate = LONG
        switch_id = server.switch("b")
        server.wait_for_switch(switch_id, "gating")
        wait_until(lambda: server.call("GET", "/jobs")["jobs"][0]["state"] == "running", "its job runs")
        server.call("POST", f"/switches/{switch_id}/cancel", 202, reason="test")
        assert server.wait_for_switch(switch_id)["state"] == "cancelled"
        job_id = server.call("GET", "/jobs")["jobs"][0]["id"]
        assert wait_for(server, job_id)["state"] == "cancelled"
        assert show(server, job_id)["error"] == "cancelled by sidecar: its switch was given up"


def test_a_cancelled_job_keeps_who_and_why(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A], parts=kinds_of(FakeKind("check")), gates=()) as server:
        running, queued = start(server, **LONG), start(server)
        wait_for(server, running, "running")
        for job_id, why in ((queued, "not needed"), (running, "too long")):
            server.call("POST", f"/jobs/{job_id}/cancel", 202, reason=why)
            assert wait_for(server, job_id)["error"].endswith(f"): {why}")
        log = server.call("GET", "/audit-log?action=job.cancelled")["entries"]
        assert [entry["subject"] for entry in log] == [running, queued]
        assert all("cancelled by first admin" in entry["detail"]["error"] for entry in log)


def test_a_job_that_runs_too_long_has_failed(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [A], parts=kinds_of(FakeKind("check")), gates=(), job_timeout_s=0.3) as server:
        job = wait_for(server, start(server, **LONG))
        assert job["state"] == "failed" and "did not end within" in job["error"]


def test_a_job_that_only_waits_ends_at_its_deadline(tmp_path: Path) -> None:
    """It is paused before its time limit and stays so: nothing but the deadline can end it."""
    limits: dict[str, Any] = {"job_timeout_s": 600.0, "job_deadline_s": 3.0}
    kinds = kinds_of(FakeKind("check"))
    with run_sidecar(tmp_path, [A], parts=kinds, gates=(), max_in_flight=1, **limits) as server:
        body = {
            "model": "fake",
            "prompt": "x",
            "max_tokens": 100_000,
            "stream": True,
            "fake": {"delay_s": 0.01},
        }
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=60) as answer:
            parts = answer.iter_bytes()  # kept: its end would be the request's
            next(parts)
            job_id = start(server, **LONG)
            wait_until(lambda: show(server, job_id)["is_paused"], "the job is paused")
            job = wait_for(server, job_id)
        assert job["state"] == "failed"
        assert job["error"].startswith("unavailable: no time on this box"), job["error"]
        assert "paused for requests" in job["error"]


def test_a_stopped_sidecar_leaves_no_running_job(tmp_path: Path) -> None:
    parts = kinds_of(FakeKind("check"))
    with run_sidecar(tmp_path, [A], parts=parts, gates=()) as server:
        running, queued = start(server, **LONG), start(server)
        wait_for(server, running, "running")
    with run_sidecar(tmp_path, [A], parts=parts, gates=()) as server:
        assert "stopped" in show(server, running)["error"]
        assert wait_for(server, queued)["state"] == "succeeded"


def test_a_job_whose_engine_went_down_starts_again(tmp_path: Path) -> None:
    parts = kinds_of(FakeKind("check"))
    with run_sidecar(tmp_path, [A], parts=parts, gates=(), backoff_s=0.2) as server:
        job_id = start(server, **LONG)
        wait_for(server, job_id, "running")
        began = show(server, job_id)["started_at"]
        body = {"model": "fake", "prompt": "x", "stream": True, "fake": {"how": "die"}}
        httpx.post(server.url + "/v1/completions", json=body, timeout=60)
        wait_until(lambda: show(server, job_id)["started_at"] not in (began, None), "it runs again")
        reasons = [
            entry["detail"]["reason"]
            for entry in server.call("GET", "/audit-log?action=job.queued")["entries"]
        ]
        assert reasons == ["the engine went down while it ran", "test"]


def test_a_job_says_what_it_waits_for(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [], parts=kinds_of(FakeKind("check")), gates=()) as server:
        queued = show(server, start(server))
        assert queued["state"] == "queued" and queued["waits_for"].startswith("an engine that is ready")
        # Nothing was looked at, so there is no time of it.
        assert server.call("GET", "/overview")["audit"]["checked_at"] is None


def test_what_a_killed_sidecar_left_is_found(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    for job_id, origin in (("job-ran", "operator"), ("job-gate", "gate"), ("job-new", "operator")):
        store.jobs.add(job_id, "check", origin, {}, revision=None, actor="test", reason="test")  # type: ignore[arg-type]
    assert store.jobs.begin("job-ran", None) and not store.jobs.begin("job-ran", None)
    store.close()
    with run_sidecar(tmp_path, [A], parts=kinds_of(FakeKind("check")), gates=()) as server:
        assert wait_for(server, "job-new")["state"] == "succeeded"
        for job_id in ("job-ran", "job-gate"):
            assert show(server, job_id)["error"] == "the sidecar ended while it ran"


def test_a_schedule_makes_jobs_and_remembers(tmp_path: Path) -> None:
    parts = kinds_of(FakeKind("check"))
    for _ in range(2):
        with run_sidecar(tmp_path, [A], parts=parts, gates=(), job_schedule={"check": 3600}) as server:
            wait_until(lambda: bool(server.call("GET", "/jobs")["jobs"]), "a scheduled job")
            (job,) = server.call("GET", "/jobs")["jobs"]
            assert job["origin"] == "schedule"
            wait_for(server, job["id"])
            assert server.call("GET", "/jobs")["kinds"] == [
                {"name": "check", "unavailable": "", "every_s": 3600.0}
            ]


def test_unknown_kinds_in_the_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing"), run_sidecar(tmp_path, [], gates=("nothing",)):
        pass
