"""Every way to look faster that we know of is refused, and for its own reason.

The controller, its statistics, its ledger and token forcing are the real ones, and so are the tokens (the bundled
model's); only how long a token takes is made up, so that a cheat is as fast as it claims.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specpilot.controller.selftest.cheats import CHEATS, Cheat
from specpilot.controller.selftest.runner import HONEST_SPEED, build_cheat, detects_tampering, try_sealed_file
from specpilot.controller.selftest.trials import Sets, mine_noise, run_candidate
from specpilot.controller.selftest.truth import Truth
from specpilot.controller.selftest.world import Stock


def test_an_honest_candidate_is_promoted_and_passes_the_final(
    truth: Truth, sets: Sets, tmp_path: Path
) -> None:
    """Without this, refusals would say nothing."""
    outcome = run_candidate(truth, sets, Stock(HONEST_SPEED), tmp_path, is_sealed=True)
    assert outcome.is_promoted and outcome.is_final_accepted, outcome.reasons


@pytest.mark.parametrize("kind", CHEATS, ids=lambda kind: kind.name)
def test_a_cheat_is_refused_for_what_it_does(
    truth: Truth, sets: Sets, tmp_path: Path, kind: type[Cheat]
) -> None:
    outcome = run_candidate(truth, sets, build_cheat(kind, sets), tmp_path, is_sealed=kind.is_late)
    assert outcome.is_promoted == kind.is_late, outcome
    assert not outcome.is_final_accepted
    assert any(reason.startswith(kind.reasons) for reason in outcome.reasons), outcome.reasons


def test_a_change_that_does_nothing_is_not_promoted_by_trying_again(
    truth: Truth, sets: Sets, tmp_path: Path
) -> None:
    num_promoted, refusals = mine_noise(truth, sets, tmp_path)
    assert num_promoted == 0
    # One attempt too many in each of 20 directions, and all five of one direction too many.
    assert len(refusals) == 25 and all(one.startswith("retries") for one in refusals)


def test_sealed_files_cannot_be_read_by_others(tmp_path: Path) -> None:
    assert try_sealed_file(tmp_path)["refused"]


def test_tampering_with_the_ledger_is_seen(tmp_path: Path) -> None:
    assert detects_tampering(tmp_path)
