"""DSpark drafter: a chain over the whole vocabulary by a Markov head, on the block forward of
:mod:`specpilot.refengine.block_drafter`.

What it computes is what SGLang 0.5.20 computes (srt/models/dspark.py, sampling in
srt/speculative/dspark_components/dspark_draft.py, confidence in dspark_planner.py), stated here once for engine and
training alike:

* **Block.** gamma rows, and row i proposes the token at position P + i + 1: the anchor's own row drafts too.
* **Chain.** With h_i the final-normed row i and U_i the *target's* LM head on it, the scores of the token after a are
  ``l_i(y | a) = U_i(y) + <W1[a], W2[y]>`` over the whole vocabulary. The first predecessor is the anchor, every other
  the token the chain took before. Greedy takes the largest score, the lowest id among equals. Sampled draws from
  softmax(l_i / temperature) over the whole vocabulary; that law is what verification gets.
* **Lattice.** The candidates at depth i are the 16 tokens with the largest scores after the chain's own token, the last
  one giving way to the chain's token where a sampled chain took a token outside. Their edges are raw scores
  l_i(y | a) for every candidate a of the depth before, so trees know what follows a candidate the chain left aside,
  but only towards tokens that are likely after the chain.
* **Confidence.** ``c_i = sigmoid(w . [h_i, W1[a_i]] + b)`` estimates the probability that the target accepts the
  token of row i when all before it were accepted; their products are the draft's ``survival``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import BorrowedTarget, Draft, DrafterState, Lattice
from specpilot.errors import CheckpointError
from specpilot.refengine.block_drafter import MAX_BLOCK_ROWS, BlockDrafter, check_fit
from specpilot.refengine.checkpoint import read_tensors, tensor_names
from specpilot.refengine.dspark_checkpoint import borrowed_shapes, dspark_shapes
from specpilot.refengine.dspark_config import DSparkConfig
from specpilot.refengine.numerics import Projection
from specpilot_kernels.draft_candidates import pair_scores, top_candidates

__all__ = ["NUM_CANDIDATES", "DSparkDrafter", "load_dspark"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]

NUM_CANDIDATES = 16
"""Width of the lattice, where the vocabulary is not smaller."""


class _MarkovHead:
    """What the token before adds to the scores."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        # Ranks are filled up to a multiple of 16 with zeros, which add nothing.
        weights = (tensors[f"markov_head.markov_{name}.weight"] for name in ("w1", "w2"))
        w1, w2 = (F.pad(weight, (0, -weight.shape[1] % 16)).contiguous() for weight in weights)
        self._w1, self._w2 = w1.numpy(), w2.numpy()
        self._to_vocabulary = Projection(w2)

    def rows(self, token_ids: _Ids) -> _Array:
        """Rows of W1, filled up; ids (D,) -> (D, r)."""
        picked: _Array = self._w1[token_ids]
        return picked

    def bias(self, token_id: int) -> _Array:
        """What follows a token: (V,)."""
        bias: _Array = self._to_vocabulary.arrays(self._w1[token_id : token_id + 1])[0]
        return bias

    def edge_scores(self, base: _Array, candidate_ids: _Ids, anchor_id: int) -> _Array:
        """Base logits (D, V), candidates (D, K) -> scores (D, K, K); the rows of depth 0 are equal."""
        logits = np.take_along_axis(base, candidate_ids, 1)
        left = np.ones((len(base), self._w1.shape[1]), np.float32)
        return pair_scores(left, logits, candidate_ids, anchor_id, self._w1, self._w2)


class _ConfidenceHead:
    def __init__(self, config: DSparkConfig, tensors: dict[str, Tensor]) -> None:
        weight, rank = tensors["confidence_head.proj.weight"], config.markov_rank
        fill = -rank % 16 if config.confidence_with_markov else 0
        self._weight: _Array = F.pad(weight, (0, fill)).numpy()[0]
        self._bias = float(tensors["confidence_head.proj.bias"])
        self._with_markov = config.confidence_with_markov

    def survival(self, hidden: _Array, predecessor_rows: _Array) -> Tensor:
        """hidden (D, H), rows of W1 (D, r) -> probability that drafts 0 .. i are all accepted, float32, (D,)."""
        features = np.concatenate((hidden, predecessor_rows), 1) if self._with_markov else hidden
        logits = (features * self._weight).sum(1) + self._bias
        return torch.from_numpy(np.cumprod(1.0 / (1.0 + np.exp(-logits)), dtype=np.float32))


class DSparkDrafter(BlockDrafter):
    """A :class:`specpilot.draft.Drafter`; parameters as those of :class:`BlockDrafter`."""

    name = "dspark"

    def __init__(self, config: DSparkConfig, tensors: dict[str, Tensor], target: BorrowedTarget) -> None:
        super().__init__(config, tensors, target)
        self.config = config
        self.block_size, self.max_positions = config.block_size + 1, MAX_BLOCK_ROWS
        self.num_candidates = min(NUM_CANDIDATES, config.vocab_size)
        self._markov = _MarkovHead(tensors)
        self._confidence = _ConfidenceHead(config, tensors) if config.has_confidence else None
        self._vocabulary = torch.arange(config.vocab_size)

    @torch.inference_mode()
    def propose(
        self,
        state: DrafterState,
        anchor_id: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        num_positions: int | None = None,
    ) -> Draft:
        """Draft ``num_positions`` tokens after the anchor. See :class:`specpilot.draft.Drafter`.

        Another ``num_positions`` than gamma runs a block of so many rows, at most ``MAX_BLOCK_ROWS``: all rows see each
        other, so a shorter block is not the beginning of a longer one. A sampled draft's law stands over the whole
        vocabulary; ``generator`` is advanced by one float64 draw a position.
        """
        depth = self.config.block_size if num_positions is None else num_positions
        if not 1 <= depth <= MAX_BLOCK_ROWS:
            raise ValueError(f"num_positions: got {depth}, expected 1 to {MAX_BLOCK_ROWS}")
        if temperature > 0.0 and generator is None:
            raise ValueError(
                f"generator: got None with temperature {temperature}, expected a torch.Generator"
            )
        hidden = self.block_hidden(state, anchor_id, depth)
        base = self._target.logits(torch.from_numpy(hidden)).numpy()
        uniforms = None
        if temperature > 0.0:
            uniforms = torch.rand(depth, dtype=torch.float64, generator=generator).tolist()
        chain, scores, q_rows = self._walk(base, anchor_id, temperature, uniforms)
        _, candidate_ids = top_candidates(scores, self.num_candidates)
        left_out = ~(candidate_ids == chain[:, None]).any(1)
        candidate_ids[left_out, -1] = chain[left_out]
        edges = self._markov.edge_scores(base, candidate_ids, anchor_id)
        before = np.concatenate(([anchor_id], chain[:-1]))
        return Draft(
            token_ids=torch.from_numpy(chain),
            q_rows=None if q_rows is None else torch.from_numpy(q_rows),
            lattice=Lattice(torch.from_numpy(candidate_ids), torch.from_numpy(edges)),
            q_ids=None if q_rows is None else self._vocabulary.expand(depth, -1),
            survival=None
            if self._confidence is None
            else self._confidence.survival(hidden, self._markov.rows(before)),
        )

    def _walk(
        self, base: _Array, anchor_id: int, temperature: float, uniforms: list[float] | None
    ) -> tuple[_Ids, _Array, NDArray[np.float64] | None]:
        """Base logits (D, V) -> chain (D,), its score rows (D, V), and its laws (D, V), None for a greedy chain."""
        chain, scores = np.empty(len(base), np.int64), np.empty_like(base)
        q_rows = None if uniforms is None else np.empty(base.shape, np.float64)
        token = anchor_id
        for depth, row in enumerate(scores):
            np.add(base[depth], self._markov.bias(token), out=row)
            if uniforms is None or q_rows is None:
                token = int(row.argmax())  # the first of equals
            else:
                weights = np.exp((row.astype(np.float64) - float(row.max())) / temperature)
                sums = weights.cumsum()
                q_rows[depth] = weights / sums[-1]
                # The first token whose sum exceeds the draw has a weight above zero.
                token = int(np.searchsorted(sums, uniforms[depth] * sums[-1], side="right"))
            chain[depth] = token
        return chain, scores, q_rows


def load_dspark(path: Path, *, target: BorrowedTarget) -> DSparkDrafter:
    """Read a DSpark checkpoint and attach it to its target.

    Parameters
    ----------
    path
        Folder in the Hugging Face layout SGLang 0.5.20 loads: config.json and safetensors. Copies of the target's
        embedding and head may be in it; SGLang skips them, here they must agree with the target.
    target
        The loaded target; lends embedding and LM head.

    Raises
    ------
    CheckpointError
        The folder is damaged or the drafter belongs to another target; the message names the key or tensor.
    Unsupported
        The drafter or the target's class needs something this engine does not compute.
    """
    path = Path(path)
    config = DSparkConfig.read(path)
    if config.block_size > MAX_BLOCK_ROWS:
        raise CheckpointError(
            f"{path}: block_size is {config.block_size}, expected 1 to {MAX_BLOCK_ROWS}, for which there is room"
        )
    check_fit(path, config, target)
    names = tensor_names(path)
    copies = {name: shape for name, shape in borrowed_shapes(config).items() if name in names}
    tensors = read_tensors(path, dspark_shapes(config) | copies)
    _check_copies(path, {name: tensors.pop(name) for name in copies}, target)
    return DSparkDrafter(config, tensors, target)


def _check_copies(path: Path, copies: dict[str, Tensor], target: BorrowedTarget) -> None:
    """Copies of the target's embedding (row by row) and head (by what it makes of random rows)."""
    probe = torch.randn(2, target.config.hidden_size, generator=torch.Generator().manual_seed(0))
    for name, copy in copies.items():
        if name == "embed_tokens.weight":
            is_equal = torch.equal(target.embed(torch.arange(len(copy))).float(), copy)
        else:
            is_equal = torch.allclose(target.logits(probe), probe @ copy.T, rtol=1e-3, atol=1e-3)
        if not is_equal:
            raise CheckpointError(
                f"{path}: {name}: differs from the target's; this drafter was trained for another target"
            )
