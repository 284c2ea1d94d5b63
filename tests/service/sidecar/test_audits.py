"""Audits through the sidecar: the real program on the real engine, its verdict in overview and list."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from specpilot.errors import ConfigError
from specpilot_service.schemas.admin import ResolvedView
from specpilot_service.schemas.admin_audits import AuditResult
from specpilot_service.sidecar.jobs import JOB_KINDS, JobPlace
from specpilot_service.sidecar.jobs.audit import AuditKind
from tests.service.sidecar.harness import END_STATES, NO_KINDS, LiveSidecar, fake_profile, run_sidecar

ENGINE = [sys.executable, "-P", "-m", "specpilot_service", "--drafter", "dflash2", "--max-running", "8"]


def profile(name: str, *command: str) -> ResolvedView:
    return fake_profile(name).model_copy(update={"command": list(command)})


class LaterKind(AuditKind):
    """Leaves the first start alone."""

    is_ready = False

    def unavailable_for(self, resolved: ResolvedView | None) -> str:
        return super().unavailable_for(resolved) if self.is_ready else "not at the first start"


def test_a_switch_waits_for_the_audit_of_the_new_engine(tmp_path: Path) -> None:
    """As a gate, for gates run at a priority that a busy machine still serves."""
    kind = LaterKind()
    kinds = {"kinds": NO_KINDS | {"audit": kind}}
    profiles = [profile("one", *ENGINE), profile("two", *ENGINE)]
    with run_sidecar(tmp_path, profiles, parts=kinds, gates=("audit",)) as server:
        assert server.call("GET", "/overview")["audit"]["verdict"] == "not_checked"
        kind.is_ready = True
        switch_id = server.switch("two")
        pause = threading.Event()
        while (view := server.show(switch_id))[
            "state"
        ] not in END_STATES:  # the suite's own time limit ends it
            pause.wait(0.1)
        assert view["state"] == "applied", view
        (gate,) = view["gates"]
        assert (gate["name"], gate["verdict"]) == ("audit", "passed"), gate
        (job,) = server.call("GET", "/audits")["jobs"]
        assert job["origin"] == "gate" and job["id"] in gate["message"]
        assert job["progress"]["message"] == "system" and job["progress"]["done"] == job["progress"]["total"]
        job = server.call("GET", f"/audits/{job['id']}")
        result = AuditResult.model_validate(job["result"])
        assert result.passed is True and result.message.startswith("accepted: 0 of 2,"), result.message
        assert result.picture.startswith("<svg") and result.verdict["scorer"]["head"] == "fp32"
        written = {path.name for path in server.sidecar.jobs.folder(job["id"]).iterdir()}
        assert {"report.html", "verdict.json"} <= written
        overview = server.call("GET", "/overview")
        assert overview["audit"]["verdict"] == "passed" and job["id"] in overview["audit"]["message"]
        check_wrong_options(server)


def check_wrong_options(server: LiveSidecar) -> None:
    for options in ({"prompts": 2}, {"scored_by": "nobody"}, {"surprise": 1}):
        error = server.call("POST", "/audits", 400, reason="test", options=options)["error"]
        assert error["code"] == "invalid_value" and next(iter(options)) in error["message"]
    assert "expected some of: prompts, max_tokens" in error["message"]  # the last one is no option at all


def test_gates_leave_out_what_no_audit_here_can_judge() -> None:
    kind = JOB_KINDS["audit"]
    sglang = profile("s", "/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "x")
    other = profile("o", *ENGINE, "--model", "no/such/folder")
    assert kind.unavailable() == "" and kind.unavailable_for(profile("real", *ENGINE)) == ""
    assert "SGLang" in kind.unavailable_for(sglang)
    assert "probe" in kind.unavailable_for(other)


def test_the_command_audits_what_the_profile_serves(tmp_path: Path) -> None:
    def place(*command: str) -> JobPlace:
        return JobPlace(tmp_path, tmp_path / "result.json", "http://127.0.0.1:1", profile("p", *command))

    words = list(AuditKind().command({"seed": 3}, place(*ENGINE, "--model", str(tmp_path))))
    assert words[words.index("--model") + 1] == str(tmp_path)
    assert words[words.index("--scored-by") + 1] == "live"  # a folder without weights has no room
    assert words[words.index("--seed") + 1] == "3"
    assert "--model" not in AuditKind().command({}, place(*ENGINE))
    with pytest.raises(ConfigError, match="prompts"):
        AuditKind().command({"prompts": "many"}, place(*ENGINE))
