"""A tree from the EAGLE-3 drafter: several of its chains grown side by side, as a lattice.

EAGLE-2's expansion (https://arxiv.org/abs/2406.16858) with EAGLE-3's rows: of every depth the ``beam_width`` most
likely nodes are run, each seeing the committed pairs and its own ancestors, and their best children are the candidates
of the next depth. Which of all these nodes are verified is left to a tree builder.

**Lattice.** At every depth ``beam_width * num_children`` columns: a column is a node, so a token may stand in several,
under different parents. Depth 0 has the root's best children. Edges are log-probabilities of the softmax over the whole
vocabulary (the head's row is there, so the normaliser is exact); rows of nodes that were not run are minus infinity.
The best child of the best child and so on is always run, however unlikely: the chain that the drafter would have
drafted alone, with its bits.

Ancestors lie in the cache one after the other, as they do in a chain: before a row runs, keys and values of its path
are put there. So no mask is needed, and a row's bits are those of its chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import Lattice
from specpilot.refengine.eagle3_layer import Eagle3Layer
from specpilot_kernels.chain_attention import KvMemory
from specpilot_kernels.draft_candidates import top_candidates

__all__ = ["BEAM_WIDTH", "NUM_CHILDREN", "Beam", "grow_beam"]

_Array = NDArray[np.float32]

BEAM_WIDTH, NUM_CHILDREN = 4, 4
"""Nodes run at a depth, and candidates below each of them."""


@dataclass(frozen=True)
class Beam:
    """What runs the rows of a tree.

    Attributes
    ----------
    layer, cache
        The drafter's layer and the pairs of the request.
    embed
        Token ids (R,) int64 -> embeddings (R, H) float32.
    logits
        Hidden rows (R, H) float32 after the drafter's norm -> (R, V) float32.
    beam_width, num_children
        Nodes run at a depth, and candidates below each.
    """

    layer: Eagle3Layer
    cache: KvMemory
    embed: Callable[[Tensor], _Array]
    logits: Callable[[_Array], _Array]
    beam_width: int = BEAM_WIDTH
    num_children: int = NUM_CHILDREN


def grow_beam(beam: Beam, position: int, anchor_id: int, feature: _Array, depth: int) -> Lattice:
    """Draft ``depth`` >= 1 positions after the anchor.

    Parameters
    ----------
    position
        Of the anchor's pair; the cache holds the pairs before it.
    feature : array, float32, (1, H)
        Of the last committed token.

    Returns
    -------
    Lattice
        See the module. The first columns are the greedy chain.
    """
    buffer = beam.cache.buffer
    no_path = np.empty((2, buffer.shape[2], 0, buffer.shape[4]), np.float32)
    tokens, hidden, paths, parents = torch.tensor([anchor_id]), feature, [no_path], np.array([0])
    sums = np.zeros(1)
    width = 0
    ids = edges = np.empty(0)
    for t in range(depth):
        hidden, paths = beam.layer.step_paths(beam.cache, position + t, beam.embed(tokens), hidden, paths)
        logits = beam.logits(beam.layer.normed(hidden))
        if not t:
            width = min(beam.beam_width * beam.num_children, logits.shape[1])
            ids = np.zeros((depth, width), np.int64)
            edges = np.full((depth, width, width), -np.inf, np.float32)
        count = min(beam.num_children, width) if t else width
        scores, best = top_candidates(logits, count)
        edge = (scores - _log_normalizers(logits)).astype(np.float32)
        # Columns 0, 1, ... are the children of the first row, whose node is the greedy chain's, and so on.
        columns = np.arange(best.size)
        ids[t, columns] = best.ravel()
        edges[t, np.repeat(parents, count), columns] = np.minimum(edge, 0.0).ravel()
        if t + 1 == depth:
            break
        sums = (sums[:, None] + edge).ravel()
        # Column 0 first; the others by falling probability, equal ones by column.
        num_rows = min(beam.beam_width, width // min(beam.num_children, width))
        order = np.argsort(-sums[1:], kind="stable")[: num_rows - 1] + 1
        parents = np.concatenate(([0], order))
        sums, tokens = sums[parents], torch.from_numpy(ids[t, parents])
        rows = parents // count
        hidden, paths = hidden[rows], [paths[row] for row in rows]
    return Lattice(torch.from_numpy(ids), torch.from_numpy(edges), are_logprobs=True)


def _log_normalizers(logits: _Array) -> NDArray[np.float64]:
    """(R, V) -> (R, 1)."""
    highest = logits.max(1, keepdims=True).astype(np.float64)
    sums: NDArray[np.float64] = np.exp(logits - highest).sum(1, keepdims=True)
    normalizers: NDArray[np.float64] = highest + np.log(sums)
    return normalizers
