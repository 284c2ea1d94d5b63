"""A chain joined to a lattice, and a drafter with the suffix drafter's chain in its trees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from specpilot.draft import Draft, DrafterState, Lattice, SuffixDrafter
from specpilot.draft.attach_lattice import attach_chain_to_lattice
from specpilot.draft.builders import make_builder
from specpilot.draft.with_suffix import SuffixAttached
from specpilot.errors import EngineError
from tests.strategies import lattices

CHAINS = st.lists(st.integers(0, 60), max_size=8)


def all_paths(lattice: Lattice) -> dict[tuple[int, ...], float]:
    """Log-probability of every known path."""
    found: dict[tuple[int, ...], float] = {}
    layer: list[tuple[tuple[int, ...], int, float]] = [((), 0, 0.0)]
    for depth in range(lattice.depth):
        below = []
        for path, row, total in layer:
            for column, edge in enumerate(lattice.edge_logprobs[depth, row].tolist()):
                if edge > -math.inf:
                    longer = (*path, int(lattice.candidate_ids[depth, column]))
                    assert longer not in found, "a twin"
                    found[longer] = total + edge
                    below.append((longer, column, total + edge))
        layer = below
    return found


def continues_a_known_path(path: tuple[int, ...], chain: list[int], known: set[tuple[int, ...]]) -> bool:
    """With the chain's tokens, from a candidate on that is the chain's, too."""
    return any(
        path[:size] in known
        and path[size - 1] == chain[size - 1]
        and [*path[size:]] == chain[size : len(path)]
        for size in range(1, len(path))
    )


def has_an_edge_of(chain: list[int], path: tuple[int, ...]) -> bool:
    edges, of_chain = ([(None, *tokens)[t : t + 2] for t in range(len(tokens))] for tokens in (path, chain))
    return any(mine == other for mine, other in zip(edges, of_chain, strict=False))


@given(lattices(max_depth=3, max_width=4), CHAINS)
@example(Lattice(torch.tensor([[47, 3], [30, 39]]), torch.zeros(2, 2, 2)), [47, 30, 0])
@example(Lattice(torch.tensor([[47, 3], [30, 39], [0, 1]]), torch.zeros(3, 2, 2)), [47, 30, 0])
def test_the_joined_lattice_has_the_paths_of_both(lattice: Lattice, chain: list[int]) -> None:
    joined = attach_chain_to_lattice(lattice, chain, [-0.25] * len(chain))
    before, after = all_paths(lattice), all_paths(joined)
    prefixes = {tuple(chain[:size]) for size in range(1, len(chain) + 1)}
    assert set(after) >= set(before) | prefixes
    for path in set(after) - set(before) - prefixes:
        assert continues_a_known_path(path, chain, set(before))
    for path, total in before.items():
        assert after[path] >= total - 1e-5
        if not has_an_edge_of(chain, path):
            assert after[path] == pytest.approx(total, abs=1e-5)
    for path in prefixes:
        assert after[path] >= -0.25 * len(path) - 1e-5


def test_what_a_chain_says_of_a_candidate_holds_for_all_paths_to_it() -> None:
    lattice = Lattice(torch.tensor([[47, 3], [30, 39]]), torch.zeros(2, 2, 2))
    after = all_paths(attach_chain_to_lattice(lattice, [47, 30, 0], [-0.25] * 3))
    assert set(after) == {*all_paths(lattice), (47, 30, 0), (3, 30, 0)}
    assert after[3, 30, 0] == pytest.approx(2 * math.log(0.5) - 0.25)


@given(lattices(max_depth=4, max_width=4), CHAINS, st.integers(1, 20))
def test_trees_of_it_have_no_twins(lattice: Lattice, chain: list[int], num_nodes: int) -> None:
    joined = attach_chain_to_lattice(lattice, chain, [-0.01] * len(chain))
    for name in ("chain", "best_first", "ddtree", "eagle2", "sequoia"):
        assert make_builder(name).build(joined, 1, num_nodes).num_nodes <= num_nodes


def test_a_certain_chain_comes_first_whatever_the_drafter_thinks() -> None:
    lattice = Lattice(torch.tensor([[1, 2], [3, 4]]), torch.zeros(2, 2, 2))
    joined = attach_chain_to_lattice(lattice, [2, 9, 5], [0.0, 0.0, 0.0])
    assert make_builder("best_first").build(joined, 0, 4).token_ids.tolist() == [0, 2, 9, 5]
    assert joined.depth == 3
    with pytest.raises(ValueError, match="logprobs: got 1, expected 2"):
        attach_chain_to_lattice(lattice, [1, 2], [0.0])


class TwoTokens:
    """A drafter that offers 1 and 2, evenly, at every position; enough of one to be built around."""

    name, block_size, max_positions, target_taps, memory_bytes = "two", 4, 9, (0, 1), 10

    def new_state(self, max_tokens: int) -> Any:
        return SuffixDrafter().new_state(max_tokens)

    def append_context(self, state: Any, token_ids: Tensor, taps: Tensor) -> None:
        assert taps.shape == (len(token_ids), 6)
        SuffixDrafter().append_context(state, token_ids, taps[:, :0])

    def mark(self, state: Any) -> object:
        return SuffixDrafter().mark(state)

    def rewind(self, state: Any, mark: object) -> None:
        SuffixDrafter().rewind(state, mark)

    def propose(self, state: DrafterState, anchor_id: int, **options: Any) -> Draft:
        depth = options.get("num_positions") or 3
        lattice = Lattice(torch.tensor([[1, 2]] * depth), torch.zeros(depth, 2, 2))
        return Draft(lattice.greedy_chain(), None, lattice)


def test_the_text_s_own_chain_stands_in_the_tree_and_chains_stay_the_drafter_s() -> None:
    drafter = SuffixAttached(TwoTokens())
    assert (drafter.name, drafter.block_size, drafter.target_taps) == ("two+suffix", 4, (0, 1))
    state = drafter.new_state(100)
    text = [7, 8, 9, 10, 11, 12] * 5 + [7]
    drafter.append_context(state, torch.tensor(text), torch.zeros(len(text), 6))
    assert state.num_tokens == len(text) and state.memory_bytes > 0
    tree = make_builder("best_first").build(drafter.propose_tree(state, 8).lattice, 8, 12)
    assert tuple(tree.token_ids[:4].tolist()) == (8, 9, 10, 11)
    assert {1, 2} <= set(tree.children[0])
    assert drafter.propose(state, 8).token_ids.tolist() == [1, 1, 1]
    fresh = drafter.new_state(100)
    drafter.append_context(fresh, torch.tensor([5]), torch.zeros(1, 6))
    assert drafter.propose_tree(fresh, 6, num_positions=2).lattice.candidate_ids.tolist() == [[1, 2], [1, 2]]
    with pytest.raises(EngineError, match="SuffixAttachedState"):
        drafter.propose(TwoTokens().new_state(9), 8)


def test_a_rewound_state_drafts_as_at_its_mark() -> None:
    drafter = SuffixAttached(TwoTokens())
    state = drafter.new_state(100)
    text = [7, 8, 9, 10, 11, 12] * 5 + [7]
    drafter.append_context(state, torch.tensor(text), torch.zeros(len(text), 6))
    mark, before = drafter.mark(state), drafter.propose_tree(state, 8).lattice
    drafter.rewind(state, mark)
    more = torch.tensor([8, 40, 41, 8, 40, 41, 8])
    drafter.append_context(state, more, torch.zeros(len(more), 6))
    assert drafter.propose_tree(state, 40).lattice.candidate_ids[0, 2] == 41
    drafter.rewind(state, mark)
    assert state.num_tokens == len(text)
    after = drafter.propose_tree(state, 8).lattice
    assert torch.equal(after.candidate_ids, before.candidate_ids)
    assert torch.equal(after.edge_scores, before.edge_scores)
    with pytest.raises(EngineError, match="drafter mark"):
        drafter.rewind(state, 3)


def test_the_suffix_drafter_says_how_far_it_trusts_its_chain() -> None:
    drafter = SuffixDrafter(row_cost=0.0)
    state = drafter.new_state(100)
    drafter.append_context(state, torch.tensor([1, 2, 3, 4, 5, 1, 2, 3]), torch.zeros(8, 0))
    draft = drafter.propose(state, 4, num_positions=5)
    assert draft.survival is not None and draft.survival.shape == (5,)
    assert (draft.survival > 0).all() and (draft.survival.diff() <= 0).all() and draft.survival[0] < 1
