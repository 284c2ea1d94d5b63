"""The kernels on the CPU: rows of several sequences through one layer, and what they leave behind.

Sequences do not meet, nor do heads: whoever takes a head of a sequence, the result is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_memory import floats_at, integers_at
from specpilot_kernels.cpu_pool import job_of, run_parts
from specpilot_kernels.gdn_rows.cpu_head import prepare, replay_head, run_head
from specpilot_kernels.gdn_rows.cpu_wy import key_products
from specpilot_kernels.row_tree import DEPTH, NUM_COLUMNS

__all__ = ["commit_rows", "run_rows"]


@inlined
def _copy(source: Any, target: Any, first: int) -> Any:
    for i in range(source.shape[0]):
        target[first + i] = source[i]
    return first + source.shape[0]


@inlined
def _of_sequence(rows: Any, first: int, count: int, num_groups: int, width: int) -> Any:
    """A sequence's part, (groups, rows, width), of an array that has the sequences one behind the other."""
    size = num_groups * width
    return rows[first * size : (first + count) * size].reshape((num_groups, count, width))


@inlined
def _tree_of(segments: Any, s: int) -> Any:
    """The table of a sequence's tree; without rows for a chain."""
    return integers_at(segments[s, 5], segments[s, 1] if segments[s, 5] != 0 else 0, NUM_COLUMNS)


@inlined
def _place_products(segments: Any, num_groups: int, ends: Any) -> int:
    """Where products of keys of every sequence end, one sequence behind the other; the path form has none."""
    end = 0
    for s in range(segments.shape[0]):
        if segments[s, 7] != 0:
            tree, height = _tree_of(segments, s), 1
            for row in range(tree.shape[0]):
                height = max(height, tree[row, DEPTH] + 1)
            end += num_groups * 2 * tree.shape[0] * height
        ends[s] = end
    return end


@inlined
def _products_of(products: Any, ends: Any, s: int, count: int, num_groups: int) -> Any:
    """A sequence's products of keys, (groups, 2, rows, height); no groups for the path form."""
    first = ends[s - 1] if s > 0 else 0
    height = (ends[s] - first) // (2 * num_groups * count)
    own = products[first : ends[s]]
    return own.reshape((num_groups if height > 0 else 0, 2, count, height))


@inlined
def _move_up(rows: Any, path: Any) -> None:
    """Row ``path[i]`` of every group, (groups, rows, width), to row i; ``path`` increases."""
    for group in range(rows.shape[0]):
        for i in range(path.shape[0]):
            if path[i] != i:
                for j in range(rows.shape[2]):
                    rows[group, i, j] = rows[group, path[i], j]


@inlined
def _run_head(
    unit: int,
    segments: Any,
    num_groups: int,
    num_heads: int,
    state_size: int,
    key_dim: int,
    width: int,
    per_group: int,
    products: Any,
    ends: Any,
    queries: Any,
    keys: Any,
    written: Any,
    log_decay: Any,
    decay: Any,
    beta: Any,
    projected: Any,
    num_channels: int,
    norm_weight: Any,
    norm_eps: Any,
    out: Any,
) -> None:
    """One head of a sequence; units are the heads of all sequences, one sequence behind the other."""
    s = unit // num_heads
    first, count = segments[s, 0], segments[s, 1]
    run_head(
        floats_at(segments[s, 2], state_size),
        segments[s, 4] == 0,
        _tree_of(segments, s),
        segments[s, 6],
        _products_of(products, ends, s, count, num_groups),
        _of_sequence(queries, first, count, num_groups, key_dim),
        _of_sequence(keys, first, count, num_groups, key_dim),
        _of_sequence(written, first, count, num_groups, width),
        _of_sequence(log_decay, first, count, num_groups, per_group),
        _of_sequence(decay, first, count, num_groups, per_group),
        _of_sequence(beta, first, count, num_groups, per_group),
        unit % num_heads,
        projected,
        first,
        num_channels,
        norm_weight,
        norm_eps,
        out,
    )


@kernel(
    "void(f4[:,::1], i8[:,::1], i8, f4[:,::1], f4[::1], f4[::1], f4[::1], f4, f4, f4[:,::1], i8)",
)
def run_rows(
    projected: Any,
    segments: Any,
    num_groups: int,
    taps: Any,
    rate: Any,
    dt_bias: Any,
    norm_weight: Any,
    unit_eps: Any,
    norm_eps: Any,
    out: Any,
    pool: int,
) -> None:
    """One layer. ``segments`` is the layer's table of :class:`specpilot_kernels.gdn_rows.memory.GdnSegments`."""
    num_rows, num_segments = out.shape[0], segments.shape[0]
    num_before, num_channels = taps.shape[0] - 1, taps.shape[1]
    num_heads, value_dim = rate.shape[0], norm_weight.shape[0]
    per_group = num_heads // num_groups
    width = per_group * value_dim
    key_dim = (num_channels // num_groups - width) // 2
    state_size = num_groups * key_dim * width
    # Of every sequence (groups, rows, ...), one sequence behind the other.
    inputs = np.empty((num_rows + num_segments * num_before, num_channels), np.float32)
    queries = np.empty(num_rows * num_groups * key_dim, np.float32)
    keys, written = np.empty_like(queries), np.empty(num_rows * num_groups * width, np.float32)
    decay = np.empty(num_rows * num_heads, np.float32)
    beta, log_decay = np.empty_like(decay), np.empty_like(decay)
    ends = np.empty(num_segments, np.int64)
    products = np.empty(_place_products(segments, num_groups, ends), np.float32)
    for s in range(num_segments):
        first, count = segments[s, 0], segments[s, 1]
        prepare(
            projected,
            first,
            _tree_of(segments, s),
            floats_at(segments[s, 3], num_before * num_channels),
            taps,
            rate,
            dt_bias,
            unit_eps,
            inputs[first + s * num_before : first + count + (s + 1) * num_before],
            _of_sequence(queries, first, count, num_groups, key_dim),
            _of_sequence(keys, first, count, num_groups, key_dim),
            _of_sequence(written, first, count, num_groups, width),
            _of_sequence(log_decay, first, count, num_groups, per_group),
            _of_sequence(decay, first, count, num_groups, per_group),
            _of_sequence(beta, first, count, num_groups, per_group),
        )
        if segments[s, 7] != 0:
            for group in range(num_groups):
                key_products(
                    _tree_of(segments, s),
                    _of_sequence(queries, first, count, num_groups, key_dim)[group],
                    _of_sequence(keys, first, count, num_groups, key_dim)[group],
                    _products_of(products, ends, s, count, num_groups)[group],
                )
    num_units = num_segments * num_heads
    heads = (
        segments,
        num_groups,
        num_heads,
        state_size,
        key_dim,
        width,
        per_group,
        products,
        ends,
        queries,
        keys,
        written,
        log_decay,
        decay,
        beta,
        projected,
        num_channels,
        norm_weight,
        norm_eps,
        out,
    )
    run_parts(pool, job_of(_run_head, heads), num_units)
    for s in range(num_segments):
        first, count = segments[s, 0], segments[s, 1]
        seen = inputs[first + s * num_before : first + count + (s + 1) * num_before].reshape(-1)
        if segments[s, 4] == 0:
            window_size = num_before * num_channels
            _copy(seen[seen.shape[0] - window_size :], floats_at(segments[s, 3], window_size), 0)
        else:
            a_row = num_groups * (key_dim + width) + num_heads
            pending = floats_at(segments[s, 4], seen.shape[0] + count * a_row)
            at = _copy(seen, pending, 0)
            at = _copy(_of_sequence(keys, first, count, num_groups, key_dim).reshape(-1), pending, at)
            at = _copy(_of_sequence(written, first, count, num_groups, width).reshape(-1), pending, at)
            _copy(_of_sequence(decay, first, count, num_groups, per_group).reshape(-1), pending, at)


@inlined
def _commit_unit(
    unit: int,
    tables: Any,
    num_kept: Any,
    ends: Any,
    kept_rows: Any,
    num_groups: int,
    per_group: int,
    key_dim: int,
    value_dim: int,
    num_before: int,
) -> None:
    """One sequence of a layer; units are the sequences of all layers, one layer behind the other."""
    num_segments = tables.shape[1]
    num_heads, width = num_groups * per_group, per_group * value_dim
    num_channels = 2 * num_groups * key_dim + num_groups * width
    window_size = num_before * num_channels
    layer, s = unit // num_segments, unit % num_segments
    count, kept = tables[layer, s, 1], num_kept[s]
    is_pending = tables[0, s, 4] != 0 and kept > 0
    if is_pending:
        sizes = (
            window_size + count * num_channels,
            count * num_groups * key_dim,
            count * num_groups * width,
            count * num_heads,
        )
        pending = floats_at(tables[layer, s, 4], sizes[0] + sizes[1] + sizes[2] + sizes[3])
        at = sizes[0]
        keys = pending[at : at + sizes[1]].reshape((num_groups, count, key_dim))
        at += sizes[1]
        written = pending[at : at + sizes[2]].reshape((num_groups, count, width))
        at += sizes[2]
        decay = pending[at : at + sizes[3]].reshape((num_groups, count, per_group))
        state = floats_at(tables[layer, s, 2], num_groups * key_dim * width)
        path = kept_rows[ends[s] - kept : ends[s]]
        if path[kept - 1] != kept - 1:
            _move_up(pending[window_size : sizes[0]].reshape((1, count, num_channels)), path)
            _move_up(keys, path)
            _move_up(written, path)
            _move_up(decay, path)
        for head in range(num_heads):
            replay_head(state, keys, written, decay, head, kept)
        seen = pending[kept * num_channels : kept * num_channels + window_size]
        _copy(seen, floats_at(tables[layer, s, 3], window_size), 0)


@kernel("void(i8[:,:,::1], i8[::1], i8[::1], i8, i8, i8, i8, i8, i8)")
def commit_rows(
    tables: Any,
    num_kept: Any,
    kept_rows: Any,
    num_groups: int,
    per_group: int,
    key_dim: int,
    value_dim: int,
    num_before: int,
    pool: int,
) -> None:
    """Decide ``num_kept`` pending rows of every sequence, in all layers.

    Which ones, ``kept_rows`` says, one sequence behind the other. They move to the front and are then a chain.
    """
    num_layers, num_segments, _ = tables.shape
    ends = np.cumsum(num_kept)
    units = (
        tables,
        num_kept,
        ends,
        kept_rows,
        num_groups,
        per_group,
        key_dim,
        value_dim,
        num_before,
    )
    run_parts(pool, job_of(_commit_unit, units), num_layers * num_segments)
