"""Replayed acceptance: against token-by-token verification, against all trees there are, and by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specpilot.draft import DraftTree, Lattice
from specpilot.draft.builders import make_builder
from specpilot.draft.recording import RecordedTimes
from specpilot.errors import ConfigError
from specpilot.replay.oracle import oracle_depth, replay_oracle
from specpilot.replay.records import ReplayStep, read_records
from specpilot.replay.report import replay_report
from specpilot.replay.selection import num_accepted, own_steps, replay_builder
from specpilot.replay.steps import RecordedRequest
from specpilot.verify import walk_tree
from tests.oracles.recorded_steps import random_lattice, record_answers
from tests.strategies import lattices

TREES = ("best_first", "ddtree", "eagle2", "sequoia", "chain")


@given(
    lattices(max_depth=4, max_width=4),
    st.integers(1, 12),
    st.lists(st.integers(0, 49), max_size=6),
    st.data(),
)
def test_acceptance_is_what_verification_accepts(
    lattice: Lattice, num_nodes: int, truth: list[int], data: st.DataObject
) -> None:
    tree = make_builder("best_first").build(lattice, 3, num_nodes)
    if tree.num_nodes > 1 and data.draw(st.booleans()):
        node = data.draw(st.integers(1, tree.num_nodes - 1))
        truth = [*(int(tree.token_ids[n]) for n in tree.path(node)[1:]), *truth]
    said: list[int] = []

    def choose(_: int) -> int:
        said.append(truth[len(said)] if len(said) < len(truth) else -1)
        return said[-1]

    expected = walk_tree(tree, choose).num_correct_drafts
    assert num_accepted(tree, np.array(truth, np.int64)) == expected


@given(
    lattices(max_depth=3, max_width=3),
    st.integers(1, 5),
    st.lists(st.integers(0, 49), min_size=4, max_size=4),
)
def test_no_tree_beats_the_oracle_and_one_reaches_it(
    lattice: Lattice, num_nodes: int, truth: list[int]
) -> None:
    ids, scores = lattice.candidate_ids.tolist(), lattice.edge_scores
    paths: list[tuple[int, ...]] = []
    for length in range(1, lattice.depth + 1):
        for picks in itertools.product(range(lattice.width), repeat=length):
            rows = (0, *picks[:-1])
            if all(scores[t, r, c] > -torch.inf for t, (r, c) in enumerate(zip(rows, picks, strict=True))):
                paths.append(tuple(ids[t][c] for t, c in enumerate(picks)))
    follows = [len(path) for path in paths if list(path) == truth[: len(path)]]
    reach = min(max(follows, default=0), num_nodes - 1)
    assert min(oracle_depth(lattice, np.array(truth)), num_nodes - 1) == reach
    for name in TREES:
        tree = make_builder(name).build(lattice, 0, num_nodes)  # type: ignore[arg-type]
        assert num_accepted(tree, np.array(truth)) <= reach


def step_of(position: int, depth: int, truth: list[int], request: str = "r") -> ReplayStep:
    return ReplayStep(
        RecordedRequest(request, "d"),
        position,
        0,
        random_lattice(torch.Generator().manual_seed(position), depth, 2, 9),
        np.array(truth, np.int64),
        DraftTree.chain(0, []),
        (truth[0],),
        RecordedTimes(0.0, 0.0, 0.0),
    )


def test_own_steps_follow_what_was_accepted() -> None:
    # Accepted drafts by position 10 to 15; the last two steps lack the tokens to judge them.
    steps = [step_of(10 + place, 2, list(range(6 - place))) for place in range(6)]
    assert [step.is_whole for step in steps] == [True, True, True, True, False, False]
    assert own_steps(steps, [0, 1, 0, 2, 9, 9]) == [0, 1, 3]
    assert own_steps(steps, [2, 0, 0, 0, 9, 9]) == [0, 3]
    assert own_steps(steps, [0, 0, 0, 0, 9, 9]) == [0, 1, 2, 3]
    # Another request goes its own way; a hole is no answer.
    other = [step_of(3 + place, 2, list(range(6 - place)), "other") for place in range(4)]
    assert own_steps([*steps, *other], [0, 1, 0, 2, 9, 9, 1, 0, 0, 0]) == [0, 1, 3, 6, 8, 9]
    assert own_steps([*steps, *other[:1], *other[2:]], [0, 1, 0, 2, 9, 9, 0, 0, 0]) is None
    assert own_steps([*steps, *other[:1], *other[2:]], [0, 1, 0, 2, 9, 9, 1, 0, 0]) == [0, 1, 3, 6, 7, 8]


def test_a_row_by_hand(tmp_path: Path) -> None:
    """Two answers; everything in a row counted again from the trees."""
    record_answers(tmp_path, num_answers=2, num_tokens=30, depth=3, width=3)
    steps = read_records([tmp_path])
    builder = make_builder("best_first")
    (row,) = replay_builder(steps, "best_first", builder, [6])
    counts, sums = [], []
    for name in ("answer-0", "answer-1"):
        mine = {step.position: step for step in steps if step.request.request_id == name}
        position = min(mine)
        while position in mine and len(mine[position].truth) > 3:
            tree = builder.build(mine[position].lattice, mine[position].root_id, 6)
            counts.append(num_accepted(tree, mine[position].truth))
            sums.append(float(np.exp(tree.logprobs.astype(float)).sum()))
            position += counts[-1] + 1
    assert (row.counted, row.num_steps, row.mean_nodes) == ("own", len(counts), 6.0)
    assert row.tau == pytest.approx(1 + np.mean(counts))
    assert row.expected_tokens == pytest.approx(np.mean(sums))
    assert row.tau == pytest.approx(1 + sum(row.accept_by_depth))
    judged = [step for step in steps if step.is_whole]
    all_counts = [num_accepted(builder.build(s.lattice, s.root_id, 6), s.truth) for s in judged]
    assert row.tau_recorded == pytest.approx(1 + np.mean(all_counts))


def test_more_nodes_never_accept_less_and_the_oracle_most(tmp_path: Path) -> None:
    record_answers(tmp_path, num_answers=3)
    steps = read_records([tmp_path])
    nodes = [1, 2, 4, 8, 16, 32]
    oracle = [row.tau_recorded for row in replay_oracle(steps, nodes)]
    for name in TREES:
        rows = list(replay_builder(steps, name, make_builder(name), nodes))  # type: ignore[arg-type]
        taus = [row.tau_recorded for row in rows]
        assert taus[0] == 1.0 and rows[0].accept_by_depth == ()
        assert all(a is not None and b is not None and a <= b for a, b in zip(taus, oracle, strict=True))
        if name != "sequoia":  # its shapes of different sizes are different trees
            assert taus == sorted(taus, key=lambda tau: tau or 0.0)


def test_reports_name_what_is_wrong(tmp_path: Path) -> None:
    record_answers(tmp_path, num_answers=1)
    report, rows = replay_report([tmp_path], ["best_first", "sequoia"], [4, 8])
    assert [row["builder"] for row in report["rows"]] == ["best_first"] * 2 + ["sequoia"] * 2 + ["oracle"] * 2
    assert [(row.builder, row.nodes) for row in rows] == [(r["builder"], r["nodes"]) for r in report["rows"]]
    assert (report["drafter"], report["num_steps"], report["depths"]) == ("random", 39, [5])
    with pytest.raises(ConfigError, match="'beam'"):
        replay_report([tmp_path], ["beam"], [4])
    with pytest.raises(ConfigError, match="nodes: got 0"):
        replay_report([tmp_path], [], [0])
