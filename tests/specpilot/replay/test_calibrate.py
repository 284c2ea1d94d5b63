"""Calibration from recorded answers: bins, tau, and the whole command on a bundled drafter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specpilot.draft import Lattice
from specpilot.draft.calibration import CALIBRATION_FILE, EdgeCalibration
from specpilot.models.folders import model_folders
from specpilot.refengine.dflash2 import load_dflash2
from specpilot.refengine.target import open_target
from specpilot.replay import calibrate

PROMPTS = (
    "Anna has 3 boxes of 12 pencils and gives away 7. How many are left?",
    "A train needs 2 hours for 150 km. How far does it go in 5 hours?",
    "Write a Python function that adds two numbers.",
    "There are 24 apples in 4 bags. How many are in 3 bags?",
)


def certain(token: int, probability: float) -> Lattice:
    score = torch.tensor(probability).log().reshape(1, 1, 1)
    return Lattice(torch.tensor([[token]]), score, are_logprobs=True)


def test_bins_count_predictions_and_hits() -> None:
    steps = [
        (certain(1, 0.52), [1]),
        (certain(1, 0.58), [2]),
        (certain(1, 0.97), [1]),
        (certain(1, 1.0), [1]),
    ]
    rows = calibrate.reliability(steps)
    assert [(row.low, row.high, row.num_edges, row.accepted) for row in rows] == [
        (0.5, 0.6, 2, 0.5),
        (0.95, 1.0, 2, 1.0),
    ]
    assert rows[0].predicted == pytest.approx(0.55) and rows[1].predicted == pytest.approx(0.985)
    assert calibrate.reliability([]) == []


def test_tau_follows_the_steps_a_builder_takes() -> None:
    # Answer 5 6 7 8: drafted right after 5, wrong after 7 (and what is drafted after 6 is not asked for).
    steps = [(certain(6, 0.9), [6, 7, 8]), (certain(9, 0.9), [7, 8]), (certain(9, 0.9), [8])]
    assert calibrate.tau_of([steps], 2) == (2 + 1) / 2
    assert calibrate.tau_of([steps], 1) == 1.0


def test_the_command_writes_a_calibration_a_drafter_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests, out = tmp_path / "requests.jsonl", tmp_path / "out"
    requests.write_text("\n".join(json.dumps({"prompt": text}) for text in ("skipped", *PROMPTS)) + "\n")
    arguments = ["--drafter", "dflash2", "--requests", str(requests), "--skip", "1", "--max-new-tokens", "40"]
    monkeypatch.setattr("sys.argv", ["calibrate", *arguments, "--out", str(out)])
    calibrate.main()
    shown = json.loads(capsys.readouterr().out)
    report = json.loads((out / "reliability.json").read_text())
    assert report["held_out"] == shown and report["requests"] == {"fitted": 2, "held_out": 2}
    counted = [sum(row["num_edges"] for row in shown[kind]) for kind in ("raw", "calibrated")]
    assert counted[0] == counted[1] > 0
    # The drafter with this file beside its weights drafts chains as before, and trees of mapped edges.
    folder = tmp_path / "drafter"
    folder.mkdir()
    bundled = model_folders(None)[2]["dflash2"]
    for name in ("config.json", "model.w12"):
        (folder / name).symlink_to(bundled / name)
    (folder / CALIBRATION_FILE).symlink_to(out / CALIBRATION_FILE)
    target = open_target(model_folders(None)[1], mode="judge")
    drafter = load_dflash2(folder, target=target)
    state = drafter.new_state(8)
    taps = torch.randn(4, 3 * target.config.hidden_size, generator=torch.Generator().manual_seed(0))
    drafter.append_context(state, torch.arange(4), taps)
    chain, tree = drafter.propose(state, 9), drafter.propose_tree(state, 9)
    expected = EdgeCalibration.read(out / CALIBRATION_FILE).apply(chain.lattice)
    assert torch.equal(tree.lattice.edge_scores, expected.edge_scores) and tree.lattice.are_logprobs
    assert torch.equal(tree.token_ids, chain.token_ids) and not chain.lattice.are_logprobs
