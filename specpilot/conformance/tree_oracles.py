"""Trees by their definitions: every path of a small lattice listed, no heap, no array of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.draft.lattice import Lattice

__all__ = [
    "Path",
    "beam_order",
    "best_order",
    "chain_order",
    "every_path",
    "every_path_by_marginals",
    "sequoia_expected",
    "shape_expected",
]

Path = tuple[int, ...]


@dataclass(frozen=True)
class _Law:
    """log p(candidate | row) at one depth; minus infinity where nothing follows."""

    rows: tuple[tuple[float, ...], ...]


def _laws(lattice: Lattice) -> list[_Law]:
    laws = []
    for depth, scores in enumerate(lattice.edge_scores.tolist()):
        rows = []
        for row in scores if depth else scores[:1]:
            highest = max(row)
            if lattice.are_logprobs or highest == -math.inf:
                rows.append(tuple(row))
                continue
            total = math.log(math.fsum(math.exp(score - highest) for score in row)) + highest
            rows.append(tuple(score - total for score in row))
        laws.append(_Law(tuple(rows)))
    return laws


def every_path(lattice: Lattice) -> dict[Path, float]:
    """Log-probability of every path that can be taken, by its tokens; the root is the empty path."""
    laws, ids = _laws(lattice), lattice.candidate_ids.tolist()
    paths: dict[Path, float] = {(): 0.0}
    ends: list[tuple[Path, int, float]] = [((), 0, 0.0)]
    for law, tokens in zip(laws, ids, strict=True):
        grown = []
        for path, row, score in ends:
            for place, token in enumerate(tokens):
                if law.rows[row][place] > -math.inf:
                    grown.append(((*path, token), place, score + law.rows[row][place]))
        ends = grown
        paths |= {path: score for path, _, score in ends}
    return paths


def every_path_by_marginals(lattice: Lattice) -> dict[Path, float]:
    """As :func:`every_path`, each token scored by the chance that a drawn path has it at its depth.

    The chance, whatever stands before, is summed over the drawn paths that get so far.
    """
    conditional, ids = every_path(lattice), lattice.candidate_ids.tolist()
    chance: list[dict[int, float]] = []
    laws = _laws(lattice)
    ends: list[tuple[int, float]] = [(0, 1.0)]
    for law, tokens in zip(laws, ids, strict=True):
        going_on = [(row, mass) for row, mass in ends if max(law.rows[row]) > -math.inf]
        whole = math.fsum(mass for _, mass in going_on)
        masses = [
            math.fsum(mass / whole * math.exp(law.rows[row][place]) for row, mass in going_on)
            if whole
            else 0.0
            for place in range(len(tokens))
        ]
        chance.append(dict(zip(tokens, masses, strict=True)))
        ends = [(place, mass) for place, mass in enumerate(masses) if mass > 0.0]
    scores: dict[Path, float] = {(): 0.0}
    for path in sorted(_prolonged(conditional, lattice), key=len):
        if path and chance[len(path) - 1][path[-1]] > 0.0:
            scores[path] = scores[path[:-1]] + math.log(chance[len(path) - 1][path[-1]])
    return scores


def _prolonged(paths: dict[Path, float], lattice: Lattice) -> list[Path]:
    """Paths over candidates after which something is known, whether or not the edge itself is possible."""
    laws, ids = _laws(lattice), lattice.candidate_ids.tolist()
    found: list[Path] = [()]
    ends: list[tuple[Path, int]] = [((), 0)]
    for law, tokens in zip(laws, ids, strict=True):
        possible = {place for row in law.rows for place, score in enumerate(row) if score > -math.inf}
        ends = [
            ((*path, tokens[place]), place)
            for path, row in ends
            if max(law.rows[row]) > -math.inf
            for place in sorted(possible)
        ]
        found += [path for path, _ in ends]
    return found


def best_order(paths: dict[Path, float]) -> list[float]:
    """Scores from the best path downwards: what the n best nodes must have."""
    return sorted(paths.values(), reverse=True)


def chain_order(lattice: Lattice) -> Path:
    """The chain that takes the best edge at every depth; of equal ones the lowest token."""
    laws, ids = _laws(lattice), lattice.candidate_ids.tolist()
    row, chain = 0, []
    for law, tokens in zip(laws, ids, strict=True):
        best = min(range(len(tokens)), key=lambda place: (-law.rows[row][place], tokens[place]))
        if law.rows[row][best] == -math.inf:
            break
        chain.append(tokens[best])
        row = best
    return tuple(chain)


def beam_order(lattice: Lattice, top_k: int) -> list[float]:
    """Scores, best first, of all nodes EAGLE-2's expansion grows: ``top_k`` children of ``top_k`` nodes a depth."""
    paths = every_path(lattice)
    grown: dict[Path, float] = {(): 0.0}
    frontier: list[Path] = [()]
    for _ in range(lattice.depth):
        children = []
        for parent in frontier:
            mine = [path for path in paths if len(path) == len(parent) + 1 and path[:-1] == parent]
            children += sorted(mine, key=lambda path: -paths[path])[:top_k]
        grown |= {path: paths[path] for path in children}
        frontier = sorted(children, key=lambda path: -paths[path])[:top_k]
    return best_order(grown)


def sequoia_expected(rates: Sequence[float], num_nodes: int, depth: int) -> float:
    """Most tokens a tree of ``num_nodes`` nodes and ``depth`` commits under positional acceptance: all are tried."""
    ranks = [
        ranks
        for length in range(1, depth + 1)
        for ranks in itertools.product(range(len(rates)), repeat=length)
    ]
    best = 1.0
    # A tree that skips a rank is never better than the one that does not, so only full ones are tried.
    for size in range(1, num_nodes):
        for chosen in itertools.combinations(ranks, size):
            nodes = {(), *chosen}
            if all(
                path[:-1] in nodes and (path[-1] == 0 or (*path[:-1], path[-1] - 1) in nodes)
                for path in chosen
            ):
                best = max(best, shape_expected(rates, list(chosen)))
    return best


def shape_expected(rates: Sequence[float], shape: Sequence[Sequence[int]]) -> float:
    """Tokens a tree commits when the child of rank k is right with probability ``rates[k]``; nodes by their ranks."""
    return 1.0 + math.fsum(math.prod(rates[rank] for rank in ranks) for ranks in shape)
