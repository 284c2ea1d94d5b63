"""Fits a drafter's calibration on recorded steps and shows on others how far it holds.

    python -m specpilot.replay.calibrate --drafter dflash2 --requests gsm8k.jsonl humaneval.jsonl --out FOLDER

The bundled target answers every request greedily, and the drafter's uncalibrated lattice is taken at every position.
The calibration is fitted on every other request and judged on the rest. ``--out`` gets ``calibration.json``, to be put
beside the drafter's weights, and ``reliability.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from specpilot.draft.builders import make_builder
from specpilot.draft.calibration import CALIBRATION_FILE, EdgeCalibration, fit_edges, recorded_edges
from specpilot.draft.drafter import Drafter
from specpilot.draft.lattice import Lattice
from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.errors import ConfigError
from specpilot.models.drafters import load_drafter
from specpilot.models.folders import model_folders
from specpilot.refengine.block_drafter import BlockDrafter
from specpilot.refengine.eagle3 import Eagle3Drafter
from specpilot.refengine.target import Target, open_target
from specpilot.refengine.tokenizer import ChatTokenizer

__all__ = ["EDGES", "NODES", "ReliabilityRow", "answer_lattices", "main", "reliability", "tau_of"]

EDGES = (0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Bounds of the bins of :func:`reliability`; the lower one belongs to a bin, the last bin has both."""

NODES = (8, 16, 32, 63)
"""N of the trees in a report."""

_Steps = Sequence[tuple[Lattice, Sequence[int]]]


@dataclass(frozen=True)
class ReliabilityRow:
    """Edges whose predicted probability lies in one bin: how many, the mean prediction, the share that was right."""

    low: float
    high: float
    num_edges: int
    predicted: float
    accepted: float


def reliability(steps: _Steps) -> list[ReliabilityRow]:
    """Predicted probability of the children along the true paths against how often they were right, all depths
    together; bins without edges are left out."""
    parts = recorded_edges(steps)
    predicted = np.concatenate([np.empty(0), *(part[0] for part in parts)])
    is_right = np.concatenate([np.empty(0, np.bool_), *(part[1] for part in parts)])
    bins = np.clip(np.searchsorted(EDGES, predicted, side="right") - 1, 0, len(EDGES) - 2)
    rows = []
    for number in range(len(EDGES) - 1):
        inside = bins == number
        if inside.any():
            means = float(predicted[inside].mean()), float(is_right[inside].mean())
            rows.append(ReliabilityRow(EDGES[number], EDGES[number + 1], int(inside.sum()), *means))
    return rows


def tau_of(answers: Sequence[_Steps], num_nodes: int) -> float:
    """Committed tokens a verify step of best-first trees of ``num_nodes``; answers have a step at every position."""
    builder = make_builder("best_first")
    num_tokens = num_steps = 0
    for steps in answers:
        place = 0
        while place < len(steps):
            lattice, following = steps[place]
            tree = builder.build(lattice, 0, num_nodes)
            node, count = 0, 1
            for token in following:
                child = tree.children[node].get(token)
                if child is None:
                    break
                node, count = child, count + 1
            num_tokens, num_steps, place = num_tokens + count, num_steps + 1, place + count
    return num_tokens / num_steps


@torch.inference_mode()
def answer_lattices(
    target: Target, drafter: Drafter, prompt_ids: Sequence[int], max_new_tokens: int
) -> _Steps:
    """The target's greedy answer, and after each of its tokens the drafter's lattice and the tokens that followed."""
    room = min(len(prompt_ids) + max_new_tokens, target.config.context_length)
    state, draft_state = target.new_state(room), drafter.new_state(room)
    rows = torch.tensor(prompt_ids)
    answer: list[int] = []
    lattices: list[Lattice] = []
    while True:
        output = target.forward(rows, state, taps=drafter.target_taps)
        state.commit(len(rows))
        drafter.append_context(draft_state, rows, output.taps)
        answer.append(int(target.logits(output.hidden[-1:]).argmax()))
        if answer[-1] in target.config.eos_ids or state.num_tokens + 1 >= room:
            break
        (draft,) = propose_all(drafter, [ProposeRequest(draft_state, answer[-1], is_tree=True)])
        lattices.append(draft.lattice)
        rows = torch.tensor(answer[-1:])
    return [(lattice, answer[place + 1 :]) for place, lattice in enumerate(lattices)]


def _prompts(files: Iterable[Path], skip: int, limit: int) -> list[str]:
    texts = []
    for file in files:
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        texts += [json.loads(line)["prompt"] for line in lines[skip : skip + limit]]
    return texts


def _calibrated(answers: Sequence[_Steps], calibration: EdgeCalibration) -> list[_Steps]:
    return [[(calibration.apply(lattice), following) for lattice, following in steps] for steps in answers]


def _joined(answers: Sequence[_Steps]) -> _Steps:
    return [step for steps in answers for step in steps]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a drafter's calibration and show its reliability.")
    parser.add_argument("--drafter", required=True, help="a bundled drafter: dflash2, dspark or eagle3")
    parser.add_argument("--requests", type=Path, nargs="+", required=True, help="JSON lines with 'prompt'")
    parser.add_argument("--skip", type=int, default=0, help="requests of each file left out first")
    parser.add_argument("--limit", type=int, default=40, help="requests of each file")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _, folder, drafters = model_folders(None)
    if options.drafter not in drafters:
        raise ConfigError(f"drafter: got {options.drafter!r}, expected one of {sorted(drafters)}")
    target, tokenizer = open_target(folder, mode="serve"), ChatTokenizer.from_folder(folder)
    drafter = load_drafter(drafters[options.drafter], target=target)
    if not isinstance(drafter, BlockDrafter | Eagle3Drafter):
        raise ConfigError(f"drafter: {options.drafter!r} takes no calibration")
    drafter.calibration = None
    answers = [
        answer_lattices(
            target,
            drafter,
            tokenizer.encode_chat([{"role": "user", "content": text}]),
            options.max_new_tokens,
        )
        for text in _prompts(options.requests, options.skip, options.limit)
    ]
    fitted, held_out = answers[::2], answers[1::2]
    calibration = fit_edges(_joined(fitted))
    after = _calibrated(held_out, calibration)
    report = {
        "drafter": options.drafter,
        "requests": {"fitted": len(fitted), "held_out": len(held_out)},
        "positions": {"fitted": len(_joined(fitted)), "held_out": len(_joined(held_out))},
        "held_out": {
            "tau": {str(n): {"raw": tau_of(held_out, n), "calibrated": tau_of(after, n)} for n in NODES},
            "raw": [asdict(row) for row in reliability(_joined(held_out))],
            "calibrated": [asdict(row) for row in reliability(_joined(after))],
        },
    }
    options.out.mkdir(parents=True, exist_ok=True)
    calibration.write(options.out / CALIBRATION_FILE)
    (options.out / "reliability.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report["held_out"], indent=1))


if __name__ == "__main__":
    main()
