"""Rows of a tree through Gated DeltaNet: the path form bit for bit a chain's, the WY form within rounding, commits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.gdn_rows import GdnForm, GdnMemory, GdnPart, GdnSegments, gdn_commit, gdn_rows
from specpilot_kernels.gdn_rows.reference import gdn_tree_reference, gdn_wy_reference
from specpilot_kernels.row_tree import RowTree
from tests.kernels.test_gdn_rows import LAYER, NUM_LAYERS, SHAPES, Case, assert_same_memory, make
from tests.oracles.gdn_snapshots import run_by_snapshots
from tests.strategies_trees import NAMED_TREES, paths_of, tree_parents

FORMS: tuple[GdnForm, ...] = ("path", "wy")
WY_TOLERANCE = 2e-5
"""Largest difference between the forms, in outputs and in states, for outputs of mean square 0.3 to 0.5."""


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return make(request.param)


def run_tree(
    case: Case,
    rows: Tensor,
    parents: Sequence[int] | NDArray[np.int64],
    form: GdnForm = "path",
    kept: Sequence[int] | NDArray[np.int64] | None = None,
) -> tuple[Tensor, GdnMemory]:
    """Outputs of one layer, and the memory after a commit of ``kept``."""
    memory = case.copy()
    memory.make_room(len(rows))
    memory.pending.fill(np.nan)
    tree = RowTree(np.array(parents, np.int64))
    segments = GdnSegments([GdnPart(memory, len(rows), False, tree, form)])
    out = gdn_rows(rows.numpy(), segments, LAYER, case.weights)
    assert_same_memory(memory, case.memory)
    if kept is not None:
        gdn_commit(segments, [np.array(kept, np.int64)])
        for layer in set(range(NUM_LAYERS)) - {LAYER}:  # they ran no rows
            memory.recurrent[layer], memory.window[layer] = (
                case.memory.recurrent[layer],
                case.memory.window[layer],
            )
    return torch.from_numpy(out), memory


def check_path_form(case: Case, parents: NDArray[np.int64]) -> None:
    rows = case.rows(len(parents))
    out, _ = run_tree(case, rows, parents)
    for row, path in enumerate(paths_of(parents)):
        alone, memory = case.run(rows[path])
        assert torch.equal(out[row], alone[-1])
        assert_same_memory(run_tree(case, rows, parents, kept=path)[1], memory)


@pytest.mark.parametrize("name", NAMED_TREES)
def test_a_row_is_its_root_path_as_a_chain_and_a_commit_leaves_that_path(case: Case, name: str) -> None:
    check_path_form(case, np.array(NAMED_TREES[name], np.int64))


@settings(max_examples=30)
@given(parents=tree_parents())
def test_any_tree_is_its_root_paths_as_chains(case: Case, parents: NDArray[np.int64]) -> None:
    check_path_form(case, parents)


@pytest.mark.parametrize("num_kept", [0, 1, 5, 9])
def test_a_chain_told_as_a_tree_has_a_chains_bits(case: Case, num_kept: int) -> None:
    rows = case.rows(9)
    out, memory = run_tree(case, rows, range(-1, 8), kept=range(num_kept))
    chain_out, chain_memory = case.run(rows, num_kept=num_kept)
    assert torch.equal(out, chain_out)
    assert_same_memory(memory, chain_memory)


@settings(max_examples=100)
@given(parents=tree_parents(64))
def test_a_walk_visits_every_row_once_and_holds_few_slots(parents: NDArray[np.int64]) -> None:
    """A row finds its parent's state in the slot it reads, and slots are at most 1 + log2(rows)."""
    tree, slots, seen = RowTree(parents), {0: -1}, []
    for node, source, target, carries in tree.table[:, 2:].tolist():
        assert slots[source] == parents[node]
        seen.append(node)
        if target >= 0:
            slots[target] = node
        if carries:
            following = int(tree.table[len(seen), 2])
            assert parents[following] == (node if target >= 0 else parents[node])
        assert (target < 0) == (node not in parents)
    assert sorted(seen) == list(range(len(parents)))
    assert tree.num_slots <= 1 + math.log2(len(parents))


@pytest.mark.parametrize("name", NAMED_TREES)
def test_the_wy_form_is_the_path_form_within_rounding(case: Case, name: str) -> None:
    parents = np.array(NAMED_TREES[name], np.int64)
    rows, path = case.rows(len(parents)), paths_of(parents)[-1]
    (out, memory), (exact, exact_memory) = (
        run_tree(case, rows, parents, form, kept=path) for form in ("wy", "path")
    )
    assert (out - exact).abs().max() <= WY_TOLERANCE
    assert np.abs(memory.recurrent - exact_memory.recurrent).max() <= WY_TOLERANCE
    assert np.array_equal(memory.window, exact_memory.window)


@pytest.mark.parametrize("name", NAMED_TREES)
def test_the_wy_form_errs_at_most_twice_as_much_as_torch(case: Case, name: str) -> None:
    """Root mean square against float64, over at least 32 rows, of outputs and of what rows write."""
    parents = NAMED_TREES[name]
    errors = torch.zeros(2, dtype=torch.float64)
    for seed in range(1 + 32 // len(parents)):
        rows = case.rows(len(parents), seed)
        truth = reference(case, rows, parents, torch.float64)
        for number, out in enumerate(
            (run_tree(case, rows, parents, "wy")[0], reference(case, rows, parents, torch.float32))
        ):
            errors[number] += (out - truth).square().sum()
    assert errors[0] <= 2**2 * errors[1]


def reference(case: Case, rows: Tensor, parents: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The WY form in torch; in float64 the paths one by one give the same."""
    weights, memory = case.weights, case.memory

    def run(form: Callable[..., Any]) -> Any:
        return form(
            rows.to(dtype),
            torch.from_numpy(memory.window[LAYER]).to(dtype),
            torch.from_numpy(memory.recurrent[LAYER]).to(dtype),
            weights.taps.to(dtype),
            weights.rate.to(dtype),
            weights.dt_bias.to(dtype),
            weights.norm_weight.to(dtype),
            parents,
            num_groups=weights.num_groups,
            unit_eps=weights.unit_eps,
            norm_eps=weights.norm_eps,
        )

    out: Tensor = run(gdn_wy_reference)[0]
    if dtype is torch.float64:
        torch.testing.assert_close(out, run(gdn_tree_reference), rtol=1e-10, atol=1e-10)
    return out


@settings(max_examples=30)
@given(parents=tree_parents())
def test_a_row_in_the_wy_form_depends_on_its_root_path_alone(case: Case, parents: NDArray[np.int64]) -> None:
    rows = case.rows(len(parents))
    out, _ = run_tree(case, rows, parents, "wy")
    for row, path in enumerate(paths_of(parents)):
        alone, memory = run_tree(case, rows[path], range(-1, len(path) - 1), "wy", kept=range(len(path)))
        assert torch.equal(out[row], alone[-1])
        assert_same_memory(run_tree(case, rows, parents, "wy", kept=path)[1], memory)


def check_against_snapshots(
    case: Case,
    form: GdnForm,
    state_from: Sequence[int] | None = None,
    window_from: Sequence[int] | None = None,
) -> None:
    parents = NAMED_TREES["subtrees by turns"]
    rows = case.rows(len(parents))
    out, states, windows = run_by_snapshots(
        rows, case.memory, LAYER, case.weights, parents, state_from=state_from, window_from=window_from
    )
    got, _ = run_tree(case, rows, parents, form)
    torch.testing.assert_close(got.double(), out, rtol=0, atol=WY_TOLERANCE)
    for row, path in enumerate(paths_of(np.array(parents))):
        _, memory = run_tree(case, rows, parents, form, kept=path)
        recurrent, window = (torch.from_numpy(x[LAYER]).double() for x in (memory.recurrent, memory.window))
        torch.testing.assert_close(recurrent, states[row], rtol=0, atol=WY_TOLERANCE)
        torch.testing.assert_close(window, windows[row], rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_are_what_snapshots_give(case: Case, form: GdnForm) -> None:
    check_against_snapshots(case, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_siblings_state_and_a_stale_window_would_show(case: Case, form: GdnForm) -> None:
    """Row 2 is a child of the root: once with the state that its sibling left, once with its sibling's inputs."""
    leaky = list(NAMED_TREES["subtrees by turns"])
    leaky[2] = 1
    check_against_snapshots(case, form)
    with pytest.raises(AssertionError):
        check_against_snapshots(case, form, state_from=leaky)
    with pytest.raises(AssertionError):
        check_against_snapshots(case, form, window_from=leaky)


@pytest.mark.parametrize("form", FORMS)
def test_a_broken_row_spoils_only_itself_and_its_descendants(case: Case, form: GdnForm) -> None:
    parents = NAMED_TREES["subtrees by turns"]
    rows = case.rows(len(parents))
    clean, _ = run_tree(case, rows, parents, form)
    for broken in range(len(parents)):
        spoiled = rows.clone()
        spoiled[broken] = torch.nan
        out, _ = run_tree(case, spoiled, parents, form)
        for row, path in enumerate(paths_of(np.array(parents))):
            assert out[row].isnan().all() if broken in path else torch.equal(out[row], clean[row])


@pytest.mark.parametrize("form", FORMS)
def test_strong_decay_and_large_gates_stay_finite(form: GdnForm) -> None:
    """Decays of e^-4500 and of 1 by turns: their quotients along a path would be 0 / 0."""
    case = make(SHAPES[0])
    parents = NAMED_TREES["two chains"]
    rows = case.rows(len(parents))
    rows[::2, -4:] = torch.tensor([90.0, -90.0, 90.0, 90.0])
    rows[1::2, -4:] = torch.tensor([90.0, 90.0, -90.0, -90.0])
    strong = Case(replace(case.weights, rate=torch.tensor([-50.0, -50.0])), case.memory)
    out, memory = run_tree(strong, rows, parents, form, kept=paths_of(np.array(parents))[-1])
    assert out.isfinite().all() and np.isfinite(memory.recurrent).all()
    torch.testing.assert_close(out, run_tree(strong, rows, parents)[0], rtol=0, atol=WY_TOLERANCE)


@pytest.mark.parametrize("threads", [1, 2])
def test_trees_chains_and_decided_rows_at_once_are_each_alone(
    case: Case, threads: int, kernel_threads: Callable[[int], None]
) -> None:
    kernel_threads(threads)
    parents = [np.array(NAMED_TREES[name], np.int64) for name in ("comb", "wide star", "two chains")]
    chain = np.arange(-1, 6)
    parts: list[tuple[NDArray[np.int64], GdnForm | None, bool]] = [
        (parents[0], "path", False),
        (chain, None, False),
        (parents[1], "wy", False),
        (chain, None, True),
        (parents[2], "wy", False),
        (parents[2], "path", False),
    ]
    states = [Case(case.weights, make(case.shape, seed).memory) for seed in range(len(parts))]
    rows = [case.rows(len(shape), seed) for seed, (shape, _, _) in enumerate(parts)]
    for order in (range(6), range(5, -1, -1)):
        segments = GdnSegments([part_of(states[i].copy(), *parts[i]) for i in order])
        out = torch.from_numpy(
            gdn_rows(torch.cat([rows[i] for i in order]).numpy(), segments, LAYER, case.weights)
        )
        paths = [np.arange(7) if parts[i][1] is None else paths_of(parts[i][0])[-1] for i in order]
        gdn_commit(segments, list(paths))
        for i, got, path, part in zip(
            order, out.split([len(rows[i]) for i in order]), paths, segments.parts, strict=True
        ):
            own = GdnSegments([part_of(states[i].copy(), *parts[i])])
            assert torch.equal(got, torch.from_numpy(gdn_rows(rows[i].numpy(), own, LAYER, case.weights)))
            gdn_commit(own, [path])
            assert np.array_equal(part.memory.recurrent[LAYER], own.parts[0].memory.recurrent[LAYER])
            assert np.array_equal(part.memory.window[LAYER], own.parts[0].memory.window[LAYER])


def part_of(memory: GdnMemory, parents: NDArray[np.int64], form: GdnForm | None, is_decided: bool) -> GdnPart:
    """A chain where there is no form."""
    memory.make_room(len(parents))
    if form is None:
        return GdnPart(memory, len(parents), is_decided)
    return GdnPart(memory, len(parents), is_decided, RowTree(parents), form)


def test_wrong_trees_forms_and_paths_are_refused() -> None:
    case = make(SHAPES[0])
    memory, tree = case.copy(), RowTree(np.array([-1, 0, 0]))
    memory.make_room(4)
    for part, message in (
        (GdnPart(memory, 4, False, tree), "got a tree of 3 rows for 4"),
        (GdnPart(memory, 3, True, tree), "decided: True"),
        (GdnPart(memory, 3, False, None, "wy"), "got form 'wy', a tree: False"),
        (GdnPart(memory, 3, False, tree, "snapshots"), "got form 'snapshots'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=message):
            GdnSegments([part])
    segments = GdnSegments([GdnPart(memory, 3, False, tree)])
    for kept in ([1], [0, 1, 2], [0, 0], [0, 3], [-1]):
        with pytest.raises(ValueError, match="expected int64 numbers from 0, the root"):
            gdn_commit(segments, [np.array(kept)])
    with pytest.raises(ValueError, match="got rows"):
        gdn_commit(segments, [3])
    wrong: list[tuple[Any, str]] = [
        (np.array([0, 0]), "got 0 for row 0 of 2, expected -1, the root's"),
        (np.array([-1, 1]), "got 1 for row 1 of 2, expected 0 to 0"),
        (np.array([-1, 0, 2, 1]), "got 2 for row 2"),
        (np.array([-1, -1]), "got -1 for row 1"),
        (np.empty(0, np.int64), "at least one row"),
        (np.array([-1, 0], np.int32), "int32"),
        (np.array([[-1, 0]]), r"got \(1, 2\)"),
    ]
    for parents, message in wrong:
        with pytest.raises(ValueError, match=message):
            RowTree(parents)
