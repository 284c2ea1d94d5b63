"""Recorded verify steps in memory: ragged columns, one row a step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.draft.recording import RecordedTimes
from specpilot.draft.tree import DraftTree

__all__ = [
    "OWN_ROW",
    "ROW_OF_DEPTH",
    "UNKNOWN_ROW",
    "RecordedRequest",
    "RecordedStep",
    "StepColumns",
    "pack_edges",
]

OWN_ROW, ROW_OF_DEPTH, UNKNOWN_ROW = 0, 1, 2
"""Kinds of a row of edge scores: stored; equal bit for bit to the first row of its depth; not known, all of it minus
infinity."""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as its engine called it, and the drafter it drafted with."""

    request_id: str
    drafter: str


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """One verify step, as :class:`specpilot.draft.recording.StepRecorder` takes it."""

    request: RecordedRequest
    position: int
    root_id: int
    lattice: Lattice
    tree: DraftTree
    kept_tokens: tuple[int, ...]
    times: RecordedTimes


@dataclass(frozen=True, eq=False)
class StepColumns:
    """S steps. Columns of one value a step are (S,); the others hold all steps one after the other.

    Edge scores stay float32, as the drafter made them: a builder ranks paths by their sums, so that a rounded score
    could give another tree. What is saved is rows: a depth whose rows are equal has one, unknown rows have none.

    Attributes
    ----------
    request, position, root_id : int32, (S,)
        ``request`` is a place in the list of requests.
    depth, width, num_rows, num_nodes, num_kept : int32, (S,)
        D and K of the lattice, stored rows of edge scores, N of the tree, emitted tokens.
    are_logprobs : uint8, (S,)
        1 where the lattice's edge scores are log-probabilities as they stand.
    times_us : float32, (S, 3)
        Drafting, verification, whole step.
    candidate_ids : int32, (sum of D K,)
    row_kinds : uint8, (sum of D K,)
        ``OWN_ROW``, ``ROW_OF_DEPTH`` or ``UNKNOWN_ROW`` for every parent at every depth.
    edge_rows : float32, (sum of num_rows K,)
    tree_ids, tree_parents : int32, (sum of N,)
    tree_logprobs : float32, (sum of N,)
    kept_ids : int32, (sum of num_kept,)
    """

    request: NDArray[np.int32]
    position: NDArray[np.int32]
    root_id: NDArray[np.int32]
    depth: NDArray[np.int32]
    width: NDArray[np.int32]
    num_rows: NDArray[np.int32]
    num_nodes: NDArray[np.int32]
    num_kept: NDArray[np.int32]
    are_logprobs: NDArray[np.uint8]
    times_us: NDArray[np.float32]
    candidate_ids: NDArray[np.int32]
    row_kinds: NDArray[np.uint8]
    edge_rows: NDArray[np.float32]
    tree_ids: NDArray[np.int32]
    tree_parents: NDArray[np.int32]
    tree_logprobs: NDArray[np.float32]
    kept_ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.request)

    @classmethod
    def of(cls, steps: Sequence[RecordedStep], requests: Sequence[RecordedRequest]) -> StepColumns:
        """Columns of steps, all of whose requests stand in ``requests``."""
        place = {request: index for index, request in enumerate(requests)}
        packed = [pack_edges(step.lattice) for step in steps]

        def ints(values: Sequence[int]) -> NDArray[np.int32]:
            return np.array(values, np.int32)

        def joined(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int32]:
            return np.concatenate([np.empty(0, np.int32), *(array.ravel() for array in arrays)]).astype(
                np.int32
            )

        times = [(step.times.draft_us, step.times.verify_us, step.times.total_us) for step in steps]
        return cls(
            request=ints([place[step.request] for step in steps]),
            position=ints([step.position for step in steps]),
            root_id=ints([step.root_id for step in steps]),
            depth=ints([step.lattice.depth for step in steps]),
            width=ints([step.lattice.width for step in steps]),
            num_rows=ints([len(rows) for _, rows in packed]),
            num_nodes=ints([step.tree.num_nodes for step in steps]),
            num_kept=ints([len(step.kept_tokens) for step in steps]),
            are_logprobs=np.array([step.lattice.are_logprobs for step in steps], np.uint8),
            times_us=np.array(times, np.float32).reshape(len(steps), 3),
            candidate_ids=joined([step.lattice.candidate_ids.numpy() for step in steps]),
            row_kinds=np.concatenate([np.empty(0, np.uint8), *(kinds.ravel() for kinds, _ in packed)]),
            edge_rows=np.concatenate([np.empty(0, np.float32), *(rows.ravel() for _, rows in packed)]),
            tree_ids=joined([step.tree.token_ids for step in steps]),
            tree_parents=joined([step.tree.parents for step in steps]),
            tree_logprobs=np.concatenate([np.empty(0, np.float32), *(step.tree.logprobs for step in steps)]),
            kept_ids=joined([np.array(step.kept_tokens, np.int64) for step in steps]),
        )

    def sizes(self) -> dict[str, int]:
        """Entries that every column must have, by its name."""
        num_candidates = int((self.depth.astype(np.int64) * self.width).sum())
        num_nodes = int(self.num_nodes.sum(dtype=np.int64))
        by_name = dict.fromkeys((field.name for field in fields(self)), len(self))
        return by_name | {
            "times_us": 3 * len(self),
            "candidate_ids": num_candidates,
            "row_kinds": num_candidates,
            "edge_rows": int((self.num_rows.astype(np.int64) * self.width).sum()),
            "tree_ids": num_nodes,
            "tree_parents": num_nodes,
            "tree_logprobs": num_nodes,
            "kept_ids": int(self.num_kept.sum(dtype=np.int64)),
        }

    def lattices(self) -> list[Lattice]:
        """The lattices, with the bits they had."""
        candidates = _starts(self.depth.astype(np.int64) * self.width)
        rows = _starts(self.num_rows.astype(np.int64) * self.width)
        shapes = zip(self.depth.tolist(), self.width.tolist(), strict=True)
        lattices = []
        for index, shape in enumerate(shapes):
            part = slice(candidates[index], candidates[index + 1])
            kinds = self.row_kinds[part].reshape(shape)
            own = self.edge_rows[rows[index] : rows[index + 1]].reshape(-1, shape[1])
            ids = torch.from_numpy(self.candidate_ids[part].reshape(shape).astype(np.int64))
            lattices.append(
                Lattice(ids, torch.from_numpy(_unpack_edges(kinds, own)), bool(self.are_logprobs[index]))
            )
        return lattices

    def trees(self) -> list[DraftTree]:
        """The trees that were verified live."""
        starts = _starts(self.num_nodes)
        return [
            DraftTree(
                self.tree_ids[a:b].astype(np.int64),
                self.tree_parents[a:b].astype(np.int64),
                self.tree_logprobs[a:b],
            )
            for a, b in itertools.pairwise(starts.tolist())
        ]

    def kept(self) -> list[NDArray[np.int32]]:
        """The tokens each step emitted."""
        return np.split(self.kept_ids, _starts(self.num_kept)[1:-1]) if len(self) else []


def pack_edges(lattice: Lattice) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """(row kinds (D, K), stored rows (R, K)) of a lattice's edge scores."""
    scores = np.ascontiguousarray(lattice.edge_scores.numpy())
    bits = scores.view(np.int32)
    kinds = np.full(scores.shape[:2], OWN_ROW, np.uint8)
    kinds[(bits == bits[:, :1]).all(-1)] = ROW_OF_DEPTH
    kinds[:, :1] = OWN_ROW
    kinds[(scores == -np.inf).all(-1)] = UNKNOWN_ROW
    # Only row 0 of depth 0 has a meaning.
    kinds[:1, 1:] = ROW_OF_DEPTH
    return kinds, scores[kinds == OWN_ROW]


def _unpack_edges(kinds: NDArray[np.uint8], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    depth, width = kinds.shape
    is_own = kinds == OWN_ROW
    row_of = np.cumsum(is_own.ravel()).reshape(depth, width) - 1
    row_of = np.where(kinds == ROW_OF_DEPTH, row_of[:, :1], row_of)
    is_unknown = kinds == UNKNOWN_ROW
    is_unknown |= (kinds == ROW_OF_DEPTH) & is_unknown[:, :1]
    if not len(rows):
        return np.full((depth, width, width), -np.inf, np.float32)
    scores = rows[np.where(is_unknown, 0, row_of)]
    scores[is_unknown] = -np.inf
    return scores


def _starts(counts: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
