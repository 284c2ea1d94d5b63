"""Adversarial lattices: ties, equal rows, unknown rows, impossible candidates, one candidate, long and flat ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from specpilot.draft.lattice import Lattice

__all__ = ["adversarial_lattices", "random_lattice"]


def random_lattice(seed: int, depth: int, width: int, vocab_size: int = 60, spread: float = 2.0) -> Lattice:
    """Gaussian scores, candidates without repetition."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(vocab_size, generator=generator)[:width] for _ in range(depth)])
    return Lattice(ids, torch.randn(depth, width, width, generator=generator) * spread)


def adversarial_lattices(seed: int = 0) -> Iterator[tuple[str, Lattice]]:
    """(what is unusual, lattice); small enough that every path can be listed."""
    for depth, width in ((1, 1), (1, 5), (3, 1), (2, 4), (3, 4), (4, 3), (5, 3)):
        yield f"random {depth} x {width}", random_lattice(seed + 31 * depth + width, depth, width)
    base = random_lattice(seed, 3, 4)
    ids, scores = base.candidate_ids, base.edge_scores
    yield "all scores equal", Lattice(ids, torch.zeros_like(scores))
    yield "rows equal", Lattice(ids, scores[:, :1].expand(-1, 4, -1).contiguous())
    yield "two different scores", Lattice(ids, (scores > 0).float())
    yield "one candidate takes all", Lattice(ids, torch.where(torch.arange(4) == 2, 80.0, scores))
    yield "scores far from 0", Lattice(ids, scores + torch.linspace(-5e4, 5e4, 12).reshape(3, 4, 1))
    yield "almost equal scores", Lattice(ids, scores * 1e-6)
    unknown = scores.clone()
    unknown[1:, 1:] = -torch.inf
    yield "only one path is known", Lattice(ids, unknown)
    unknown = scores.clone()
    unknown[2] = -torch.inf
    yield "nothing known at the last depth", Lattice(ids, unknown)
    unknown = scores.clone()
    unknown[0] = -torch.inf
    yield "nothing known at all", Lattice(ids, unknown)
    impossible = scores.clone()
    impossible[:, :, 1::2] = -torch.inf
    yield "impossible candidates", Lattice(ids, impossible)
    yield "the same candidates at every depth", Lattice(ids[:1].expand(3, -1).contiguous(), scores)
    yield "no depth", Lattice(torch.empty(0, 4, dtype=torch.int64), torch.empty(0, 4, 4))
