"""``specpilot serve --record``: every start records the verify steps of what it served into a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.errors import ConfigError
from specpilot.models.build import build_engine
from specpilot.replay.live import start_recording
from specpilot.replay.records import read_records
from specpilot_service.settings import load_settings
from tests.service.live_server import run_server


def test_served_requests_are_recorded(tmp_path: Path) -> None:
    recorder = start_recording(tmp_path, None)
    assert recorder.folder.parent == tmp_path
    with run_server(build_engine(mode="judge", recorder=recorder)) as live:
        body = {
            "model": live.client.get("/v1/models").json()["data"][0]["id"],
            "messages": [{"role": "user", "content": "Tom has 3 apples and buys 4."}],
            "max_tokens": 24,
            "speculation": {"drafter": "dflash2"},
        }
        answer = live.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        num_steps = answer.json()["specpilot"]["num_steps"]
    recorder.close()
    steps = read_records([tmp_path])
    # The warm-up of the server is recorded too.
    requests = {step.request for step in steps}
    assert num_steps in [sum(step.request == request for step in steps) for request in requests]
    assert all(step.times.total_us > 0 for step in steps)


def test_the_setting_names_a_folder() -> None:
    assert load_settings(["--record", "records"], {}).record == Path("records")
    with pytest.raises(ConfigError, match="record"):
        load_settings(["--record", ""], {})
