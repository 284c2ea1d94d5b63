"""DFlash2 drafter: a candidate lattice from the target's head and a low-rank selector, on the block forward of
:mod:`specpilot.refengine.block_drafter`.

What it computes is what SGLang 0.5.20 computes (srt/models/dflash.py ``DFlash2DraftModel``):

* **Layer.** ``h = input_layernorm(x)``; the attention convolution makes its coefficients from h, convolves h,
  and after attention convolves the sublayer's output with the other half of the same coefficients; the same
  around the MLP. See ``dflash2_conv.py``. Convolutions never look before row 0.
* **Lattice.** With h_i the final-normed row i (i = 1 .. B-1), the candidates are the K largest logits of the
  *target's* LM head on h_i, and ``score(a -> b) = logit(b) + <P[a] * (W h_i), S[b]>`` for candidate b after
  predecessor a; the first row's predecessor is the anchor. Scores are raw; nothing is normalised over the
  vocabulary.

Row i proposes the token at position P + i, so a block of B rows drafts B - 1 tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import BorrowedTarget, Draft, Lattice
from specpilot.draft.calibration import EdgeCalibration
from specpilot.draft.proposals import ProposeRequest
from specpilot.errors import CheckpointError
from specpilot.refengine.block_drafter import MAX_BLOCK_ROWS, BlockDrafter, check_fit
from specpilot.refengine.checkpoint import read_tensors
from specpilot.refengine.dflash2_checkpoint import draft_shapes
from specpilot.refengine.dflash2_config import DFlash2Config
from specpilot.refengine.dflash2_conv import grouped_conv
from specpilot.refengine.numerics import Projection
from specpilot_kernels.draft_candidates import pair_scores, top_candidates

__all__ = ["DFlash2Drafter", "load_dflash2"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]


class _Selector:
    """Scores transitions between the candidates of neighbouring positions."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        # Ranks are filled up to a multiple of 16 with zeros, which add nothing.
        weights = (tensors[f"candidate_selector.{name}_codebook"] for name in ("predecessor", "successor"))
        self._predecessors, self._successors = (_fill_up(weight, 1).numpy() for weight in weights)
        projection = tensors["candidate_selector.hidden_projection.weight"]
        self._projection = Projection(_fill_up(projection, 0))

    def project(self, hidden: _Array) -> _Array:
        """hidden (R, H) -> what a position contributes to its scores (R, r)."""
        return self._projection.arrays(hidden)

    def edge_scores(self, projected: _Array, logits: _Array, candidate_ids: _Ids, anchor_id: int) -> _Array:
        """projected (D, r), logits and ids of the candidates (D, K) -> scores (D, K, K); the rows of depth 0 are
        equal."""
        return pair_scores(projected, logits, candidate_ids, anchor_id, self._predecessors, self._successors)


def _fill_up(weight: Tensor, axis: int) -> Tensor:
    missing = -weight.shape[axis] % 16
    return F.pad(weight, (0, missing) if axis == 1 else (0, 0, 0, missing)).contiguous()


class DFlash2Drafter(BlockDrafter):
    """A :class:`specpilot.draft.Drafter`; parameters as those of :class:`BlockDrafter`."""

    name = "dflash2"

    def __init__(
        self,
        config: DFlash2Config,
        tensors: dict[str, Tensor],
        target: BorrowedTarget,
        calibration: EdgeCalibration | None = None,
    ) -> None:
        super().__init__(
            config, tensors, target, lambda name: grouped_conv(config, tensors, name), calibration
        )
        self.config = config
        self.block_size, self.max_positions = config.block_size, MAX_BLOCK_ROWS - 1
        self._selector = _Selector(tensors)

    @torch.inference_mode()
    def propose_many(self, requests: Sequence[ProposeRequest]) -> list[Draft]:
        """See :class:`specpilot.draft.proposals.BatchDrafter`: one forward of all blocks.

        Another ``num_positions`` than ``block_size - 1`` runs a block of ``num_positions + 1`` rows, at most
        ``MAX_BLOCK_ROWS``: all rows see each other, so a shorter block is not the beginning of a longer one.
        """
        depths = [
            self.block_size - 1 if request.num_positions is None else request.num_positions
            for request in requests
        ]
        for request, depth in zip(requests, depths, strict=True):
            if not 1 <= depth < MAX_BLOCK_ROWS:
                raise ValueError(f"num_positions: got {depth}, expected 1 to {MAX_BLOCK_ROWS - 1}")
            if request.temperature > 0.0 and request.generator is None:
                raise ValueError(
                    f"generator: got None with temperature {request.temperature}, expected a torch.Generator"
                )
        drafts = []
        for request, lattice in zip(requests, self._lattices(requests, depths), strict=True):
            if request.temperature == 0.0 or request.generator is None:
                draft = Draft(lattice.greedy_chain(), None, lattice)
            else:
                token_ids, q_rows = lattice.sample_chain(request.temperature, request.generator)
                draft = Draft(token_ids, q_rows, lattice)
            drafts.append(self.for_request(request, draft))
        return drafts

    def _lattices(self, requests: Sequence[ProposeRequest], depths: Sequence[int]) -> list[Lattice]:
        """Candidates and raw edge scores of so many positions after each anchor."""
        anchor_ids = [request.anchor_id for request in requests]
        sizes = [depth + 1 for depth in depths]
        hidden = self.block_hidden([request.state for request in requests], anchor_ids, sizes)
        # The anchors' rows propose nothing.
        begins = [0, *itertools.accumulate(sizes[:-1])]
        hidden = hidden[1:] if len(requests) == 1 else np.delete(hidden, begins, 0)
        all_logits = self._target.logits(torch.from_numpy(hidden)).numpy()
        logits, candidate_ids = top_candidates(all_logits, self.config.selector_top_k)
        projected = self._selector.project(hidden)
        lattices, begin = [], 0
        for anchor_id, depth in zip(anchor_ids, depths, strict=True):
            rows = slice(begin, begin + depth)
            edges = self._selector.edge_scores(projected[rows], logits[rows], candidate_ids[rows], anchor_id)
            lattices.append(Lattice(torch.from_numpy(candidate_ids[rows]), torch.from_numpy(edges)))
            begin += depth
        return lattices


def load_dflash2(path: Path, *, target: BorrowedTarget) -> DFlash2Drafter:
    """Read a DFlash2 checkpoint and attach it to its target.

    Parameters
    ----------
    path
        Folder in the Hugging Face layout SGLang 0.5.20 loads: config.json and safetensors.
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
    config = DFlash2Config.read(path)
    if config.block_size > MAX_BLOCK_ROWS:
        raise CheckpointError(
            f"{path}: block_size is {config.block_size}, expected 2 to {MAX_BLOCK_ROWS}, for which there is room"
        )
    check_fit(path, config, target)
    tensors = read_tensors(path, draft_shapes(config))
    return DFlash2Drafter(config, tensors, target, EdgeCalibration.beside(path))
