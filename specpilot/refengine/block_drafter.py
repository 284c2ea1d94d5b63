"""What the block drafters (DFlash2, DSpark) of the reference engine share: context, block and fit to the target.

What they compute is what SGLang 0.5.20 computes (srt/models/dflash.py, block building and context in
srt/speculative/dflash_worker_v2.py), stated here once for engine and training alike:

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
* **Layer.** ``x += attention(input_layernorm(x))``, then ``x += mlp(post_attention_layernorm(x))``; DFlash2 wraps
  both sublayers in a convolution over the rows.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import BorrowedTarget, Draft, DrafterState
from specpilot.draft.calibration import EdgeCalibration
from specpilot.draft.proposals import ProposeRequest
from specpilot.errors import EngineError
from specpilot.refengine.block_backbone import Backbone, ContextCache
from specpilot.refengine.block_config import BlockConfig, resolve_target_taps, tap_convention
from specpilot.refengine.drafter_fit import refuse_another_targets
from specpilot_kernels.block_layer import ConvWeights

__all__ = ["MAX_BLOCK_ROWS", "BlockDrafter", "BlockState", "check_fit"]

_Array = NDArray[np.float32]

MAX_BLOCK_ROWS = 32
"""Longest block a state leaves room for, anchor included."""


@dataclass
class BlockState:
    """Context of one request: its keys and values. Changed by ``append_context`` only."""

    cache: ContextCache
    max_tokens: int

    @property
    def num_tokens(self) -> int:
        """Committed tokens in the context."""
        return self.cache.length

    @property
    def memory_bytes(self) -> int:
        return self.cache.memory.memory_bytes


class BlockDrafter(ABC):
    """The part of a :class:`specpilot.draft.Drafter` up to the hidden rows of a block, on the CPU in float32.

    Parameters
    ----------
    config, tensors
        As read from the checkpoint.
    target
        Lends embedding and LM head; in judge mode they must be deterministic.
    conv_of
        See :class:`specpilot.refengine.block_backbone.Backbone`.
    calibration
        Makes acceptance probabilities of the edges of a tree's lattice; None: they stay the drafter's own.

    A proposal depends on the committed tokens and their taps only, bit for bit, never on how they were split into
    chunks.
    """

    def __init__(
        self,
        config: BlockConfig,
        tensors: dict[str, Tensor],
        target: BorrowedTarget,
        conv_of: Callable[[str], ConvWeights | None] = lambda name: None,
        calibration: EdgeCalibration | None = None,
    ) -> None:
        self.calibration = calibration
        self.target_taps = resolve_target_taps(
            target.architecture, config.target_layer_ids, target.config.num_layers
        )
        self.memory_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        self._block_config, self._target = config, target
        self._backbone = Backbone(config, tensors, conv_of)
        self._mask_row: _Array = target.embed(torch.tensor([config.mask_token_id])).float().numpy()

    @torch.inference_mode()
    def new_state(self, max_tokens: int) -> BlockState:
        """Room for ``max_tokens`` committed tokens and one block."""
        return BlockState(self._backbone.new_cache(max_tokens + MAX_BLOCK_ROWS), max_tokens)

    @torch.inference_mode()
    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        """Add n committed tokens; taps (n, len(target_taps) * H). See :class:`specpilot.draft.Drafter`."""
        state = _own(state)
        expected = (token_ids.shape[0], len(self.target_taps) * self._block_config.hidden_size)
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

    @abstractmethod
    def propose_many(self, requests: Sequence[ProposeRequest]) -> list[Draft]:
        """See :class:`specpilot.draft.proposals.BatchDrafter`: one forward of all blocks."""

    def propose(
        self,
        state: DrafterState,
        anchor_id: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        num_positions: int | None = None,
    ) -> Draft:
        """See :class:`specpilot.draft.Drafter`, and :meth:`propose_many` for the lengths there are."""
        [draft] = self.propose_many([ProposeRequest(state, anchor_id, temperature, generator, num_positions)])
        return draft

    def propose_tree(self, state: DrafterState, anchor_id: int, *, num_positions: int | None = None) -> Draft:
        """The greedy draft with the lattice calibrated. See :class:`specpilot.draft.TreeDrafter`."""
        request = ProposeRequest(state, anchor_id, num_positions=num_positions, is_tree=True)
        [draft] = self.propose_many([request])
        return draft

    def mark(self, state: DrafterState) -> object:
        """The number of tokens in the context. See :class:`specpilot.draft.Drafter`."""
        return _own(state).cache.length

    def rewind(self, state: DrafterState, mark: object) -> None:
        """Cut the context off: rows behind its length are scratch. See :class:`specpilot.draft.Drafter`."""
        cache = _own(state).cache
        if not isinstance(mark, int) or not 0 <= mark <= cache.length:
            raise EngineError(f"drafter mark: got {mark!r}, expected 0 to {cache.length} tokens")
        cache.length = mark

    def for_request(self, request: ProposeRequest, draft: Draft) -> Draft:
        """The draft with its lattice as the request has use for it."""
        if not request.is_tree or self.calibration is None:
            return draft
        return replace(draft, lattice=self.calibration.apply(draft.lattice))

    def block_hidden(
        self, states: Sequence[DrafterState], anchor_ids: Sequence[int], sizes: Sequence[int]
    ) -> _Array:
        """Run a block behind the context of each request -> hidden rows (sum of sizes, H) after the final norm."""
        vocab_size = self._block_config.vocab_size
        for anchor_id in anchor_ids:
            if not 0 <= anchor_id < vocab_size:
                raise ValueError(f"anchor_id: got {anchor_id}, expected a token id below {vocab_size}")
        rows = np.repeat(self._mask_row, sum(sizes), 0)
        begins = [0, *itertools.accumulate(sizes[:-1])]
        rows[begins] = self._target.embed(torch.tensor(anchor_ids)).float().numpy()
        return self._backbone.forward([_own(state).cache for state in states], rows, sizes)


def _own(state: DrafterState) -> BlockState:
    if not isinstance(state, BlockState):
        raise EngineError(
            f"drafter state: got {type(state).__name__}, expected BlockState; use a state that new_state of this "
            "drafter made"
        )
    return state


def check_fit(path: Path, config: BlockConfig, target: BorrowedTarget) -> None:
    """Refuse a drafter that was trained for another target.

    Raises
    ------
    CheckpointError
        The message names the key.
    Unsupported
        The target's class has no known tap convention.
    """
    convention = tap_convention(target.architecture)
    fits = (
        ("vocab_size", config.vocab_size, target.config.vocab_size),
        ("hidden_size", config.hidden_size, target.config.hidden_size),
        ("num_target_layers", config.num_target_layers, target.config.num_layers),
        ("target_tap_convention", config.target_tap_convention or convention, convention),
    )
    refuse_another_targets(path, target, fits)
    resolve_target_taps(target.architecture, config.target_layer_ids, target.config.num_layers)
