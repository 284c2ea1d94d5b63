"""What hypothesis builds for several test files: lattices with ties, gaps and unknown rows, and trees."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from specpilot.draft import DraftTree, Lattice

__all__ = ["lattices", "trees"]

_VOCABULARY = 50


@st.composite
def lattices(
    draw: st.DrawFn,
    *,
    min_depth: int = 0,
    max_depth: int = 6,
    max_width: int = 6,
    has_gaps: bool = True,
    are_logprobs: bool | None = None,
) -> Lattice:
    """Lattices of normal scores, or of so few different ones that most are tied.

    With ``has_gaps`` some rows are unknown and some candidates impossible. ``are_logprobs`` None: either kind.
    """
    depth = draw(st.integers(min_depth, max_depth))
    width = draw(st.integers(1, max_width))
    levels = draw(st.sampled_from([None, 1, 2, 4]))
    flag = draw(st.booleans()) if are_logprobs is None else are_logprobs
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    ids = torch.empty(depth, width, dtype=torch.int64)
    for row in ids:
        row[:] = torch.randperm(_VOCABULARY, generator=generator)[:width]
    shape = (depth, width, width)
    if levels is None:
        scores = 2.0 * torch.randn(shape, generator=generator)
    else:
        scores = torch.randint(levels, shape, generator=generator).float()
    if flag:
        scores = -scores.abs() - 0.125
    if has_gaps and draw(st.booleans()):
        scores[torch.rand(shape[:2], generator=generator) < 0.2] = -torch.inf
        scores[torch.rand(shape, generator=generator) < 0.2] = -torch.inf
    return Lattice(ids, scores, are_logprobs=flag)


@st.composite
def trees(draw: st.DrawFn, *, max_nodes: int = 12, num_tokens: int = 4) -> DraftTree:
    """Trees over few tokens, so that paths of different trees meet."""
    tokens, parents, logprobs = [draw(st.integers(0, num_tokens - 1))], [-1], [0.0]
    taken: set[tuple[int, int]] = set()
    for _ in range(draw(st.integers(0, max_nodes - 1))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, num_tokens - 1))
        if (parent, token) in taken:
            continue
        taken.add((parent, token))
        tokens.append(token)
        parents.append(parent)
        logprobs.append(logprobs[parent] - draw(st.sampled_from([0.0, 0.25, 1.0])))
    return DraftTree(np.array(tokens), np.array(parents), np.array(logprobs, np.float32))
