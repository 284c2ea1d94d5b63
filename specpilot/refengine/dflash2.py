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

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import BorrowedTarget, Draft, DrafterState, Lattice
from specpilot.errors import CheckpointError
from specpilot.refengine.block_drafter import MAX_BLOCK_ROWS, BlockDrafter, check_fit
from specpilot.refengine.checkpoint import read_tensors
from specpilot.refengine.dflash2_checkpoint import draft_shapes
from specpilot.refengine.dflash2_config import DFlash2Config
from specpilot.refengine.dflash2_conv import GroupedConv
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

    def edge_scores(self, hidden: _Array, logits: _Array, candidate_ids: _Ids, anchor_id: int) -> _Array:
        """hidden (D, H), logits and ids of the candidates (D, K) -> scores (D, K, K); the rows of depth 0 are
        equal."""
        left = self._projection.arrays(hidden)
        return pair_scores(left, logits, candidate_ids, anchor_id, self._predecessors, self._successors)


def _fill_up(weight: Tensor, axis: int) -> Tensor:
    missing = -weight.shape[axis] % 16
    return F.pad(weight, (0, missing) if axis == 1 else (0, 0, 0, missing)).contiguous()


class DFlash2Drafter(BlockDrafter):
    """A :class:`specpilot.draft.Drafter`; parameters as those of :class:`BlockDrafter`."""

    name = "dflash2"

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], target: BorrowedTarget) -> None:
        super().__init__(config, tensors, target, lambda name: GroupedConv(config, tensors, name))
        self.config = config
        self.block_size, self.max_positions = config.block_size, MAX_BLOCK_ROWS - 1
        self._selector = _Selector(tensors)

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

        Another ``num_positions`` than ``block_size - 1`` runs a block of ``num_positions + 1`` rows, at most
        ``MAX_BLOCK_ROWS``: all rows see each other, so a shorter block is not the beginning of a longer one.
        """
        lattice = self.build_lattice(
            state, anchor_id, self.block_size - 1 if num_positions is None else num_positions
        )
        if temperature == 0.0:
            return Draft(lattice.greedy_chain(), None, lattice)
        if generator is None:
            raise ValueError(
                f"generator: got None with temperature {temperature}, expected a torch.Generator"
            )
        token_ids, q_rows = lattice.sample_chain(temperature, generator)
        return Draft(token_ids, q_rows, lattice)

    @torch.inference_mode()
    def build_lattice(self, state: DrafterState, anchor_id: int, num_positions: int) -> Lattice:
        """Candidates and raw edge scores of ``num_positions`` positions after the anchor."""
        if not 1 <= num_positions < MAX_BLOCK_ROWS:
            raise ValueError(f"num_positions: got {num_positions}, expected 1 to {MAX_BLOCK_ROWS - 1}")
        hidden = self.block_hidden(state, anchor_id, num_positions + 1)[1:]
        all_logits = self._target.logits(torch.from_numpy(hidden)).numpy()
        logits, candidate_ids = top_candidates(all_logits, self.config.selector_top_k)
        edges = self._selector.edge_scores(hidden, logits, candidate_ids, anchor_id)
        return Lattice(torch.from_numpy(candidate_ids), torch.from_numpy(edges))


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
    return DFlash2Drafter(config, read_tensors(path, draft_shapes(config)), target)
