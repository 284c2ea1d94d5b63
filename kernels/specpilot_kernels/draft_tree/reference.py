"""What :mod:`specpilot_kernels.draft_tree` computes, slow and obvious.

A node is a tuple ``(-logprob, depth, token, request, key of its parent)``: sorting these tuples is the order of all
nodes. A parent never stands behind its child, for a log-probability never rises and the depth does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["beam_tree_reference", "best_nodes_reference", "check_tree_reference", "edge_logprobs_reference"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]
_Tree = tuple[_Ids, _Ids, _Array]


def edge_logprobs_reference(row: Sequence[float], are_logprobs: bool) -> list[float]:
    """A row of edge scores as log-probabilities; minus infinity throughout where nothing is known."""
    highest = max(row)
    if highest == -math.inf or are_logprobs:
        return [min(score, 0.0) for score in row]
    total = 0.0
    for score in row:
        total += math.exp(score - highest)
    normalizer = highest + math.log(total)
    return [score - normalizer for score in row]


class _Node:
    def __init__(self, key: tuple[Any, ...], column: int, parent: _Node | None) -> None:
        self.key, self.column, self.parent = key, column, parent

    @property
    def logprob(self) -> float:
        return -float(self.key[0])

    @property
    def depth(self) -> int:
        return int(self.key[1])

    @property
    def token(self) -> int:
        return int(self.key[2])

    def children(self, ids: _Ids, edges: _Array, are_logprobs: bool, most: int) -> list[_Node]:
        if self.depth == len(ids):
            return []
        row = edge_logprobs_reference(edges[self.depth, self.column].tolist(), are_logprobs)
        nodes = []
        for column, (token, logprob) in enumerate(zip(ids[self.depth].tolist(), row, strict=True)):
            key = (-(self.logprob + logprob), self.depth + 1, token, self.key[3], self.key)
            if logprob > -math.inf:
                nodes.append(_Node(key, column, self))
        return sorted(nodes, key=lambda node: node.key)[:most]


def best_nodes_reference(
    ids: Sequence[_Ids],
    edges: Sequence[_Array],
    are_logprobs: Sequence[bool],
    root_ids: Sequence[int],
    num_nodes: int,
    max_children: int,
) -> list[_Tree]:
    """Again and again the first of all nodes whose parent has been taken."""
    frontier = [_Node((0.0, 0, token, request, ()), 0, None) for request, token in enumerate(root_ids)]
    taken: list[_Node] = []
    while frontier and len(taken) < num_nodes:
        node = min(frontier, key=lambda one: one.key)
        frontier.remove(node)
        taken.append(node)
        request = int(node.key[3])
        frontier += node.children(ids[request], edges[request], are_logprobs[request], max_children)
    return [_tree([node for node in taken if node.key[3] == request]) for request in range(len(root_ids))]


def beam_tree_reference(
    ids: _Ids, edges: _Array, are_logprobs: bool, root_id: int, num_nodes: int, beam_width: int
) -> _Tree:
    """Children of the best nodes of every depth, and of all of them the best."""
    root = _Node((0.0, 0, root_id, 0, ()), 0, None)
    layer, found = [root], [root]
    for _ in range(len(ids)):
        grown = [child for node in layer for child in node.children(ids, edges, are_logprobs, beam_width)]
        found += grown
        layer = sorted(grown, key=lambda node: node.key)[:beam_width]
    return _tree(sorted(found, key=lambda node: node.key)[:num_nodes])


def _tree(nodes: list[_Node]) -> _Tree:
    parents = [-1 if node.parent is None else nodes.index(node.parent) for node in nodes]
    tokens, logprobs = [node.token for node in nodes], [node.logprob for node in nodes]
    return np.array(tokens, np.int64), np.array(parents, np.int64), np.array(logprobs, np.float32)


def check_tree_reference(token_ids: _Ids, parents: _Ids, logprobs: _Array) -> _Ids | None:
    """Depths of a tree, or None where something is wrong with it."""
    depths: list[int] = []
    edges: set[tuple[int, int]] = set()
    for node, (token, parent) in enumerate(zip(token_ids.tolist(), parents.tolist(), strict=True)):
        if not node:
            if parent != -1 or math.isnan(logprobs[0]):
                return None
            depths.append(0)
            continue
        if not 0 <= parent < node or (parent, token) in edges or not logprobs[node] <= logprobs[parent]:
            return None
        edges.add((parent, token))
        depths.append(depths[parent] + 1)
    return np.array(depths, np.int64)
