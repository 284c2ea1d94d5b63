"""Attention of rows of a tree: bit for bit that of their root paths as chains, with every form of window and gate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments, batch_attention
from specpilot_kernels.row_tree import RowTree
from tests.kernels.test_chain_attention_forms import CAPACITY, DIM, FORMS, KV_HEADS, Case
from tests.strategies_trees import NAMED_TREES, paths_of, tree_parents

POSITIONS = (0, 5, 20, 63, 70, 128, 150)


@pytest.fixture(scope="module", params=sorted(FORMS))
def case(request: pytest.FixtureRequest) -> Case:
    return Case(FORMS[request.param])


def memory_of(case: Case, stale: float = 0) -> KvMemory:
    """The case's cache, behind it ``stale`` numbers."""
    memory = KvMemory(1, KV_HEADS, DIM, CAPACITY + 100)
    memory.reserve(CAPACITY + 100)
    memory.buffer[0, :, :, :CAPACITY], memory.buffer[0, :, :, CAPACITY:] = case.cache.numpy(), stale
    return memory


def run(
    case: Case, rows: Tensor, position: int, tree: RowTree | None, memory: KvMemory | None = None
) -> tuple[Tensor, KvMemory]:
    memory = memory_of(case) if memory is None else memory
    out = batch_attention(
        rows.numpy(),
        KvSegments([KvPart(memory, len(rows), position, tree)]),
        0,
        case.scales.numpy(),
        case.rotation.numpy(),
        case.form.eps,
        window=case.form.window,
    )
    return torch.from_numpy(out), memory


def check_tree(case: Case, parents: NDArray[np.int64], position: int) -> None:
    """Outputs, and the cache once a path is kept."""
    rows = case.rows(len(parents))
    out, memory = run(case, rows, position, RowTree(parents))
    for row, path in enumerate(paths_of(parents)):
        alone, chain = run(case, rows[path], position, None)
        assert torch.equal(out[row], alone[-1])
        kept = memory_of(case)
        kept.buffer[:] = memory.buffer
        kept.keep_path(position, path)
        end = position + len(path)
        assert np.array_equal(kept.buffer[:, :, :, :end], chain.buffer[:, :, :, :end])


@pytest.mark.parametrize("name", NAMED_TREES)
@pytest.mark.parametrize("position", POSITIONS)
def test_a_row_is_its_root_path_as_a_chain(case: Case, name: str, position: int) -> None:
    check_tree(case, np.array(NAMED_TREES[name], np.int64), position)


@settings(max_examples=30)
@given(parents=tree_parents(), position=st.integers(0, 150))
def test_any_tree_is_its_root_paths_as_chains(case: Case, parents: NDArray[np.int64], position: int) -> None:
    check_tree(case, parents, position)


def test_rows_off_the_path_are_not_read_and_other_positions_would_show(case: Case) -> None:
    """Rows that are no numbers spoil their descendants alone; run as a chain, siblings see each other."""
    parents = np.array(NAMED_TREES["subtrees by turns"], np.int64)
    rows = case.rows(len(parents))
    clean, _ = run(case, rows, 40, RowTree(parents))
    for broken in (1, 4, 17):
        spoiled = rows.clone()
        spoiled[broken] = torch.nan
        out, _ = run(case, spoiled, 40, RowTree(parents), memory_of(case, stale=np.nan))
        window = case.form.window or CAPACITY
        for row, path in enumerate(paths_of(parents)):
            if broken in path.tolist()[-window:]:
                assert out[row].isnan().all()
            else:
                assert torch.equal(out[row], clean[row])
    if case.form.window != 1:
        chain, _ = run(case, rows, 40, None)
        assert torch.equal(chain[:2], clean[:2])
        assert ((chain - clean).abs().amax(1) > 1e-3)[2:].all()


@pytest.mark.parametrize("threads", [1, 2])
def test_trees_and_chains_at_once_are_each_alone(
    case: Case, threads: int, kernel_threads: Callable[[int], None]
) -> None:
    kernel_threads(threads)
    trees = [RowTree(np.array(NAMED_TREES[name], np.int64)) for name in ("comb", "wide star", "full binary")]
    parts = [(trees[0], 30, 11), (None, 64, 9), (trees[1], 0, 32), (None, 3, 1), (trees[2], 120, 31)]
    rows = [case.rows(count) for *_, count in parts]
    for order in (range(5), range(4, -1, -1)):
        segments = KvSegments(
            [
                KvPart(memory_of(case), count, position, tree)
                for tree, position, count in (parts[i] for i in order)
            ]
        )
        tables = case.scales.numpy(), case.rotation.numpy(), case.form.eps
        together = torch.cat([rows[i] for i in order]).numpy()
        out = batch_attention(together, segments, 0, *tables, window=case.form.window)
        for got, i in zip(torch.from_numpy(out).split([len(rows[i]) for i in order]), order, strict=True):
            tree, position, _ = parts[i]
            assert torch.equal(got, run(case, rows[i], position, tree)[0])


def test_positions_count_the_height_and_a_wrong_tree_is_refused() -> None:
    """Thirty-two rows of height 2 end at the rotary table's last position but one."""
    case = Case(FORMS["Llama"])
    star = RowTree(np.array(NAMED_TREES["wide star"], np.int64))
    run(case, case.rows(32), CAPACITY - 2, star)
    with pytest.raises(ValueError, match=f"position {CAPACITY} .* expected positions below {CAPACITY}"):
        run(case, case.rows(32), CAPACITY - 1, star)
    with pytest.raises(ValueError, match="got a tree of 32 rows, expected 31"):
        KvSegments([KvPart(memory_of(case), 31, 0, star)])
