"""Trees in the target: the WY form beside the path form, what is refused, and faults that comparisons must catch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specpilot.errors import EngineError
from specpilot.refengine.dense import load_dense
from specpilot.refengine.model import TargetModel
from specpilot.refengine.state import SequenceState
from tests.specpilot.refengine.random_dense import save_random
from tests.specpilot.refengine.random_target import SMALL, UNTIED, random_tensors
from tests.specpilot.refengine.test_tree_rows import assert_same_memory, check_tree, draw_ids, started
from tests.strategies_trees import NAMED_TREES, paths_of

LOGIT_TOLERANCE = 1e-4
"""Largest difference of logits between the forms, for logits of up to 10."""


@pytest.fixture(scope="module", params=["tied", "untied"])
def model(request: pytest.FixtureRequest) -> TargetModel:
    config = SMALL if request.param == "tied" else UNTIED
    return TargetModel(config, random_tensors(config), "serve")


@pytest.mark.parametrize("name", NAMED_TREES)
def test_the_wy_form_gives_logits_within_rounding_and_so_does_what_it_commits(
    model: TargetModel, name: str
) -> None:
    parents = np.array(NAMED_TREES[name], np.int64)
    ids, path = draw_ids(model, len(parents), 2), paths_of(parents)[-1]
    wy, exact = started(model, 40), started(model, 40)
    logits = [
        model.logits(model.forward(ids, wy, parents=parents, gdn_form="wy").hidden),
        model.logits(model.forward(ids, exact, parents=parents).hidden),
    ]
    assert (logits[0] - logits[1]).abs().max() <= LOGIT_TOLERANCE
    for state in (wy, exact):
        state.commit(path)
    after = [model.logits(model.forward(draw_ids(model, 5, 3), state).hidden) for state in (wy, exact)]
    assert (after[0] - after[1]).abs().max() <= LOGIT_TOLERANCE


def test_a_chain_in_the_wy_form_commits_any_prefix(model: TargetModel) -> None:
    ids = draw_ids(model, 9, 2)
    for num_kept in (0, 4, 9):
        chain, tree = started(model, 20), started(model, 20)
        outs = [
            model.forward(ids, state, parents=parents, gdn_form="wy").hidden
            for state, parents in ((chain, None), (tree, np.arange(-1, 8)))
        ]
        assert torch.equal(*outs)
        chain.commit(num_kept)
        tree.commit(np.arange(num_kept))
        assert_same_memory(chain, tree)


def test_the_form_is_of_one_step(model: TargetModel) -> None:
    """Rows after a step in the WY form run in the path form again: bit for bit those of the same state plainly."""
    state = started(model, 20)
    model.forward(draw_ids(model, 6, 2), state, gdn_form="wy")
    state.commit(0)
    ids = draw_ids(model, 6, 3)
    assert torch.equal(model.forward(ids, state).hidden, model.forward(ids, started(model, 20)).hidden)


def test_the_wy_form_is_refused_where_it_has_no_meaning(
    model: TargetModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = started(model, 5)
    with pytest.raises(EngineError, match="got 'wy', decided: True"):
        state.open_rows(3, is_decided=True, gdn_form="wy")
    with pytest.raises(EngineError, match="got 'snapshots'"):
        state.open_rows(3, gdn_form="snapshots")  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("target")
    save_random(folder, "llama")
    dense = load_dense(folder, mode="serve")
    dense_state = dense.new_state(20)
    with pytest.raises(EngineError, match="Gated DeltaNet layers: False"):
        dense.forward(draw_ids(dense, 3, 1), dense_state, gdn_form="wy")
    assert state.num_pending == dense_state.num_pending == 0


def test_a_tree_holds_no_more_memory_than_its_rows_as_a_chain(model: TargetModel) -> None:
    """No state is kept for any row of it."""
    parents = np.array(NAMED_TREES["full binary"], np.int64)
    ids, sizes = draw_ids(model, 31, 2), []
    for shape in (None, parents):
        state = started(model, 100)
        model.forward(ids, state, parents=shape)
        sizes.append(state.memory_bytes)
    assert sizes[0] == sizes[1]


class LeakyModel(TargetModel):
    """Row 2, a child of the root, goes on from its sibling, row 1."""

    def forward(self, *args, parents: NDArray[np.int64] | None = None, **options):
        if parents is not None and len(parents) > 2:
            parents = parents.copy()
            parents[2] = 1
        return super().forward(*args, parents=parents, **options)


class StaleWindow(TargetModel):
    """A commit leaves the convolution window that was there before."""

    def new_state(self, max_tokens: int) -> SequenceState:
        state = super().new_state(max_tokens)
        gdn, close = state.gdn, state.close_rows
        assert gdn is not None
        windows: list[NDArray[np.float32]] = []

        def rebuilt(path: NDArray[np.int64]) -> bool:
            windows.append(gdn.window.copy())
            return SequenceState.is_rebuilt(state, path)

        def close_rows(path: NDArray[np.int64]) -> None:
            if len(path) > 1 and path[-1] != len(path) - 1:  # of a tree
                gdn.window[:] = windows[-1]
            close(path)

        state.is_rebuilt, state.close_rows = rebuilt, close_rows  # type: ignore[method-assign]
        return state


class MisplacedKeys(TargetModel):
    """A commit leaves keys and values where the tree had them."""

    def new_state(self, max_tokens: int) -> SequenceState:
        state = super().new_state(max_tokens)
        state.kv.keep_path = lambda position, rows: None  # type: ignore[method-assign]
        return state


@pytest.mark.parametrize("faulty", [LeakyModel, StaleWindow, MisplacedKeys])
def test_faults_are_caught(faulty: type[TargetModel]) -> None:
    """The check of every row and every commit is passed by the target and failed by one with a fault."""
    parents = np.array(NAMED_TREES["comb"], np.int64)
    check_tree(TargetModel(SMALL, random_tensors(SMALL), "judge"), parents, 20)
    with pytest.raises(AssertionError):
        check_tree(faulty(SMALL, random_tensors(SMALL), "judge"), parents, 20)
