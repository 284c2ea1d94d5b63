"""Rows of a tree in the target: a row's bits are those of its root path as a chain, and a commit leaves that path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.errors import EngineError, RequestError
from specpilot.refengine.dense import load_dense
from specpilot.refengine.model import TargetModel
from specpilot.refengine.state import SequenceState, commit_rows
from specpilot.refengine.target import Target
from tests.specpilot.refengine.random_dense import save_muse_glimmer, save_random
from tests.specpilot.refengine.random_target import SMALL, UNTIED, random_tensors
from tests.strategies_trees import NAMED_TREES, paths_of, tree_parents

MAX_TOKENS = 160
TAPS = (0, 2)
TARGETS = ["tied-judge", "untied-serve", "llama-judge", "gemma3-judge", "muse glimmer-judge"]
"""Gated DeltaNet and attention in two proportions; dense; dense with windows of 24 and rotations by layer."""


@pytest.fixture(scope="module", params=TARGETS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    name, chosen = request.param.split("-")
    mode: NumericMode = chosen
    if name in ("tied", "untied"):
        config = SMALL if name == "tied" else UNTIED
        return TargetModel(config, random_tensors(config), mode)
    folder = tmp_path_factory.mktemp("target")
    if name == "muse glimmer":
        save_muse_glimmer(folder)
    else:
        save_random(folder, name)
    return load_dense(folder, mode=mode)


def draw_ids(model: Target, count: int, seed: int) -> Tensor:
    return torch.randint(model.config.vocab_size, (count,), generator=torch.Generator().manual_seed(seed))


def started(model: Target, num_tokens: int) -> SequenceState:
    """A state of so many committed tokens."""
    state = model.new_state(MAX_TOKENS)
    if num_tokens:
        model.forward(draw_ids(model, num_tokens, 1), state)
        state.commit(num_tokens)
    return state


def memory_of(state: SequenceState) -> list[NDArray[np.float32]]:
    """All that later rows can see."""
    seen = [state.kv.buffer[:, :, :, : state.num_tokens]]
    return seen if state.gdn is None else [*seen, state.gdn.recurrent, state.gdn.window]


def assert_same_memory(one: SequenceState, other: SequenceState) -> None:
    assert one.num_tokens == other.num_tokens
    for got, expected in zip(memory_of(one), memory_of(other), strict=True):
        assert np.array_equal(got, expected)


def check_tree(model: Target, parents: NDArray[np.int64], num_tokens: int) -> None:
    """Every row against its root path as a chain, and every path's commit against running the path plainly."""
    ids = draw_ids(model, len(parents), 2)
    out = model.forward(ids, started(model, num_tokens), taps=TAPS, parents=parents)
    for row, path in enumerate(paths_of(parents)):
        plain, tree = started(model, num_tokens), started(model, num_tokens)
        alone = model.forward(ids[path], plain, taps=TAPS)
        assert torch.equal(out.hidden[row], alone.hidden[-1])
        assert torch.equal(out.taps[row], alone.taps[-1])
        plain.commit(len(path))
        model.forward(ids, tree, parents=parents)
        tree.commit(path)
        assert_same_memory(tree, plain)


@pytest.mark.parametrize("name", NAMED_TREES)
@pytest.mark.parametrize("num_tokens", [0, 2, 61])
def test_a_row_of_a_tree_is_its_root_path_as_a_chain(model: Target, name: str, num_tokens: int) -> None:
    check_tree(model, np.array(NAMED_TREES[name], np.int64), num_tokens)


@settings(max_examples=15)
@given(parents=tree_parents(), num_tokens=st.sampled_from([0, 1, 20, 63, 100]))
def test_any_tree_is_its_root_paths_as_chains(
    model: Target, parents: NDArray[np.int64], num_tokens: int
) -> None:
    check_tree(model, parents, num_tokens)


def test_steps_that_accept_three_then_none_then_two_are_the_same_tokens_plainly(model: Target) -> None:
    """Three trees on one sequence, each one's branches behind other rows than its kept path."""
    generator = np.random.default_rng(3)
    state, plain = started(model, 30), started(model, 30)
    for kept, drafted in ((3, 12), (0, 9), (2, 16), (1, 5)):
        parents = np.array([-1, *(generator.integers(0, row + 1) for row in range(drafted - 1))])
        paths = [path for path in paths_of(parents) if len(path) >= kept]
        path = paths[int(generator.integers(len(paths)))][:kept]
        ids = draw_ids(model, drafted, kept)
        out = model.forward(ids, state, parents=parents)
        state.commit(path)
        for row in path.tolist():
            alone = model.forward(ids[row : row + 1], plain)
            plain.commit(1)
            assert torch.equal(alone.hidden[0], out.hidden[row])
        assert_same_memory(state, plain)
    assert state.num_tokens == 36


@dataclass(frozen=True, eq=False)
class Rows:
    """What one sequence runs, and what of it is kept."""

    ids: Tensor
    parents: NDArray[np.int64] | None
    kept: int | NDArray[np.int64]
    is_decided: bool = False


def run_batch(
    model: Target, rows: list[Rows], order: list[int]
) -> dict[int, tuple[Tensor, Tensor, SequenceState]]:
    """All of them in one forward and one commit: what each row gave and what is left, by number."""
    states = {index: started(model, 7 * index) for index in order}
    for index in order:
        states[index].open_rows(
            len(rows[index].ids), is_decided=rows[index].is_decided, parents=rows[index].parents
        )
    out = model.forward_batch(
        torch.cat([rows[index].ids for index in order]), [states[index] for index in order], taps=TAPS
    )
    commit_rows([states[index] for index in order], [rows[index].kept for index in order])
    sizes = [len(rows[index].ids) for index in order]
    parts = zip(order, out.hidden.split(sizes), out.taps.split(sizes), strict=True)
    return {index: (hidden, taps, states[index]) for index, hidden, taps in parts}


@settings(max_examples=10)
@given(data=st.data())
def test_trees_chains_and_prompts_in_one_batch_change_no_bit_of_each_other(
    model: Target, data: st.DataObject
) -> None:
    rows = []
    for seed in range(data.draw(st.integers(2, 5))):
        kind = data.draw(st.sampled_from(["tree", "chain", "prompt"]))
        if kind == "tree":
            parents = data.draw(tree_parents(12))
            ids = draw_ids(model, len(parents), seed)
            kept: int | NDArray[np.int64] = data.draw(st.sampled_from(paths_of(parents)))
            rows.append(Rows(ids, parents, kept))
        else:
            ids = draw_ids(model, data.draw(st.integers(1, 12)), seed)
            kept = len(ids) if kind == "prompt" else data.draw(st.integers(0, len(ids)))
            rows.append(Rows(ids, None, kept, kind == "prompt"))
    together = run_batch(model, rows, data.draw(st.permutations(range(len(rows)))))
    for index in range(len(rows)):
        hidden, taps, state = run_batch(model, rows, [index])[index]
        assert torch.equal(together[index][0], hidden) and torch.equal(together[index][1], taps)
        assert_same_memory(together[index][2], state)


def test_a_tree_at_the_end_of_the_room_counts_its_longest_path(model: Target) -> None:
    """Thirty-two rows of height 2 fit where two tokens do; the same as with room to spare."""
    parents, ids = np.array(NAMED_TREES["wide star"], np.int64), draw_ids(model, 32, 4)
    states = [model.new_state(room) for room in (22, MAX_TOKENS)]
    for state in states:
        model.forward(draw_ids(model, 20, 1), state)
        state.commit(20)
    outs = [model.forward(ids, state, parents=parents).hidden for state in states]
    assert torch.equal(*outs)
    for state in states:
        state.commit(np.array([0, 31]))
    assert_same_memory(*states)
    with pytest.raises(RequestError, match="got 2 after 22 tokens, expected 1 to 0"):
        model.forward(ids, states[0], parents=parents)


WRONG_PARENTS: list[tuple[list[int], str]] = [
    ([0, 0, 1], "got 0 for row 0 of 3, expected -1"),
    ([-2, 0, 1], "got -2 for row 0"),
    ([-1, -1, 0], "got -1 for row 1 of 3, expected 0 to 0"),
    ([-1, 2, 1], "got 2 for row 1 of 3"),
    ([-1, 0, 2], "got 2 for row 2 of 3, expected 0 to 1"),
    ([-1, 0, 7], "got 7 for row 2"),
    ([-1, 0], r"got \(2,\) for 3 rows"),
    ([-1, 0, 1, 2], r"got \(4,\) for 3 rows"),
]
"""A root with a parent, missing parents, a cycle, a row of its own, parents out of range, too few, too many."""


@pytest.mark.parametrize(("parents", "message"), WRONG_PARENTS)
def test_parents_that_are_no_tree_are_refused_and_leave_the_state(
    model: Target, parents: list[int], message: str
) -> None:
    state = started(model, 5)
    with pytest.raises(EngineError, match=message):
        model.forward(draw_ids(model, 3, 2), state, parents=np.array(parents, np.int64))
    assert (state.num_tokens, state.num_pending) == (5, 0)
    with pytest.raises(EngineError, match="float64"):
        model.forward(draw_ids(model, 3, 2), state, parents=np.array([-1.0, 0, 0]))
    with pytest.raises(EngineError, match="decided"):
        state.open_rows(3, is_decided=True, parents=np.array([-1, 0, 1]))
    model.forward(draw_ids(model, 3, 2), state, parents=np.array([-1, 0, 0]))


@pytest.mark.parametrize(
    "rows", [[1], [0, 2, 1], [0, 0], [0, 1, 2], [0, 3], [0, 1, 4], [-1, 0], [0, -1], [0, 5], [0, 1, 99]]
)
def test_a_commit_of_what_is_no_path_is_refused_and_keeps_the_rows(model: Target, rows: list[int]) -> None:
    """Rows 1 and 2 are children of the root, 3 of 1, 4 of 2."""
    state = started(model, 5)
    model.forward(draw_ids(model, 5, 2), state, parents=np.array([-1, 0, 0, 1, 2]))
    for wrong in (np.array(rows, np.int64), np.array([0.0, 1.0])):
        with pytest.raises(EngineError, match=r"commit: got rows .* parents \[-1, 0, 0, 1, 2\]"):
            state.commit(wrong)
    with pytest.raises(EngineError, match="got 6 rows, expected 0 to 5"):
        state.commit(6)
    with pytest.raises(EngineError, match=r"commit: got rows \[0, 1, 2\]"):
        state.commit(3)
    assert state.num_pending == 5
    state.commit(np.array([0, 2, 4]))
    assert (state.num_tokens, state.num_pending) == (8, 0)


def test_a_chain_takes_row_numbers_too(model: Target) -> None:
    ids = draw_ids(model, 6, 2)
    states = [started(model, 5) for _ in range(2)]
    both: tuple[int, NDArray[np.int64]] = 4, np.arange(4)
    for state, kept in zip(states, both, strict=True):
        model.forward(ids, state)
        with pytest.raises(EngineError, match=r"got rows \[0, 2\] .* a chain"):
            state.commit(np.array([0, 2]))
        state.commit(kept)
    assert_same_memory(*states)
