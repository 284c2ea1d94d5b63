"""Time the tree builders on a lattice of 15 depths and 16 candidates, and the shared budget of eight requests.

    python kernels/bench/bench_draft_tree.py

One thread, call included, from the lattice's tensors to a checked tree; a new random lattice in every call, as in a
step. Limits: 200 us a request for the best-first tree of 32 nodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle
from typing import get_args

import numba
import numpy as np
import torch

from specpilot.draft import Lattice
from specpilot.draft.builders import TreeBuilder, make_builder, share_nodes
from specpilot.engines.mechanisms import Builder
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns

DEPTH, WIDTH, NUM_REQUESTS = 15, 16, 8
NUM_LATTICES, WARM_UP, SAMPLES = 64, 200, 2000

Call = Callable[[], object]


def random_lattice(generator: torch.Generator) -> Lattice:
    """Scores about as peaked as those of a drafter: the best candidate has half of the mass."""
    ids = torch.stack([torch.randperm(4096, generator=generator)[:WIDTH] for _ in range(DEPTH)])
    return Lattice(ids, 2.5 * torch.randn(DEPTH, WIDTH, WIDTH, generator=generator))


def building(builder: TreeBuilder, lattices: list[Lattice], num_nodes: int) -> Call:
    turn = cycle(lattices)
    return lambda: builder.build(next(turn), 7, num_nodes)


def sharing(lattices: list[Lattice], num_nodes: int) -> Call:
    """``num_nodes`` a request."""
    groups = cycle([lattices[i : i + NUM_REQUESTS] for i in range(0, NUM_LATTICES, NUM_REQUESTS)])
    roots = list(range(NUM_REQUESTS))
    return lambda: share_nodes(next(groups), roots, NUM_REQUESTS * num_nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the tree builders.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 16, 32, 63])
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    lattices = [random_lattice(generator) for _ in range(NUM_LATTICES)]
    print(
        f"# {cpu_name()}, torch {torch.__version__}, numba {numba.__version__}, numpy {np.__version__}, 1 thread, "
        f"{DEPTH} depths x {WIDTH} candidates, warm-up {WARM_UP}, samples {SAMPLES}, clocks not fixed"
    )
    for num_nodes in options.nodes:
        calls: dict[str, Call] = {
            name: building(make_builder(name), lattices, num_nodes) for name in get_args(Builder)
        }
        calls[f"share_nodes, {NUM_REQUESTS} requests"] = sharing(lattices, num_nodes)
        for name, times in time_in_turns(calls, WARM_UP, SAMPLES).items():
            p20, p50, p80 = (quantile(times, fraction) for fraction in (0.2, 0.5, 0.8))
            print(f"{name:24} N {num_nodes:3}  p20/p50/p80 {p20:.1f}/{p50:.1f}/{p80:.1f} us", flush=True)


if __name__ == "__main__":
    main()
