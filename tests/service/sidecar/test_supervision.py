"""Engines that end, hang and come back; draining; an engine found by its URL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from specpilot_service.schemas.admin import ResolvedView
from specpilot_service.sidecar.engines.process import end_leftovers, free_port, with_port
from specpilot_service.sidecar.store import StateStore
from tests.service.live_server import wait_until
from tests.service.sidecar.harness import FAKE_ENGINE, LiveSidecar, fake_profile, run_sidecar
from tests.service.sidecar.test_store import begin_switch

TEXT: dict[str, Any] = {"model": "fake", "prompt": "x", "max_tokens": 6}


def ask(server: LiveSidecar, **fields: Any) -> httpx.Response:
    return server.client.post("/v1/completions", json=TEXT | fields)


def engine(server: LiveSidecar) -> dict[str, Any]:
    (found,) = server.call("GET", "/engine")["instances"]
    return found


def test_a_killed_engine_is_told_kept_and_replaced(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("a")], backoff_s=0.2) as server:
        answer = ask(server, stream=True, max_tokens=10, fake={"how": "die"})
        assert answer.text.endswith("data: [DONE]\n\n") and "engine_failed" in answer.text
        # A request that still reaches the dying process fails with it, for it may be what kills engines. Once the end
        # is noticed, requests are held until the engine is back.
        wait_until(lambda: engine(server)["last_crash"] is not None, "its end is noticed")
        assert ask(server).status_code == 200
        state = engine(server)
        assert state["num_restarts"] == 1 and state["last_crash"]["exit_code"] == 9
        log = server.call("GET", "/engine/logs?which=previous")
        assert log["crash"]["message"] == state["last_crash"]["message"]
        assert "fake engine fake listens" in log["lines"]
        assert server.call("GET", "/engine/logs?lines=1")["lines"] == ["fake engine fake listens"]
        assert server.call("GET", "/overview")["degraded"]


def test_an_engine_that_does_not_come_back_has_failed(tmp_path: Path) -> None:
    profile = fake_profile("a")
    with run_sidecar(tmp_path, [profile], backoff_s=0.05, max_restarts=2) as server:
        profile.command.append("--refuse-start")
        ask(server, stream=True, max_tokens=10, fake={"how": "die"})
        wait_until(lambda: engine(server)["state"] == "failed", "it is given up")
        assert engine(server)["num_restarts"] == 2
        refused = ask(server)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "no_engine"
        assert "refuses to start" in refused.json()["error"]["message"] and refused.headers["retry-after"]
        assert server.client.get("/readyz").status_code == 503
        assert server.client.get("/livez").status_code == 200


def test_a_start_has_its_budget(tmp_path: Path) -> None:
    slow = fake_profile("slow", "--start-delay-s", "3600", budget_s=0.5)
    with run_sidecar(tmp_path, [fake_profile("a"), slow]) as server:
        view = server.wait_for_switch(server.switch("slow"))
        assert view["state"] == "rolled_back" and "start-up budget" in view["error"]


STATES_OF_A_FIRST_START = ["pending", "starting", "gating", "promoting", "applied"]


def late_profile(folder: Path, num_late: int) -> ResolvedView:
    """Its first ``num_late`` processes never listen."""
    program = (
        "import pathlib, runpy, sys, time\n"
        f"count = pathlib.Path({str(folder / 'starts')!r})\n"
        "begun = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('x' * (begun + 1))\n"
        f"time.sleep(3600 if begun < {num_late} else 0)\n"
        f"runpy.run_path({str(FAKE_ENGINE)!r}, run_name='__main__')\n"
    )
    (folder / "late.py").write_text(program)
    profile = fake_profile("late", budget_s=60.0)
    profile.command[1] = str(folder / "late.py")
    return profile


def test_a_first_start_that_is_late_is_tried_again(tmp_path: Path) -> None:
    late = late_profile(tmp_path, 2)
    with run_sidecar(tmp_path / "state", [late], backoff_s=0.1, startup_budget_s=2.0) as server:
        server.wait_ready()
        assert ask(server).status_code == 200
        # One first start is one switch, whatever it took, and one revision.
        (switch,) = server.call("GET", "/switches")["switches"]
        assert (switch["state"], switch["num_tries"]) == ("applied", 3) and switch["ended_at"]
        assert "budget of 2 s (--startup-budget-s" in switch["error"]  # of the last try that failed
        assert [step["state"] for step in switch["steps"]] == STATES_OF_A_FIRST_START
        assert switch["steps"][0]["message"].startswith("try 3, after: engine ")
        revisions = server.call("GET", "/revisions")
        assert revisions["current"] == 1 and [r["state"] for r in revisions["revisions"]] == ["current"]
        # The audit log has them all.
        log = server.call("GET", "/audit-log?action=switch.retry")["entries"]
        assert [entry["detail"]["num_tries"] for entry in log] == [3, 2]


def test_a_first_start_that_was_killed_while_tried_again_is_closed_by_the_next_sidecar(
    tmp_path: Path,
) -> None:
    profile, state = fake_profile("a"), tmp_path / "state"
    store = StateStore(state)
    number = store.revisions.add(profile, "pending", "sidecar", "first start")
    begin_switch(store, "sw-first", number)
    store.switches.move("sw-first", "rolled_back", "no", error="no token")
    store.switches.try_again("sw-first")
    store.switches.move("sw-first", "starting", "the new engine starts")
    store.close()
    with run_sidecar(state, [profile]) as server:
        server.wait_ready()
        again, left = server.call("GET", "/switches")["switches"]
        assert (left["id"], left["state"], left["num_tries"]) == ("sw-first", "rolled_back", 2)
        assert "the sidecar ended in the state starting" in left["error"]
        assert (again["state"], again["num_tries"], again["error"]) == ("applied", 1, None)


def test_a_first_start_is_not_tried_again_without_restarts(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"backoff_s": 0.01, "startup_budget_s": 0.3}
    with run_sidecar(tmp_path / "state", [late_profile(tmp_path, 9)], max_restarts=0, **settings) as server:
        time.sleep(0.3)
        assert len(server.call("GET", "/switches")["switches"]) == 1


def test_another_profile_can_be_applied_while_the_first_start_waits(tmp_path: Path) -> None:
    waiting = fake_profile("waiting", "--start-delay-s", "3600", budget_s=0.3)
    with run_sidecar(tmp_path, [waiting, fake_profile("a")], backoff_s=60) as server:
        assert "started again in 60.0 s" in server.client.get("/readyz").json()["detail"]
        assert server.wait_for_switch(server.switch("a"))["state"] == "applied"


def test_restart_holds_requests(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("a", "--start-delay-s", "0.3")]) as server:
        old = engine(server)["pid"]
        server.call("POST", "/engine/restart", 202, reason="test")
        assert server.call("POST", "/switches", 409, profile="a", reason="too early")["error"]
        assert ask(server).status_code == 200
        assert engine(server)["pid"] != old


def test_drain_and_resume(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("a")]) as server:
        server.call("POST", "/engine/drain", reason="maintenance")
        assert server.client.get("/readyz").json()["detail"] == "draining"
        refused = ask(server)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "shutting_down"
        server.call("POST", "/engine/resume", reason="done")
        assert ask(server).status_code == 200


def test_the_end_finishes_streams_and_cuts_what_lasts(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    with run_sidecar(tmp_path, [fake_profile("a")], drain_timeout_s=1.0) as server:

        def read(name: str, num_events: int) -> None:
            body = TEXT | {"stream": True, "max_tokens": num_events, "fake": {"delay_s": 0.01}}
            texts[name] = httpx.post(server.url + "/v1/completions", json=body, timeout=60).text

        threads = [threading.Thread(target=read, args=place) for place in (("short", 30), ("long", 100_000))]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.num_in_flight() == 2, "both run")
        pid = engine(server)["pid"]
    for thread in threads:
        thread.join(60)
    assert texts["short"].count('"text"') == 30 and "error" not in texts["short"]
    assert "shutting_down" in texts["long"] and texts["long"].endswith("data: [DONE]\n\n")
    assert not Path(f"/proc/{pid}").exists()


def test_an_engine_by_url(tmp_path: Path) -> None:
    port = free_port()
    with run_sidecar(tmp_path, [], engine_url=f"http://127.0.0.1:{port}") as server:
        assert server.client.get("/readyz").status_code == 503
        process = subprocess.Popen([sys.executable, str(FAKE_ENGINE), "--port", str(port)])
        try:
            server.wait_ready()
            assert ask(server).status_code == 200
            assert server.call("POST", "/engine/restart", 503, reason="x")["error"]["code"] == "unavailable"
            assert server.call("GET", "/engine/logs", 503)["error"]["code"] == "unavailable"
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: server.client.get("/readyz").status_code == 503, "its end is seen")


def test_an_engine_by_url_is_waited_for_within_its_budget(tmp_path: Path) -> None:
    port = free_port()
    settings: dict[str, Any] = {"engine_url": f"http://127.0.0.1:{port}", "startup_budget_s": 1.0}
    with run_sidecar(tmp_path, [], **settings) as server:
        held = ask(server)  # held while the engine may still come, then told why it does not
        assert held.status_code == 503 and held.json()["error"]["code"] == "no_engine"
        assert "budget of 1 s (--startup-budget-s)" in held.json()["error"]["message"]
        assert engine(server)["state"] == "failed" and server.call("GET", "/overview")["degraded"]
        process = subprocess.Popen([sys.executable, str(FAKE_ENGINE), "--port", str(port)])
        try:
            server.wait_ready()  # it is late, not lost
            assert ask(server).status_code == 200 and engine(server)["state"] == "ready"
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: engine(server)["state"] == "failed", "its end is seen and a budget is over again")


def test_leftovers_are_known_by_their_mark(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, [fake_profile("a")]) as server:
        pid = engine(server)["pid"]
        assert end_leftovers(tmp_path / "elsewhere") == []
        assert end_leftovers(tmp_path) == [pid]
        wait_until(lambda: engine(server)["num_restarts"] == 1, "it is started again")


def test_an_engine_ends_with_its_sidecar(tmp_path: Path) -> None:
    script = "\n".join(
        [
            "import asyncio, sys",
            "from pathlib import Path",
            "from specpilot_service.sidecar.engines.process import EngineProcess",
            "async def main():",
            "    command = [sys.executable, sys.argv[1]]",
            "    state = Path(sys.argv[2])",
            "    made = await EngineProcess.start(command, {}, state=state, log_path=state / 'log')",
            "    print(made.pid, flush=True)",
            "    await asyncio.sleep(600)",
            "asyncio.run(main())",
        ]
    )
    command = [sys.executable, "-c", script, str(FAKE_ENGINE), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(is_gone, "the engine is gone")


def test_host_and_port_are_the_sidecars() -> None:
    assert with_port(["x", "--host", "0.0.0.0", "--port", "1", "--a"], 7) == [
        *("x", "--host", "127.0.0.1", "--port", "7", "--a")
    ]
    assert with_port(["x"], 7) == ["x", "--host", "127.0.0.1", "--port", "7"]


def test_a_log_stays_bounded_and_is_read_as_one(tmp_path: Path) -> None:
    talks = fake_profile("talks", "--talk-bytes", "60000")
    with run_sidecar(tmp_path, [talks], engine_log_bytes=4096) as server:
        (engine,) = server.sidecar.fleet.engines
        path = engine.log_path  # type: ignore[attr-defined]
        older = path.with_name(path.name + ".1")
        wait_until(lambda: older.exists() and path.stat().st_size < 4096, "the log was cut")
        lines = server.call("GET", "/engine/logs?lines=5000")["lines"]
        assert len(lines) > 10 and lines[-1] == "fake engine fake listens"
        # The process goes on writing where the file ends now, not where it was.
        server.client.post(
            "/v1/completions", json={"model": "fake", "prompt": "x", "max_tokens": 1, "fake": {"say": "here"}}
        )
        wait_until(lambda: b"here" in path.read_bytes(), "it writes on")
        assert b"\0" not in path.read_bytes() and path.stat().st_size < 4096
