"""Trees on the CPU. Importing this module compiles them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.draft_tree.cpu_order import first_flaw, sorted_children

__all__ = ["beam", "check", "grow"]


class _Nodes(NamedTuple):
    """Arrays of ``grow``, a row a node in the order of taking."""

    sums: Any  # log-probabilities of its children, sorted
    columns: Any  # the children's columns in the lattice
    counts: Any  # how many children there are
    taken: Any  # how many of them have become nodes
    depths: Any
    owners: Any  # the request
    places: Any  # number within the request
    rows_at: Any  # where the children's tokens begin in ``ids``
    ids: Any


@inlined
def _comes_first(a: int, b: int, nodes: Any) -> Any:
    """Whether the next child of node ``a`` stands before the next child of node ``b``."""
    left, right = nodes.sums[a, nodes.taken[a]], nodes.sums[b, nodes.taken[b]]
    if left != right:
        return left > right
    if nodes.depths[a] != nodes.depths[b]:
        return nodes.depths[a] < nodes.depths[b]
    left_token = nodes.ids[nodes.rows_at[a] + nodes.columns[a, nodes.taken[a]]]
    right_token = nodes.ids[nodes.rows_at[b] + nodes.columns[b, nodes.taken[b]]]
    if left_token != right_token:
        return left_token < right_token
    if nodes.owners[a] != nodes.owners[b]:
        return nodes.owners[a] < nodes.owners[b]
    return nodes.places[a] < nodes.places[b]


@inlined
def _push(heap: Any, size: int, node: int, nodes: Any) -> None:
    at = size
    while at > 0 and _comes_first(node, heap[(at - 1) // 2], nodes):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = node


@inlined
def _sink_first(heap: Any, size: int, nodes: Any) -> None:
    """The first entry has got worse: put it where it belongs."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _comes_first(heap[child + 1], heap[child], nodes):
            child += 1
        if not _comes_first(heap[child], heap[at], nodes):
            break
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@kernel("i8(i8[::1], f4[::1], i8[:,::1], i8[::1], i8, i8, i8[::1], i8[::1], i8[::1], f4[::1])")
def grow(
    ids: Any,
    edges: Any,
    shapes: Any,
    root_ids: Any,
    budget: int,
    max_children: int,
    owners: Any,
    tokens: Any,
    parents: Any,
    logprobs: Any,
) -> Any:
    """One heap over all requests; a node waits in it for its next child.

    ``shapes`` has (D, K, are_logprobs) of each request, whose candidates and edges lie one after another. Nodes are
    written in the order they are taken, parents as numbers within the request. Returns the number of nodes, or
    -1 - i for a flaw at edge i of all.
    """
    num_requests = root_ids.shape[0]
    ids_at, edges_at = np.zeros(num_requests + 1, np.int64), np.zeros(num_requests + 1, np.int64)
    widest = 1
    for r in range(num_requests):
        depth, width = shapes[r, 0], shapes[r, 1]
        ids_at[r + 1], edges_at[r + 1] = ids_at[r] + depth * width, edges_at[r] + depth * width * width
        flaw = first_flaw(edges[edges_at[r] : edges_at[r + 1]], width, shapes[r, 2] != 0)
        if flaw >= 0:
            return -1 - (edges_at[r] + flaw)
        widest = max(widest, min(width, max_children))
    nodes = _Nodes(
        np.empty((budget, widest)),
        np.empty((budget, widest), np.int64),
        np.zeros(budget, np.int64),
        np.zeros(budget, np.int64),
        np.zeros(budget, np.int64),
        owners,
        np.zeros(budget, np.int64),
        np.zeros(budget, np.int64),
        ids,
    )
    column_of, sizes = np.zeros(budget, np.int64), np.ones(num_requests, np.int64)
    heap, heap_size, path = np.empty(budget, np.int64), 0, 0.0
    for node in range(budget):
        # Nothing comes before a root.
        if node < num_requests:
            owner = node
            owners[node], tokens[node], parents[node], logprobs[node] = owner, root_ids[node], -1, 0
        elif heap_size == 0:
            return node
        else:
            above = heap[0]
            at = nodes.taken[above]
            path, column, owner = nodes.sums[above, at], nodes.columns[above, at], owners[above]
            owners[node], parents[node], logprobs[node] = owner, nodes.places[above], path
            tokens[node] = ids[nodes.rows_at[above] + column]
            nodes.depths[node], column_of[node] = nodes.depths[above] + 1, column
            nodes.places[node] = sizes[owner]
            sizes[owner] += 1
            nodes.taken[above] += 1
            if nodes.taken[above] == nodes.counts[above]:
                heap_size -= 1
                heap[0] = heap[heap_size]
            _sink_first(heap, heap_size, nodes)
        depth, width = nodes.depths[node], shapes[owner, 1]
        if depth == shapes[owner, 0]:
            continue
        nodes.rows_at[node] = ids_at[owner] + depth * width
        edge_at = edges_at[owner] + (depth * width + column_of[node]) * width
        nodes.counts[node] = sorted_children(
            edges[edge_at : edge_at + width],
            ids[nodes.rows_at[node] : nodes.rows_at[node] + width],
            shapes[owner, 2] != 0,
            path,
            min(width, max_children),
            nodes.columns[node],
            nodes.sums[node],
        )
        if nodes.counts[node]:
            _push(heap, heap_size, node, nodes)
            heap_size += 1
    return budget


@inlined
def _is_before(a: int, b: int, sums: Any, depths: Any, tokens: Any, ranks: Any) -> Any:
    """Order of two nodes; ``ranks`` are the places of their parents, which compare only nodes of one depth."""
    if sums[a] != sums[b]:
        return sums[a] > sums[b]
    if depths[a] != depths[b]:
        return depths[a] < depths[b]
    if tokens[a] != tokens[b]:
        return tokens[a] < tokens[b]
    return ranks[a] < ranks[b]


@kernel("i8(i8[:,::1], f4[:,:,::1], b1, i8, i8, i8, i8[::1], i8[::1], f4[::1])")
def beam(
    ids: Any,
    edges: Any,
    are_logprobs: bool,
    root_id: int,
    num_nodes: int,
    beam_width: int,
    tokens: Any,
    parents: Any,
    logprobs: Any,
) -> Any:
    """Grow layer by layer from the best of each layer, sort all that has been grown, keep the first.

    Returns as ``grow``.
    """
    depth, width = ids.shape
    flaw = first_flaw(edges.reshape(-1), width, are_logprobs)
    if flaw >= 0:
        return -1 - flaw
    most = min(beam_width, width)
    room = 1 + most + max(depth - 1, 0) * beam_width * most
    sums, depths, grown_tokens = np.zeros(room), np.zeros(room, np.int64), np.zeros(room, np.int64)
    grown_parents, column_of = np.full(room, -1, np.int64), np.zeros(room, np.int64)
    # Place of a node in its layer's order; with equal parents' places it is the order of the keys.
    ranks, order = np.zeros(room, np.int64), np.zeros(room, np.int64)
    columns, path_sums = np.empty(most, np.int64), np.empty(most)
    layer, layer_size, grown = np.zeros(beam_width, np.int64), 1, 1
    grown_tokens[0] = root_id
    for t in range(depth):
        begin = grown
        for place in range(layer_size):
            node = layer[place]
            count = sorted_children(
                edges[t, column_of[node]], ids[t], are_logprobs, sums[node], most, columns, path_sums
            )
            for i in range(count):
                sums[grown], column_of[grown], depths[grown] = path_sums[i], columns[i], t + 1
                grown_tokens[grown], grown_parents[grown], ranks[grown] = ids[t, columns[i]], node, place
                grown += 1
        for i in range(begin, grown):
            at = i
            while at > begin and _is_before(i, order[at - 1], sums, depths, grown_tokens, ranks):
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
        layer_size = min(beam_width, grown - begin)
        layer[:layer_size] = order[begin : begin + layer_size]
        if layer_size == 0:
            break
    # Layers are sorted; merging them takes the best head of all, the shallowest of equals.
    heads, ends = np.empty(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
    for i in range(grown):
        ends[depths[i]] += 1
    begin = 0
    for t in range(depth + 1):
        heads[t] = begin
        begin += ends[t]
        ends[t] = begin
    places = np.full(room, -1, np.int64)
    count = 0
    while count < num_nodes:
        best = -1
        for t in range(depth + 1):
            if heads[t] < ends[t] and (best < 0 or sums[order[heads[t]]] > sums[order[heads[best]]]):
                best = t
        if best < 0:
            break
        node = order[heads[best]]
        heads[best] += 1
        places[node] = count
        tokens[count], logprobs[count] = grown_tokens[node], sums[node]
        parents[count] = places[grown_parents[node]] if count else -1
        count += 1
    return count


@kernel("i8(i8[:], i8[:], f4[:], i8[::1])")
def check(tokens: Any, parents: Any, logprobs: Any, depths: Any) -> Any:
    """Depths of the nodes. Returns -1, or 4 i + what is wrong with node i: 0 its parent, 1 a twin, 2 its logprob."""
    if parents[0] != -1:
        return 0
    if np.isnan(logprobs[0]):
        return 2
    depths[0] = 0
    for node in range(1, tokens.shape[0]):
        parent = parents[node]
        if not 0 <= parent < node:
            return 4 * node
        for other in range(parent + 1, node):
            if parents[other] == parent and tokens[other] == tokens[node]:
                return 4 * node + 1
        if not logprobs[node] <= logprobs[parent]:
            return 4 * node + 2
        depths[node] = depths[parent] + 1
    return -1
