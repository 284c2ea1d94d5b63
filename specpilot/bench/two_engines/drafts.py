"""Drafts of the two engines at the same places, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specpilot.bench.two_engines.reference import Answer, drafts_along
from specpilot.bench.two_engines.rows import EngineRun
from specpilot.errors import ConfigError
from specpilot.refengine.engine import ReferenceEngine

__all__ = ["NUM_STEPS", "compare_drafts", "compare_lattices"]

NUM_STEPS = 20


def compare_lattices(
    ours: Sequence[tuple[list[list[int]], np.ndarray]], theirs: Sequence[tuple[list[list[int]], np.ndarray]]
) -> dict[str, Any]:
    """Candidates (D, K) and edge scores (D, K, K) of several steps.

    Candidates are compared as sets at each depth, and scores entry by entry: an edge between candidates that both have.
    The spread of all scores of the reference says what a difference means.
    """
    shared = total = 0
    differences: list[float] = []
    scores: list[float] = []
    for (our_ids, our_scores), (their_ids, their_scores) in zip(ours, theirs, strict=True):
        for depth, (mine, other) in enumerate(zip(our_ids, their_ids, strict=True)):
            both = [(mine.index(token), other.index(token)) for token in mine if token in other]
            total += len(mine)
            shared += len(both)
            before = [(0, 0)]
            if depth:
                last = our_ids[depth - 1], their_ids[depth - 1]
                before = [
                    (last[0].index(token), last[1].index(token)) for token in last[0] if token in last[1]
                ]
            for p, other_p in before:
                for c, other_c in both:
                    differences.append(
                        abs(float(our_scores[depth, p, c] - their_scores[depth, other_p, other_c]))
                    )
                    scores.append(float(our_scores[depth, p, c]))
    values = np.array(differences)
    return {
        "num_steps": len(ours),
        "candidates_shared": round(shared / total, 4),
        "num_entries": len(values),
        "score_spread": round(float(np.std(scores)), 3),
        "mean_difference": round(float(values.mean()), 4),
        "p99_difference": round(float(np.quantile(values, 0.99)), 4),
        "largest_difference": round(float(values.max()), 4),
    }


def compare_drafts(
    engine: ReferenceEngine, name: str, prompt_ids: Sequence[int], run: EngineRun
) -> dict[str, Any]:
    """The first steps of the probed answer."""
    probed = run.probed[:NUM_STEPS]
    if not probed:
        return {"num_steps": 0}
    given = Answer(run.probed_answer.output_ids, run.probed_answer.lengths)
    anchors = [given.output_ids[length - 1] for length in given.lengths[: len(probed)]]
    if [step["anchor"] for step in probed] != anchors:
        raise ConfigError(f"{name}: the probed drafts do not begin where the probed answer's steps end")
    drafts = drafts_along(engine, name, prompt_ids, given, len(probed))
    lattices = [(step["candidate_ids"], np.array(step["edge_scores"])) for step in probed]
    report = compare_lattices(
        [(draft.lattice.candidate_ids.tolist(), draft.lattice.edge_scores.numpy()) for draft in drafts],
        lattices,
    )
    # DFlash2's chain is the best path of its lattice; DSpark's was looked for in the whole vocabulary.
    chains = [
        step.get("chain") or _best_path(*lattice) for step, lattice in zip(probed, lattices, strict=True)
    ]
    equal = sum(draft.token_ids.tolist() == chain for draft, chain in zip(drafts, chains, strict=True))
    return report | {"chains_equal": equal}


def _best_path(candidate_ids: list[list[int]], scores: np.ndarray) -> list[int]:
    chain, row = [], 0
    for depth, ids in enumerate(candidate_ids):
        row = int(scores[depth, row].argmax())
        chain.append(ids[row])
    return chain
