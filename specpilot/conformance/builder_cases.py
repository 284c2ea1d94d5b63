"""Tree builders against listings of all paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from specpilot.conformance.case import Case, Deviation, expect_equal, expect_near
from specpilot.conformance.lattices import adversarial_lattices, random_lattice
from specpilot.conformance.tree_oracles import (
    Path,
    beam_order,
    best_order,
    chain_order,
    every_path,
    every_path_by_marginals,
    sequoia_expected,
    shape_expected,
)
from specpilot.draft.builders import make_builder, share_nodes
from specpilot.draft.lattice import Lattice
from specpilot.draft.tree import DraftTree

__all__ = ["cases"]

_ROOT = 7
_SIZES = (1, 2, 3, 8, 20, 63)
_TOP_K = 2
_RATES = (0.6, 0.3, 0.05)
_WIDE_DEPTH, _WIDE_NODES = 15, 32
_Build = Callable[[Lattice, int, int], DraftTree]
_PathsOf = Callable[[Lattice], dict[Path, float]]
_Share = Callable[[Sequence[Lattice], Sequence[int], int], list[DraftTree]]


def cases() -> Iterator[Case[Any]]:
    """Chain, best-first, wide tree, DDTree, EAGLE-2, Sequoia, shared budget."""
    best_first = make_builder("best_first").build
    chain = make_builder("chain").build
    yield Case("chain", "ties by the highest token", _check_chain, chain, _highest_tie(chain))
    yield Case(
        "best-first", "un-normalised edge", _check_best_first, best_first, _without_softmax(best_first)
    )
    yield Case("best-first", "budget without the root", _check_best_first, best_first, _one_more(best_first))
    yield Case(
        "wide tree", "depth limited to the trained block", _check_wide, best_first, _cut_depth(best_first)
    )
    ddtree = make_builder("ddtree").build
    yield Case("DDTree", "edges given the parent", _check_ddtree, ddtree, best_first)
    eagle2 = make_builder("eagle2", top_k=_TOP_K).build
    wider = make_builder("eagle2", top_k=_TOP_K + 1).build
    yield Case("EAGLE-2", "beam one wider", _check_eagle2, eagle2, wider)
    sequoia = make_builder("sequoia", rates=_RATES).build
    reversed_rates = make_builder("sequoia", rates=_RATES[::-1]).build
    yield Case("Sequoia", "shape of other rates", _check_sequoia, sequoia, reversed_rates)
    yield Case("shared budget", "budget off by one", _check_share, share_nodes, _share_one_more)
    yield Case("shared budget", "equal shares", _check_share, share_nodes, _equal_shares)


def _paths_of(tree: DraftTree) -> list[Path]:
    """Tokens below the root of every node, in the tree's order."""
    tokens = tree.token_ids.tolist()
    return [tuple(tokens[node] for node in tree.path(number)[1:]) for number in range(tree.num_nodes)]


def _check_scores(
    where: str, tree: DraftTree, num_nodes: int, paths: dict[Path, float], expected: Sequence[float]
) -> None:
    """The tree has as many nodes as it may, each exists and has its score, and they are the best there are."""
    expect_equal(f"{where}: nodes", tree.num_nodes, min(num_nodes, len(expected)))
    expect_equal(f"{where}: root token", int(tree.token_ids[0]), _ROOT)
    for number, path in enumerate(_paths_of(tree)):
        if path not in paths:
            raise Deviation(f"{where}: node {number} is {path}, expected a path of the lattice")
        expect_near(f"{where}: log-probability of node {path}", float(tree.logprobs[number]), paths[path])
        expect_near(f"{where}: the score of place {number}", float(tree.logprobs[number]), expected[number])


def _check_prefixes(where: str, build: _Build, lattice: Lattice) -> int:
    whole = build(lattice, _ROOT, _SIZES[-1])
    for num_nodes in range(1, whole.num_nodes):
        part = build(lattice, _ROOT, num_nodes)
        same = part.token_ids.tolist(), part.parents.tolist()
        of_whole = whole.token_ids[:num_nodes].tolist(), whole.parents[:num_nodes].tolist()
        expect_equal(
            f"{where}: the tree of {num_nodes} nodes against the first ones of a larger", same, of_whole
        )
    return whole.num_nodes


def _check_ranked(build: _Build, paths_of: _PathsOf) -> int:
    """Trees of the best nodes by the scores that ``paths_of`` gives all paths."""
    count = 0
    for what, lattice in adversarial_lattices():
        paths = paths_of(lattice)
        for num_nodes in _SIZES:
            tree = build(lattice, _ROOT, num_nodes)
            _check_scores(f"{what}, N = {num_nodes}", tree, num_nodes, paths, best_order(paths))
            count += 1
        count += _check_prefixes(what, build, lattice)
    return count


def _check_best_first(build: _Build) -> int:
    count = _check_ranked(build, every_path)
    return count + sum(_check_permuted(what, build, lattice) for what, lattice in adversarial_lattices())


def _check_permuted(what: str, build: _Build, lattice: Lattice) -> int:
    """The order of candidates decides nothing: ties go by token."""
    if lattice.depth == 0 or what not in ("all scores equal", "random 3 x 4", "rows equal"):
        return 0
    for seed in range(4):
        order = torch.randperm(lattice.width, generator=torch.Generator().manual_seed(seed))
        scores = lattice.edge_scores[:, :, order]
        scores[1:] = scores[1:, order]
        other = Lattice(lattice.candidate_ids[:, order].contiguous(), scores.contiguous())
        for num_nodes in _SIZES:
            got, expected = build(other, _ROOT, num_nodes), build(lattice, _ROOT, num_nodes)
            expect_equal(
                f"{what}, candidates in another order, N = {num_nodes}", _paths_of(got), _paths_of(expected)
            )
    return 4 * len(_SIZES)


def _check_wide(build: _Build) -> int:
    """More rows than drafted positions, to a depth of 15: against a plain search that keeps a list."""
    count = 0
    for seed in range(6):
        lattice = random_lattice(seed, _WIDE_DEPTH, 16, spread=2.0 + seed)
        tree = build(lattice, _ROOT, _WIDE_NODES)
        expect_equal(f"seed {seed}: nodes", tree.num_nodes, _WIDE_NODES)
        expected = _plain_search(lattice, _WIDE_NODES)
        for number, path in enumerate(_paths_of(tree)):
            expect_near(
                f"seed {seed}: score of place {number}", float(tree.logprobs[number]), expected[number][0]
            )
            expect_equal(f"seed {seed}: place {number}", path, expected[number][1])
        count += tree.num_nodes
    return count


def _plain_search(lattice: Lattice, num_nodes: int) -> list[tuple[float, Path]]:
    """Take the best node of a list, put all its children in."""
    laws = torch.log_softmax(lattice.edge_scores.double(), -1).tolist()
    ids = lattice.candidate_ids.tolist()
    found: list[tuple[float, Path]] = []
    open_nodes: list[tuple[float, Path, int]] = [(0.0, (), 0)]
    while len(found) < num_nodes:
        best = max(open_nodes)
        open_nodes.remove(best)
        score, path, row = best
        found.append((score, path))
        if len(path) < lattice.depth:
            law = laws[len(path)][row]
            open_nodes += [(score + law[c], (*path, token), c) for c, token in enumerate(ids[len(path)])]
    return found


def _check_chain(build: _Build) -> int:
    count = 0
    for what, lattice in adversarial_lattices():
        chain = chain_order(lattice)
        for num_nodes in _SIZES:
            tree = build(lattice, _ROOT, num_nodes)
            expected = [_ROOT, *chain[: num_nodes - 1]]
            expect_equal(f"{what}, N = {num_nodes}: chain", tree.token_ids.tolist(), expected)
            expect_equal(f"{what}, N = {num_nodes}: is a chain", tree.is_chain, True)
            count += 1
    return count


def _check_ddtree(build: _Build) -> int:
    return _check_ranked(build, every_path_by_marginals)


def _check_eagle2(build: _Build) -> int:
    count = 0
    for what, lattice in adversarial_lattices():
        if what in ("all scores equal", "two different scores"):  # which of equal nodes are grown is open
            continue
        paths, grown = every_path(lattice), beam_order(lattice, _TOP_K)
        for num_nodes in _SIZES:
            tree = build(lattice, _ROOT, num_nodes)
            _check_scores(f"{what}, N = {num_nodes}", tree, num_nodes, paths, grown)
            count += 1
    return count


def _check_sequoia(build: _Build) -> int:
    """The shape is worth what the best of all shapes is, and its places hold the candidates of their ranks."""
    count = 0
    for depth, num_nodes in ((1, 3), (2, 2), (2, 4), (2, 6), (3, 4), (3, 5)):
        lattice = random_lattice(depth, depth, 3)
        paths = every_path(lattice)
        tree = build(lattice, _ROOT, num_nodes)
        shape = []
        for path in _paths_of(tree)[1:]:
            ranks = []
            for length in range(1, len(path) + 1):
                siblings = [one for one in paths if len(one) == length and one[:-1] == path[: length - 1]]
                ranks.append(sorted(siblings, key=lambda one: -paths[one]).index(path[:length]))
            shape.append(ranks)
        where = f"depth {depth}, N = {num_nodes}"
        expected = sequoia_expected(_RATES, num_nodes, depth)
        expect_near(f"{where}: tokens by positional acceptance", shape_expected(_RATES, shape), expected)
        count += 1
    return count


def _check_share(share: _Share) -> int:
    """The shares hold the best nodes of all requests together, and each is the beginning of its own best-first tree."""
    own = make_builder("best_first").build
    count = 0
    named = list(adversarial_lattices())
    for start in range(0, len(named) - 2, 2):
        lattices = [lattice for _, lattice in named[start : start + 3]]
        roots = [_ROOT] * len(lattices)
        all_paths = [every_path(lattice) for lattice in lattices]
        best = best_order(
            {(place, *path): score for place, paths in enumerate(all_paths) for path, score in paths.items()}
        )
        for budget in (3, 4, 7, 20, 60):
            where = f"lattices {start} to {start + 2}, budget {budget}"
            trees = share(lattices, roots, budget)
            expect_equal(f"{where}: nodes", sum(tree.num_nodes for tree in trees), min(budget, len(best)))
            scores = sorted((float(s) for tree in trees for s in tree.logprobs), reverse=True)
            for number, score in enumerate(scores):
                expect_near(f"{where}: the score of place {number}", score, best[number])
            for place, tree in enumerate(trees):
                alone = own(lattices[place], _ROOT, tree.num_nodes)
                expect_equal(f"{where}: share of request {place}", _paths_of(tree), _paths_of(alone))
            count += 1
    return count


def _without_softmax(build: _Build) -> _Build:
    """Scores below the highest of their depth taken for log-probabilities."""

    def faulty(lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        scores = lattice.edge_scores
        if lattice.depth and bool((scores > -torch.inf).any()):
            scores = scores - scores.amax((-1, -2), keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        return build(Lattice(lattice.candidate_ids, scores, are_logprobs=True), root_id, num_nodes)

    return faulty


def _one_more(build: _Build) -> _Build:
    return lambda lattice, root_id, num_nodes: build(lattice, root_id, num_nodes + 1)


def _cut_depth(build: _Build) -> _Build:
    def faulty(lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        return build(Lattice(lattice.candidate_ids[:7], lattice.edge_scores[:7]), root_id, num_nodes)

    return faulty


def _highest_tie(build: _Build) -> _Build:
    """Of equal edges the highest token: the real part on mirrored ids."""
    top = 1000

    def faulty(lattice: Lattice, root_id: int, num_nodes: int) -> DraftTree:
        tree = build(Lattice(top - lattice.candidate_ids, lattice.edge_scores), top - root_id, num_nodes)
        return DraftTree(top - tree.token_ids, tree.parents, tree.logprobs)

    return faulty


def _share_one_more(lattices: Sequence[Lattice], root_ids: Sequence[int], budget: int) -> list[DraftTree]:
    return share_nodes(lattices, root_ids, budget + 1)


def _equal_shares(lattices: Sequence[Lattice], root_ids: Sequence[int], budget: int) -> list[DraftTree]:
    build = make_builder("best_first").build
    share, rest = divmod(budget, len(lattices))
    return [
        build(lattice, root_id, share + (place < rest))
        for place, (lattice, root_id) in enumerate(zip(lattices, root_ids, strict=True))
    ]
