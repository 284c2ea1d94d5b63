"""The EAGLE-3 drafter's trees: every node has the numbers of its path run as a chain."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpilot.draft import Draft, TreeDrafter
from specpilot.draft.builders import make_builder
from specpilot.draft.calibration import CALIBRATION_FILE, EdgeCalibration, IsotonicMap
from specpilot.draft.proposals import ProposeRequest, propose_all
from specpilot.errors import CheckpointError
from specpilot.refengine.eagle3 import Eagle3Drafter, Eagle3State, load_eagle3
from specpilot.refengine.eagle3_tree import BEAM_WIDTH, NUM_CHILDREN
from tests.oracles.eagle3_plain import draft_chain
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_eagle3 import make_config, make_tensors

LENGTH = 9


class Case:
    """A random checkpoint, its drafter, and a text with its taps in a drafter's state."""

    def __init__(self, folder: Path, seed: int = 0, **changes: Any) -> None:
        self.config = make_config(**changes)
        self.tensors = make_tensors(self.config, seed)
        self.target = TinyTarget(self.config, seed + 1)
        self.path = write_checkpoint(folder, self.config, self.tensors)
        self.drafter: Eagle3Drafter = load_eagle3(self.path, target=self.target)
        generator = torch.Generator().manual_seed(seed + 2)
        self.ids = torch.randint(self.config["vocab_size"], (LENGTH + 1,), generator=generator)
        width = len(self.drafter.target_taps) * self.config["hidden_size"]
        self.taps = torch.randn(LENGTH, width, generator=generator) * 3.0

    @property
    def anchor(self) -> int:
        return int(self.ids[-1])

    def new_state(self, drafter: Eagle3Drafter | None = None) -> Eagle3State:
        drafter = drafter or self.drafter
        state = drafter.new_state(LENGTH + 8)
        drafter.append_context(state, self.ids[:-1], self.taps)
        return state

    def propose_tree(self, **options: Any) -> Draft:
        return self.drafter.propose_tree(self.new_state(), self.anchor, **options)

    def logprobs(self, path: list[int]) -> Tensor:
        """Law after the anchor and ``path`` by the oracle, (V,)."""
        arguments = (self.config, self.tensors, self.target.table, self.ids.tolist(), self.taps)
        logits = draft_chain(*arguments, len(path) + 1, forced=[*path, 0])[1]
        return torch.log_softmax(logits[-1], -1)


def known_paths(draft: Draft) -> list[tuple[int, int, list[int]]]:
    """(depth, row, tokens down to it) of every node that was run."""
    lattice = draft.lattice
    found, layer = [], [(0, list[int]())]
    for depth in range(lattice.depth):
        below = []
        for row, path in layer:
            edges = lattice.edge_scores[depth, row]
            if edges.max() == -math.inf:
                continue
            found.append((depth, row, path))
            for column in torch.nonzero(edges > -math.inf).flatten().tolist():
                below.append((column, [*path, int(lattice.candidate_ids[depth, column])]))
        layer = below
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_node_has_the_law_of_its_path_run_as_a_chain(tmp_path: Path, seed: int) -> None:
    case = Case(tmp_path, seed)
    draft = case.propose_tree(num_positions=4)
    paths = known_paths(draft)
    assert len(paths) == 1 + 3 * BEAM_WIDTH
    for depth, row, path in paths:
        expected, top = case.logprobs(path).sort(descending=True)
        edges = draft.lattice.edge_scores[depth, row]
        columns = torch.nonzero(edges > -math.inf).flatten()
        assert len(columns) == (NUM_CHILDREN if depth else BEAM_WIDTH * NUM_CHILDREN)
        assert draft.lattice.candidate_ids[depth, columns].tolist() == top[: len(columns)].tolist()
        torch.testing.assert_close(edges[columns].double(), expected[: len(columns)], atol=1e-4, rtol=1e-5)


def test_siblings_do_not_see_each_other(tmp_path: Path) -> None:
    """The oracle's laws of two nodes of a depth differ by far more than the tolerance."""
    case = Case(tmp_path)
    draft = case.propose_tree(num_positions=2)
    first, second = (path for depth, _, path in known_paths(draft)[1:3])
    assert (case.logprobs(first) - case.logprobs(second)).abs().max() > 1e-1


def test_the_nodes_run_are_the_likeliest_and_the_greedy_one(tmp_path: Path) -> None:
    case = Case(tmp_path)
    lattice = case.propose_tree(num_positions=5).lattice
    sums = lattice.edge_scores[0, 0].double()
    for depth in range(1, lattice.depth):
        run = torch.nonzero(lattice.edge_scores[depth].amax(-1) > -math.inf).flatten().tolist()
        others = sorted((column for column in range(lattice.width) if column), key=lambda c: -float(sums[c]))
        assert run == sorted([0, *others[: BEAM_WIDTH - 1]])
        below = (sums[:, None] + lattice.edge_scores[depth].double()).amax(0)
        sums = below


def test_the_greedy_chain_is_the_one_drafted_alone_bit_for_bit(tmp_path: Path) -> None:
    case = Case(tmp_path)
    chain = case.drafter.propose(case.new_state(), case.anchor, num_positions=12)
    tree = case.propose_tree(num_positions=12)
    assert torch.equal(tree.token_ids, chain.token_ids)
    assert torch.equal(tree.lattice.greedy_chain(), chain.token_ids)
    along = tree.lattice.edge_scores[torch.arange(12), 0, 0]
    assert tree.survival is not None
    torch.testing.assert_close(tree.survival, along.double().cumsum(0).exp().float())


def test_fewer_positions_are_the_beginning(tmp_path: Path) -> None:
    case = Case(tmp_path)
    longest = case.propose_tree(num_positions=9).lattice
    for count in (1, 2, 8):
        lattice = case.propose_tree(num_positions=count).lattice
        assert torch.equal(lattice.edge_scores, longest.first(count).edge_scores)
        assert torch.equal(lattice.candidate_ids, longest.first(count).candidate_ids)


def test_a_draft_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    case = Case(tmp_path)
    state = case.new_state()
    chain = case.drafter.propose(state, case.anchor).lattice.edge_scores
    first = case.drafter.propose_tree(state, case.anchor).lattice.edge_scores
    assert torch.equal(case.drafter.propose(state, case.anchor).lattice.edge_scores, chain)
    assert torch.equal(case.drafter.propose_tree(state, case.anchor).lattice.edge_scores, first)


def test_best_first_trees_of_the_lattice_have_the_oracle_s_log_probabilities(tmp_path: Path) -> None:
    case = Case(tmp_path)
    tree = make_builder("best_first").build(case.propose_tree(num_positions=5).lattice, case.anchor, 24)
    for node in range(1, tree.num_nodes):
        path = tree.token_ids[tree.path(node)[1:]].tolist()
        total = sum(float(case.logprobs(path[:i])[token]) for i, token in enumerate(path))
        assert float(tree.logprobs[node]) == pytest.approx(total, abs=1e-3)


def test_a_vocabulary_smaller_than_the_beam(tmp_path: Path) -> None:
    case = Case(tmp_path, vocab_size=6)
    lattice = case.propose_tree(num_positions=3).lattice
    assert lattice.width == 6 and (lattice.edge_scores[2].amax(-1) > -math.inf).sum() == 1


def test_requests_for_trees_get_them(tmp_path: Path) -> None:
    case = Case(tmp_path)
    assert isinstance(case.drafter, TreeDrafter)
    requests = [ProposeRequest(case.new_state(), case.anchor, is_tree=flag) for flag in (True, False)]
    tree, chain = propose_all(case.drafter, requests)
    assert torch.equal(tree.lattice.edge_scores, case.propose_tree().lattice.edge_scores)
    assert not chain.lattice.are_logprobs and tree.lattice.are_logprobs
    with pytest.raises(ValueError, match="temperature"):
        ProposeRequest(case.new_state(), case.anchor, 0.5, torch.Generator(), is_tree=True)


def test_a_calibration_beside_the_checkpoint_is_applied(tmp_path: Path) -> None:
    case = Case(tmp_path)
    raw = case.propose_tree().lattice
    halved = EdgeCalibration((IsotonicMap((0.0, 1.0), (0.0, 0.5)),))
    halved.write(case.path / CALIBRATION_FILE)
    drafter = load_eagle3(case.path, target=case.target)
    draft = drafter.propose_tree(case.new_state(drafter), case.anchor)
    expected = raw.edge_scores.double().exp() / 2
    torch.testing.assert_close(
        draft.lattice.edge_scores.double().exp(), expected.clamp(min=1e-6) * (expected > 0)
    )
    assert draft.survival is not None and float(draft.survival[0]) == pytest.approx(
        float(expected[0, 0, 0]), rel=1e-5
    )
    (case.path / CALIBRATION_FILE).write_text("{}")
    with pytest.raises(CheckpointError, match="calibration"):
        load_eagle3(case.path, target=case.target)
