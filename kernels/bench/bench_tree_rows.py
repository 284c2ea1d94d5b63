"""Time rows of a tree beside rows of a chain, in the bundled target's shapes: Gated DeltaNet in both forms, attention.

    python kernels/bench/bench_tree_rows.py --rows 8 16 32

One thread, call included, data warm in the cache as in a step; forms take turns. The tree hangs every row on one drawn
evenly from those before it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from bench_cpu_ops import (
    EPS,
    GDN_DIM,
    GDN_TAPS,
    GDN_VALUE_HEADS,
    HEAD_DIM,
    NUM_HEADS,
    NUM_KV_HEADS,
    PAIRS,
)
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments, batch_attention
from specpilot_kernels.gdn_rows import (
    GdnForm,
    GdnMemory,
    GdnPart,
    GdnSegments,
    GdnWeights,
    gdn_commit,
    gdn_rows,
)
from specpilot_kernels.row_tree import RowTree
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns

CONTEXTS = (200, 1000)
WARM_UP, SAMPLES = 20, 500

Calls = dict[str, Callable[[], object]]


def drawn_tree(num_rows: int) -> RowTree:
    generator = np.random.default_rng(0)
    return RowTree(np.array([-1, *(int(generator.integers(row)) for row in range(1, num_rows))], np.int64))


def deepest_path(tree: RowTree) -> NDArray[np.int64]:
    row, path = int(np.argmax(tree.table[:, 1])), []
    while row >= 0:
        path.append(row)
        row = int(tree.parents[row])
    return np.array(path[::-1])


def gdn_calls(rows: int) -> Calls:
    """The layer, and what a commit of the tree's deepest path costs after it."""
    value_width = GDN_VALUE_HEADS * GDN_DIM
    channels = 2 * GDN_DIM + value_width
    taps, norm_weight = torch.randn(GDN_TAPS, channels), torch.rand(GDN_DIM)
    rate, dt_bias = -torch.rand(GDN_VALUE_HEADS), torch.randn(GDN_VALUE_HEADS)
    weights = GdnWeights(taps, rate, dt_bias, norm_weight, 1, EPS, EPS)
    projected = torch.randn(rows, channels + value_width + 2 * GDN_VALUE_HEADS).numpy()
    tree, chain = drawn_tree(rows), RowTree(np.arange(-1, rows - 1))
    forms: list[tuple[str, RowTree | None, GdnForm]] = [
        ("chain", None, "path"),
        ("chain wy", chain, "wy"),
        ("tree path", tree, "path"),
        ("tree wy", tree, "wy"),
    ]
    calls: Calls = {}
    for name, shape, form in forms:
        memory = GdnMemory(1, weights.shape)
        memory.make_room(rows)
        segments = GdnSegments([GdnPart(memory, rows, False, shape, form)])
        calls[name] = lambda segments=segments: gdn_rows(projected, segments, 0, weights)  # type: ignore[misc]
    path = deepest_path(tree)

    def run_and_commit() -> None:
        gdn_rows(projected, segments, 0, weights)
        gdn_commit(segments, [path])

    calls[f"tree wy, commit of {len(path)}"] = run_and_commit
    return calls


def attention_calls(rows: int, context: int) -> Calls:
    rotation = torch.randn(context + rows, PAIRS, 2).numpy()
    scales = torch.randn(NUM_HEADS + NUM_KV_HEADS, HEAD_DIM).numpy()
    projected = torch.randn(rows, 2 * (NUM_HEADS + NUM_KV_HEADS) * HEAD_DIM).numpy()
    calls: Calls = {}
    for name, shape in (("chain", None), ("tree", drawn_tree(rows))):
        memory = KvMemory(1, NUM_KV_HEADS, HEAD_DIM, context + rows)
        memory.reserve(context + rows)
        memory.buffer[:] = torch.randn(memory.buffer.shape).numpy()
        segments = KvSegments([KvPart(memory, rows, context, shape)])
        calls[name] = lambda segments=segments: batch_attention(  # type: ignore[misc]
            projected, segments, 0, scales, rotation, EPS
        )
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description="Time rows of a tree beside rows of a chain.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        f"# {cpu_name()}, numba {numba.__version__}, numpy {np.__version__}, 1 thread, float32, warm-up {WARM_UP}, "
        f"samples {SAMPLES}, clocks not fixed; p20/p50/p80 in us"
    )
    for rows in options.rows:
        cases = {f"gdn_rows {rows} rows": gdn_calls(rows)}
        for context in CONTEXTS:
            cases[f"chain_attention {rows} rows, {context} tokens"] = attention_calls(rows, context)
        for name, calls in cases.items():
            times = time_in_turns(calls, WARM_UP, SAMPLES)
            shown = (
                f"{call} {'/'.join(f'{quantile(values, part):.1f}' for part in (0.2, 0.5, 0.8))}"
                for call, values in times.items()
            )
            print(f"{name:40} {'  '.join(shown)}", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
