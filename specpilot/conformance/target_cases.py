"""Rows of a tree in the bundled target: along root paths, bit for bit the chain run one token at a time; commit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.conformance.bundled import bundled_engine, committed, prompts
from specpilot.conformance.case import Case, Deviation
from specpilot.refengine.state import SequenceState

__all__ = ["TREES", "cases", "paths_of"]

_Parents = NDArray[np.int64]
_RunRows = Callable[[SequenceState, Tensor, _Parents], Tensor]
_Commit = Callable[[SequenceState, NDArray[np.int64]], None]

TREES: dict[str, tuple[int, ...]] = {
    "root alone": (-1,),
    "chain": (-1, 0, 1, 2, 3, 4),
    "star": (-1, 0, 0, 0, 0),
    "two chains": (-1, 0, 0, 1, 2, 3, 4),
    "full binary": (-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5),
    "late branch": (-1, 0, 1, 2, 0, 4, 5, 3),
    "comb": (-1, 0, 0, 1, 1, 3, 3, 5, 5, 7),
}
"""Parents by name."""

_ROOM = 24
_BF16_ULP = 2.0**-8
"""Of a number of size 1."""

_NUM_TOKENS = 41
"""Committed tokens before the root."""


def cases() -> Iterator[Case[Any]]:
    """GDN path with attention under ancestor masks, and commit."""
    yield Case("GDN path", "sibling state leak", _check_rows, _run_rows, _run_as_chain)
    yield Case("GDN path", "stale conv window", _check_rows, _run_rows, _run_with_old_window)
    yield Case("GDN WY", "sibling state leak", _check_wy, _run_wy, _wy_as_chain)
    yield Case("GDN WY", "recurrent state of one token earlier", _check_wy, _run_wy, _wy_with_old_state)
    yield Case("commit", "recurrent state not replayed", _check_commit, _commit, _commit_without_state)
    yield Case("commit", "keys of the first rows kept", _check_commit, _commit, _commit_first_rows)


@torch.inference_mode()
def _run_rows(state: SequenceState, ids: Tensor, parents: _Parents) -> Tensor:
    """Hidden rows (N, H) of a tree, which stays pending."""
    state.open_rows(len(ids), parents=parents)
    return bundled_engine().target.forward_batch(ids, [state]).hidden


@torch.inference_mode()
def _run_wy(state: SequenceState, ids: Tensor, parents: _Parents) -> Tensor:
    """As :func:`run_rows`, Gated DeltaNet layers in the WY form."""
    state.open_rows(len(ids), parents=parents, gdn_form="wy")
    return bundled_engine().target.forward_batch(ids, [state]).hidden


def _commit(state: SequenceState, path: NDArray[np.int64]) -> None:
    state.commit(path)


def paths_of(parents: Sequence[int]) -> list[list[int]]:
    """Every node's rows from the root on."""
    paths: list[list[int]] = []
    for node, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), node])
    return paths


@lru_cache(1)
def _text() -> tuple[int, ...]:
    joined = [token for ids in prompts() for token in ids]
    return tuple(joined[:_NUM_TOKENS])


@lru_cache(2)
@torch.inference_mode()
def _committed(num_tokens: int) -> SequenceState:
    return committed(bundled_engine().target, _text()[:num_tokens], _NUM_TOKENS + _ROOM)


def _start() -> SequenceState:
    """A state of its own after the text."""
    return copy.deepcopy(_committed(_NUM_TOKENS))


def _draft_ids(num_nodes: int) -> Tensor:
    generator = torch.Generator().manual_seed(num_nodes)
    return torch.randint(bundled_engine().target.config.vocab_size, (num_nodes,), generator=generator)


@torch.inference_mode()
def _one_by_one(state: SequenceState, ids: Tensor) -> Tensor:
    """Hidden rows (T, H) of a chain, each run alone and committed."""
    rows = []
    for token in ids:
        rows.append(bundled_engine().target.forward(token[None], state).hidden[0])
        state.commit(1)
    return torch.stack(rows)


def _check_rows(run: _RunRows) -> int:
    count = 0
    for name, parents in TREES.items():
        ids = _draft_ids(len(parents))
        rows = run(_start(), ids, np.array(parents, np.int64))
        for node, path in enumerate(paths_of(parents)):
            expected = _one_by_one(_start(), ids[path])[-1]
            _same_bits(f"{name}, node {node}", rows[node], expected)
            count += 1
    return count


def _check_wy(run: _RunRows) -> int:
    """Within one unit in the last place of BF16 of the path run alone, at the row's root mean square, after all layers;
    and so are the rows behind a commit."""
    count = 0
    follow = _draft_ids(3)
    for name, parents in TREES.items():
        ids = _draft_ids(len(parents))
        for node, path in enumerate(paths_of(parents)):
            state, plain = _start(), _start()
            got = run(state, ids, np.array(parents, np.int64))[node]
            _near_bits(f"{name}, node {node}", got, _one_by_one(plain, ids[path])[-1])
            state.commit(np.array(path, np.int64))
            _near_bits(
                f"{name}, behind node {node}", _one_by_one(state, follow)[-1], _one_by_one(plain, follow)[-1]
            )
            count += 2
    return count


def _near_bits(where: str, got: Tensor, expected: Tensor) -> None:
    far = float((got - expected).abs().max() / expected.square().mean().sqrt())
    if not far <= _BF16_ULP:
        raise Deviation(
            f"{where}: got numbers {far:.3g} of the row's size away, expected at most {_BF16_ULP:.3g}"
        )


def _check_commit(commit_path: _Commit) -> int:
    """After a commit the next token is what it is after the path run alone, and so are all tokens behind it."""
    count = 0
    follow = _draft_ids(3)
    for name, parents in TREES.items():
        ids = _draft_ids(len(parents))
        for node, path in enumerate(paths_of(parents)):
            state, plain = _start(), _start()
            _run_rows(state, ids, np.array(parents, np.int64))
            commit_path(state, np.array(path, np.int64))
            _one_by_one(plain, ids[path])
            where = f"{name}, path to node {node}"
            if state.num_tokens != plain.num_tokens:
                raise Deviation(f"{where}: got {state.num_tokens} tokens, expected {plain.num_tokens}")
            got, expected = _one_by_one(state, follow), _one_by_one(plain, follow)
            _same_bits(f"{where}: the rows behind it", got, expected)
            count += 1
    return count


def _same_bits(where: str, got: Tensor, expected: Tensor) -> None:
    if not torch.equal(got, expected):
        far = float((got - expected).abs().max())
        raise Deviation(f"{where}: got numbers up to {far:.3g} away, expected the bits of the path run alone")


def _run_as_chain(state: SequenceState, ids: Tensor, parents: _Parents) -> Tensor:
    """Every row goes on from the row before it, whoever its parent is."""
    return _run_rows(state, ids, np.arange(-1, len(parents) - 1))


def _run_with_old_window(state: SequenceState, ids: Tensor, parents: _Parents) -> Tensor:
    """The convolution begins with the window of one token earlier."""
    assert state.gdn is not None
    before = _committed(_NUM_TOKENS - 1)
    assert before.gdn is not None
    state.gdn.window[...] = before.gdn.window
    return _run_rows(state, ids, parents)


def _commit_without_state(state: SequenceState, path: NDArray[np.int64]) -> None:
    assert state.gdn is not None
    recurrent = state.gdn.recurrent.copy()
    state.commit(path)
    state.gdn.recurrent[...] = recurrent


def _commit_first_rows(state: SequenceState, path: NDArray[np.int64]) -> None:
    """The recurrent state is the path's, keys and values those of as many first rows."""
    begin = state.num_tokens
    first = state.kv.buffer[:, :, :, begin : begin + len(path)].copy()
    state.commit(path)
    state.kv.buffer[:, :, :, begin : begin + len(path)] = first


def _wy_as_chain(state: SequenceState, ids: Tensor, parents: _Parents) -> Tensor:
    """Every row goes on from the row before it; the commit is that of the tree."""
    rows = _run_wy(state, ids, np.arange(-1, len(parents) - 1))
    state.commit(0)
    _run_wy(state, ids, parents)
    return rows


def _wy_with_old_state(state: SequenceState, ids: Tensor, parents: _Parents) -> Tensor:
    """The recurrence begins one token earlier."""
    assert state.gdn is not None
    before = _committed(_NUM_TOKENS - 1)
    assert before.gdn is not None
    state.gdn.recurrent[...] = before.gdn.recurrent
    return _run_wy(state, ids, parents)
