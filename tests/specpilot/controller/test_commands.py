"""The controller's commands: what a round allows, and every state in which it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpilot.controller.history import read_round
from specpilot.controller.measures import Measures
from specpilot.controller.selftest.world import WorldSlot
from specpilot.controller.slots.base import System
from specpilot.controller.spending import AlphaPlan
from specpilot.errors import EngineError, RequestError
from tests.specpilot.controller.box import BEST, STOCK, Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.controller.open("operator", STOCK, AlphaPlan(num_directions=2, num_attempts=2))
    return made


def test_a_round(box: Box) -> None:
    assert box.controller.time("agent", BEST)["tok_s"]
    assert box.promote(BEST)["is_promoted"]
    assert box.controller.status("agent")["best"] == "fast"
    # The next candidate is compared with the promoted system, and one that is only as fast is refused.
    assert not box.promote(System("fast", ("again",)), "e")["is_promoted"]
    assert box.promote(System("faster", ("faster",)), "e")["is_promoted"]
    final = box.controller.seal("operator")
    assert final["is_accepted"] and final["gain"] == pytest.approx(1.5, rel=0.01)
    box.controller.close("agent", "d")
    box.controller.close("operator")
    assert box.controller.ledger.verify(tuple(final["receipt"])).is_intact
    kinds = [entry.kind for entry in box.controller.ledger.entries()]
    assert kinds[0] == "round.opened" and kinds[-1] == "round.closed" and kinds.count("attempt.begun") == 3


def test_two_slots_swap(tmp_path: Path) -> None:
    box = Box(tmp_path, num_slots=2)
    box.world.run_sd = box.world.request_sd = 0.0
    trial = box.controller._trial(BEST, STOCK, box.measures.development)
    assert [run.slots["candidate"] for run in trial.runs] == ["slot 0", "slot 1"]


def test_one_slot_alternates(box: Box) -> None:
    started: list[str] = []
    slot = box.measures.slots[0]
    run = slot.run
    slot.run = lambda system, arm: (started.append(arm), run(system, arm))[1]  # type: ignore[method-assign, func-returns-value]
    box.controller._trial(BEST, STOCK, box.measures.development)
    assert started == ["candidate", "control", "control", "candidate"]


def test_attempts_run_out(box: Box) -> None:
    null = System("null", ("null",))
    for direction in ("d", "e"):
        for _ in range(2):
            box.controller.pair("agent", direction, null)
        with pytest.raises(RequestError, match="has used its 2 attempts"):
            box.controller.pair("agent", direction, null)
    with pytest.raises(RequestError, match="2 directions are used up"):
        box.controller.pair("agent", "f", null)


def test_an_attempt_that_was_broken_off_is_spent(box: Box) -> None:
    audit = box.measures.slots[0].run
    box.measures.slots[0].run = lambda system, arm: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        box.controller.pair("agent", "d", BEST)
    box.measures.slots[0].run = audit  # type: ignore[method-assign]
    again = box.restart()
    current = read_round(again.ledger.entries())
    assert current is not None and current.num_attempts("d") == 1
    decided = again.promote("agent", 1)
    assert not decided["is_promoted"] and decided["reasons"][0].startswith("incomplete")


def test_a_restart_knows_the_round(box: Box) -> None:
    box.promote(BEST)
    assert box.restart().status("agent") == box.controller.status("agent")


@pytest.mark.parametrize("passed", [False, None])
def test_only_a_passed_audit_promotes(box: Box, passed: bool | None) -> None:
    box.passed = passed
    decided = box.promote(BEST)
    assert decided["reasons"] == ["token forcing: made up"]


def test_a_stale_baseline_is_refused(box: Box) -> None:
    paired = box.controller.pair("agent", "d", System("faster", ("faster",)))
    box.controller.check("agent", paired["attempt_id"])
    assert box.promote(BEST, "e")["is_promoted"]
    decided = box.controller.promote("agent", paired["attempt_id"])
    assert not decided["is_promoted"] and decided["reasons"][0].startswith("stale")
    with pytest.raises(RequestError, match="is decided"):
        box.controller.promote("agent", paired["attempt_id"])


def test_an_old_noise_is_refused(box: Box) -> None:
    box.seconds = 2 * 24 * 3600.0
    with pytest.raises(RequestError, match="stale"):
        box.controller.pair("agent", "d", BEST)


def test_a_changed_environment_is_refused(box: Box) -> None:
    box.environment = {"driver": "2"}
    with pytest.raises(RequestError, match="environment: driver changed"):
        box.controller.pair("agent", "d", BEST)


@pytest.mark.parametrize("change", ["old", "moved"])
def test_a_round_that_cannot_go_on_can_be_closed(box: Box, change: str) -> None:
    """A reboot or a night must not leave a ledger in which no round can ever be opened again."""
    box.seconds = 2 * 24 * 3600.0 if change == "old" else 0.0
    box.environment = {"boot": "2"} if change == "moved" else box.environment
    with pytest.raises(RequestError, match=r"open another|open a round anew"):
        box.controller.pair("agent", "d", BEST)
    box.controller.close("operator")
    box.seconds = 0.0
    box.controller.open("operator", STOCK)
    assert box.promote(BEST)["is_promoted"]


def test_a_round_whose_opening_failed_can_be_closed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.controller.close("operator")
    monkeypatch.setattr(WorldSlot, "run", _broken_slot)
    with pytest.raises(EngineError, match="does not start"):
        box.controller.open("operator", STOCK)
    monkeypatch.undo()
    with pytest.raises(RequestError, match="its opening failed; close it"):
        box.controller.pair("agent", "d", BEST)
    box.controller.close("operator")
    box.controller.open("operator", STOCK)
    assert box.promote(BEST)["is_promoted"]


def _broken_slot(*arguments: Any) -> None:
    raise EngineError("the system does not start")


def test_the_sealed_requests_are_used_once(box: Box) -> None:
    box.controller.seal("operator")
    with pytest.raises(RequestError, match="one final a round"):
        box.controller.seal("operator")


def test_one_round_at_a_time_and_none_without_open(box: Box, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a round is open"):
        box.controller.open("operator", STOCK)
    (tmp_path / "new").mkdir()
    with pytest.raises(RequestError, match="no round"):
        Box(tmp_path / "new").controller.pair("agent", "d", BEST)


def test_request_sets_must_be_disjoint(box: Box) -> None:
    with pytest.raises(RequestError, match="share requests"):
        replace(box.measures, hidden=box.measures.development)
    assert isinstance(box.measures, Measures)
