"""DFlash2 drafter: one bidirectional block forward, a candidate lattice from the target's head and a low-rank
selector.

What it computes is what SGLang 0.5.20 computes (srt/models/dflash.py ``DFlash2DraftModel``, block building
and context in srt/speculative/dflash_worker_v2.py), stated here once for engine and training alike:

* **Context.** For every committed token before the anchor, the outputs of the tapped target layers (the
  residual stream, no norm) stand side by side and become a feature ``f = hidden_norm(fc(taps))``. A layer's
  context key and value are its ``k_proj f`` and ``v_proj f`` directly - no input norm, no convolution - with
  ``k_norm`` and rotary at the token's position.
* **Block.** Row 0 is the target's embedding of the anchor, the last committed token; the other rows are the
  target's embedding of the mask token. With P tokens before the anchor, row i has position P + i. The anchor
  has no taps yet: its keys and values come from its embedding through the block, like those of the mask rows.
* **Attention** is full over the context and bidirectional within the block; nothing else is visible. Rotary
  is rotate-half over the whole head with the drafter's own base, after the per-head RMS norms of queries and
  keys. Norms are plain (times weight).
* **Layer.** ``h = input_layernorm(x)``; the attention convolution makes its coefficients from h, convolves h,
  and after attention convolves the sublayer's output with the other half of the same coefficients; the same
  around the MLP. See ``dflash2_backbone.py``. Convolutions never look
  before row 0.
* **Lattice.** With h_i the final-normed row i (i = 1 .. B-1), the candidates are the K largest logits of the
  *target's* LM head on h_i, and ``score(a -> b) = logit(b) + <P[a] * (W h_i), S[b]>`` for candidate b after
  predecessor a; the first row's predecessor is the anchor. Scores are raw; nothing is normalised over the
  vocabulary.

Row i proposes the token at position P + i, so a block of B rows drafts B - 1 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import BorrowedTarget, Draft, DrafterState, Lattice
from specpilot.errors import CheckpointError, EngineError
from specpilot.refengine.checkpoint import read_tensors
from specpilot.refengine.dflash2_backbone import Backbone, ContextCache
from specpilot.refengine.dflash2_checkpoint import draft_shapes
from specpilot.refengine.dflash2_config import DFlash2Config, resolve_target_taps, tap_convention
from specpilot.refengine.numerics import Projection
from specpilot_kernels.draft_candidates import pair_scores, top_candidates

__all__ = ["MAX_BLOCK_ROWS", "DFlash2Drafter", "DFlash2State", "load_dflash2"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]

MAX_BLOCK_ROWS = 32
"""Longest block a state leaves room for, anchor included."""


@dataclass
class DFlash2State:
    """Context of one request: its keys and values. Changed by ``append_context`` only."""

    cache: ContextCache
    max_tokens: int

    @property
    def num_tokens(self) -> int:
        """Committed tokens in the context."""
        return self.cache.length

    @property
    def memory_bytes(self) -> int:
        return self.cache.keys.nbytes + self.cache.values.nbytes


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


class DFlash2Drafter:
    """A :class:`specpilot.draft.Drafter` on the CPU in float32.

    Parameters
    ----------
    config, tensors
        As read by :func:`load_dflash2`.
    target
        Lends embedding and LM head; in judge mode they must be deterministic.

    A proposal depends on the committed tokens and their taps only, bit for bit, never on how they were split into
    chunks.
    """

    name = "dflash2"

    def __init__(self, config: DFlash2Config, tensors: dict[str, Tensor], target: BorrowedTarget) -> None:
        self.config = config
        self.block_size = config.block_size
        self.target_taps = resolve_target_taps(
            target.architecture, config.target_layer_ids, target.config.num_layers
        )
        self.memory_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        self._target = target
        self._backbone = Backbone(config, tensors)
        self._selector = _Selector(tensors)
        self._mask_row: _Array = target.embed(torch.tensor([config.mask_token_id])).float().numpy()

    @torch.inference_mode()
    def new_state(self, max_tokens: int) -> DFlash2State:
        """Room for ``max_tokens`` committed tokens and one block."""
        return DFlash2State(self._backbone.new_cache(max_tokens + MAX_BLOCK_ROWS), max_tokens)

    @torch.inference_mode()
    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        """Add n committed tokens; taps (n, len(target_taps) * H). See :class:`specpilot.draft.Drafter`."""
        state = _own(state)
        expected = (token_ids.shape[0], len(self.target_taps) * self.config.hidden_size)
        if tuple(taps.shape) != expected:
            raise ValueError(
                f"taps: got shape {tuple(taps.shape)}, expected {expected}: outputs of layers "
                f"{self.target_taps} at {expected[0]} tokens"
            )
        if state.num_tokens + expected[0] > state.max_tokens:
            raise ValueError(
                f"context: {state.num_tokens} + {expected[0]} tokens, expected at most {state.max_tokens}; "
                "make the state with a larger max_tokens"
            )
        if expected[0]:
            self._backbone.append_context(state.cache, taps.float().contiguous().numpy())

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
            _own(state), anchor_id, self.block_size - 1 if num_positions is None else num_positions
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
    def build_lattice(self, state: DFlash2State, anchor_id: int, num_positions: int) -> Lattice:
        """Candidates and raw edge scores of ``num_positions`` positions after the anchor."""
        if not 1 <= num_positions < MAX_BLOCK_ROWS:
            raise ValueError(f"num_positions: got {num_positions}, expected 1 to {MAX_BLOCK_ROWS - 1}")
        if not 0 <= anchor_id < self.config.vocab_size:
            raise ValueError(
                f"anchor_id: got {anchor_id}, expected a token id below {self.config.vocab_size}"
            )
        rows = np.repeat(self._mask_row, num_positions + 1, 0)
        rows[0] = self._target.embed(torch.tensor([anchor_id])).float().numpy()
        hidden = self._backbone.forward(state.cache, rows)[1:]
        all_logits = self._target.logits(torch.from_numpy(hidden)).numpy()
        logits, candidate_ids = top_candidates(all_logits, self.config.selector_top_k)
        edges = self._selector.edge_scores(hidden, logits, candidate_ids, anchor_id)
        return Lattice(torch.from_numpy(candidate_ids), torch.from_numpy(edges))


def _own(state: DrafterState) -> DFlash2State:
    if not isinstance(state, DFlash2State):
        raise EngineError(
            f"drafter state: got {type(state).__name__}, expected DFlash2State; use a state that new_state of this "
            "drafter made"
        )
    return state


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
    convention = tap_convention(target.architecture)
    fits: tuple[tuple[str, object, object], ...] = (
        ("vocab_size", config.vocab_size, target.config.vocab_size),
        ("hidden_size", config.hidden_size, target.config.hidden_size),
        ("num_target_layers", config.num_target_layers, target.config.num_layers),
        ("target_tap_convention", config.target_tap_convention or convention, convention),
    )
    for key, got, expected in fits:
        if got != expected:
            raise CheckpointError(
                f"{path}: {key}: got {got!r}, expected {expected!r} as in the target "
                f"({target.architecture}); this drafter was trained for another target"
            )
    resolve_target_taps(target.architecture, config.target_layer_ids, target.config.num_layers)
    return DFlash2Drafter(config, read_tensors(path, draft_shapes(config)), target)
