"""The power table from recorded rows: what is shipped, and that its checks can fail."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from specpilot.errors import ConfigError
from specpilot.forcing.faults.catalogue import FAULTS, ROUNDED
from specpilot.forcing.power.lossless import LOSSLESS
from specpilot.forcing.power.recorded import RecordedArm, Recording, read_recording
from specpilot.forcing.power.table import power_table
from specpilot.forcing.power.trials import GPU_NOISE, simulated_rejections
from specpilot.forcing.report.power_picture import power_picture
from specpilot.forcing.rules import Rules

MADE = {"model": "m", "scorer": "s"}
VERDICT = {
    "passed": True,
    "reasons": [],
    "counts": {"unexplained_events": 0, "audited_events": 0, "unexplained_requests": 0},
    "accuracy": None,
}


def arm(name, kind, mismatches, large, passed=True):
    rows = np.stack([np.full(40, 100), np.full(40, mismatches), np.full(40, large)], 1)
    return RecordedArm(name, name, kind, 1.0, rows, 1.0, VERDICT | {"passed": passed})


@pytest.fixture
def recording():
    stock = replace(arm("stock", "stock", 0, 0), verdict={})
    arms = (
        stock,
        arm("tree", "lossless", 0, 0),
        arm("big", "fault", 5, 5, False),
        arm("none", "fault", 0, 0),
    )
    return Recording(MADE, Rules(delta=0.125), arms)


def test_a_large_fault_is_found_and_none_is_not(recording):
    table = power_table(recording, 40, tokens=(2_000, 5_000))
    found = {(row["fault"], row["tokens"]): row["detection"] for row in table["faults"]}
    assert found["big", 2_000] == found["big", 5_000] == 1.0
    assert found["none", 2_000] == found["none", 5_000] == 0.0
    assert table["ok"] and table["false_rejection"] <= 0.1
    json.dumps(table, allow_nan=False)
    assert "big" in power_picture(table).svg()


@pytest.mark.parametrize(
    ("name", "passed"), [("tree", False), ("big", True)], ids=["lossless rejected", "fault in reach accepted"]
)
def test_an_audit_that_says_otherwise_is_not_ok(recording, name, passed):
    arms = tuple(
        replace(one, verdict=one.verdict | {"passed": passed}) if one.name == name else one
        for one in recording.arms
    )
    assert not power_table(replace(recording, arms=arms), 40, tokens=(2_000,))["ok"]


def test_a_rule_without_its_margin_rejects_stock_too_often(recording):
    rng = np.random.default_rng(0)
    loose = replace(recording.rules, rate_limit=1e-6, rate_level=0.1, event_level=0.1)
    found = simulated_rejections(GPU_NOISE, loose, 5_000, 400, rng).either
    assert found > 0.08, found
    assert simulated_rejections(GPU_NOISE, recording.rules, 5_000, 100, rng).either < 0.05


def test_recordings_are_read_back_and_others_refused(recording, tmp_path):
    path = tmp_path / "rows.json"
    recording.write(path)
    again = read_recording(path)
    assert again.rules == recording.rules and again.made == MADE
    assert [one.name for one in again.arms] == [one.name for one in recording.arms]
    assert (again.named("big").rows == recording.named("big").rows).all()
    path.write_text(path.read_text().replace('"version": 1', '"version": 9', 1))
    with pytest.raises(ConfigError, match="no recording"):
        read_recording(path)


def test_what_is_shipped_holds_every_fault_and_every_mechanism():
    shipped = read_recording()
    assert {one.name for one in shipped.of_kind("fault")} == {fault.name for fault in FAULTS}
    assert {one.name for one in shipped.of_kind("lossless")} == {arm.name for arm in LOSSLESS} | {
        ROUNDED.name
    }
    assert all(one.verdict["passed"] is True for one in shipped.of_kind("lossless"))
    rejected = {one.name for one in shipped.of_kind("fault") if one.verdict["passed"] is False}
    assert {
        "bias_every_7th_2",
        "accept_off_by_one",
        "sibling_state",
        "stale_conv",
        "w12_exponent_bit",
    } <= rejected
