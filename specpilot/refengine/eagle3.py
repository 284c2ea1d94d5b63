"""EAGLE-3 drafter: one layer that drafts a chain token by token from the target's features and then from its own.

What it computes is what SGLang 0.5.20 computes (srt/models/llama_eagle3.py ``LlamaForCausalLMEagle3``, feeding in
srt/speculative/eagle_worker_v2.py), stated here once for engine and training alike:

* **Pairs.** The features of a committed token t are ``f_t = fc(taps_t)``, the outputs of the tapped target layers (the
  residual stream, no norm) side by side. A *pair* t stands for ``f_t`` beside the target's embedding of the *next*
  token, t + 1, at rotary position t. Its key and value come from ``[input_layernorm(embedding), hidden_norm(f_t)]``.
* **Context.** With P committed tokens, pairs 0 .. P - 2 are complete and lie in the cache; of the last token only
  ``f_{P-1}`` is known and waits in the state: the token that follows it is the anchor. The anchor has no taps yet and
  needs none: the first row of a chain is the pair of ``f_{P-1}`` and the anchor's embedding. When the anchor is
  committed, that pair is written for good from the same numbers.
* **Chain.** Row j at position P - 1 + j takes the token drafted by row j - 1 (the anchor for j = 0) and, in place of
  ``f``, the hidden state of row j - 1: attention over all pairs before it and the chain so far (rotate-half over the
  whole head, no norm of queries and keys), residual, gated MLP, residual. The hidden state handed on is that sum,
  before the final norm. The target's LM head on its norm gives the logits of the token at P + 1 + j.

**Law and lattice.** Every depth offers the 16 largest logits as candidates; a sampled token is drawn from the softmax
over these at the request's temperature, and that law is what verification gets. A chain knows what follows its own
tokens and nothing of what would follow the others, so in the lattice the edge rows of the others are minus infinity:
unknown (:class:`specpilot.draft.Lattice`).

Stock SGLang 0.5.20 loads the checkpoint, but not beside a Qwen3.5 text target: ``Qwen3_5ForCausalLM`` has no
``set_eagle3_layers_to_capture`` there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.draft import BorrowedTarget, Draft, DrafterState, Lattice
from specpilot.errors import CheckpointError, EngineError
from specpilot.refengine.checkpoint import read_tensors
from specpilot.refengine.drafter_fit import refuse_another_targets
from specpilot.refengine.eagle3_checkpoint import eagle3_shapes
from specpilot.refengine.eagle3_config import Eagle3Config
from specpilot.refengine.eagle3_layer import Eagle3Layer
from specpilot_kernels.chain_attention import KvMemory
from specpilot_kernels.draft_candidates import top_candidates

__all__ = ["MAX_CHAIN_ROWS", "NUM_CANDIDATES", "Eagle3Drafter", "Eagle3State", "load_eagle3"]

_Array = NDArray[np.float32]
_Ids = NDArray[np.int64]

MAX_CHAIN_ROWS = 31
"""Longest chain a state leaves room for."""

NUM_CANDIDATES = 16
"""Tokens a depth offers, or the whole vocabulary where it is smaller."""


@dataclass
class Eagle3State:
    """Context of one request. Changed by ``append_context`` only.

    ``feature`` (1, H) belongs to the last of ``num_tokens`` committed tokens and waits for the token after it; None
    without a committed token. The cache holds ``num_tokens - 1`` pairs, rows behind them are scratch.
    """

    cache: KvMemory
    max_tokens: int
    num_tokens: int = 0
    feature: _Array | None = None

    @property
    def memory_bytes(self) -> int:
        return self.cache.memory_bytes


class Eagle3Drafter:
    """A :class:`specpilot.draft.Drafter` on the CPU in float32.

    Parameters
    ----------
    config, tensors
        As read by :func:`load_eagle3`.
    target
        Lends embedding and LM head; in judge mode they must be deterministic.
    num_candidates
        K of the lattice and support of the sampled law.

    A proposal depends on the committed tokens and their taps only, bit for bit, never on how they were split into
    chunks.
    """

    name = "eagle3"

    def __init__(
        self,
        config: Eagle3Config,
        tensors: dict[str, Tensor],
        target: BorrowedTarget,
        num_candidates: int = NUM_CANDIDATES,
    ) -> None:
        self.config = config
        self.block_size, self.max_positions = config.block_size, MAX_CHAIN_ROWS
        self.target_taps = config.tap_layers
        self.memory_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        self.num_candidates = min(num_candidates, config.vocab_size)
        self._target = target
        self._layer = Eagle3Layer(config, tensors)

    @torch.inference_mode()
    def new_state(self, max_tokens: int) -> Eagle3State:
        """Room for ``max_tokens`` committed tokens and one chain."""
        return Eagle3State(self._layer.new_cache(max_tokens + MAX_CHAIN_ROWS), max_tokens)

    @torch.inference_mode()
    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        """Add n committed tokens; taps (n, len(target_taps) * H). See :class:`specpilot.draft.Drafter`."""
        state = _own(state)
        count = token_ids.shape[0]
        expected = (count, len(self.target_taps) * self.config.hidden_size)
        if tuple(taps.shape) != expected:
            raise ValueError(
                f"taps: got shape {tuple(taps.shape)}, expected {expected}: outputs of layers "
                f"{self.target_taps} at {count} tokens"
            )
        if state.num_tokens + count > state.max_tokens:
            raise ValueError(
                f"context: {state.num_tokens} + {count} tokens, expected at most {state.max_tokens}; "
                "make the state with a larger max_tokens"
            )
        if not count:
            return
        features = self._layer.features(taps.float().contiguous().numpy())
        # A token completes the pair of the token before it; the first of all has none before it.
        is_first = state.feature is None
        before = features[:-1] if state.feature is None else np.concatenate((state.feature, features[:-1]))
        if len(before):
            embedded = self._embed(token_ids[1:] if is_first else token_ids)
            self._layer.write_pairs(state.cache, max(state.num_tokens - 1, 0), embedded, before)
        state.feature = features[-1:].copy()
        state.num_tokens += count

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

        A shorter chain is the beginning of a longer one when greedy. A sampled chain advances ``generator`` by
        ``num_positions * num_candidates`` float64 draws, whatever the scores.
        """
        state = _own(state)
        count = self.block_size - 1 if num_positions is None else num_positions
        if not 1 <= count <= MAX_CHAIN_ROWS:
            raise ValueError(f"num_positions: got {count}, expected 1 to {MAX_CHAIN_ROWS}")
        if not 0 <= anchor_id < self.config.vocab_size:
            raise ValueError(
                f"anchor_id: got {anchor_id}, expected a token id below {self.config.vocab_size}"
            )
        if state.feature is None:
            raise ValueError(
                "context: got no committed token, expected at least one: a chain begins with the features of the "
                "token before the anchor"
            )
        if temperature == 0.0:
            return self._draft_greedily(state, state.feature, anchor_id, count)
        if generator is None:
            raise ValueError(
                f"generator: got None with temperature {temperature}, expected a torch.Generator"
            )
        return self._draw(state, state.feature, anchor_id, count, temperature, generator)

    def _draft_greedily(self, state: Eagle3State, hidden: _Array, token_id: int, count: int) -> Draft:
        rows = []
        for depth in range(count):
            hidden, logits = self._step(state, depth, token_id, hidden)
            rows.append(logits)
            token_id = int(logits.argmax())  # the first maximum: the lowest id among equals
        scores, ids = top_candidates(np.concatenate(rows), self.num_candidates)
        return Draft(torch.from_numpy(ids[:, 0].copy()), None, _lattice(ids, scores, [0] * count))

    def _draw(
        self,
        state: Eagle3State,
        hidden: _Array,
        token_id: int,
        count: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Draft:
        # Exponential race: argmax(w / e) has law w / sum(w).
        noise = torch.empty(count, self.num_candidates, dtype=torch.float64)
        races = noise.exponential_(generator=generator).numpy()
        scores, picks = np.empty(races.shape, np.float32), []
        ids, q_rows = np.empty(races.shape, np.int64), np.empty(races.shape)
        for depth in range(count):
            hidden, logits = self._step(state, depth, token_id, hidden)
            scores[depth : depth + 1], ids[depth : depth + 1] = top_candidates(logits, self.num_candidates)
            weights = np.exp((scores[depth].astype(np.float64) - scores[depth, 0]) / temperature)
            q_rows[depth] = weights / weights.sum()
            picks.append(int((weights / races[depth]).argmax()))
            token_id = int(ids[depth, picks[-1]])
        chain = torch.from_numpy(ids[np.arange(count), picks])
        return Draft(chain, torch.from_numpy(q_rows), _lattice(ids, scores, picks))

    def _step(self, state: Eagle3State, depth: int, token_id: int, hidden: _Array) -> tuple[_Array, _Array]:
        """Row ``depth`` of a chain: its hidden state (1, H) and logits (1, V)."""
        position = state.num_tokens - 1 + depth
        hidden = self._layer.step(state.cache, position, self._embed(torch.tensor([token_id])), hidden)
        return hidden, self._target.logits(torch.from_numpy(self._layer.normed(hidden))).numpy()

    def _embed(self, token_ids: Tensor) -> _Array:
        rows: _Array = self._target.embed(token_ids).float().numpy()
        return rows


def _lattice(ids: _Ids, scores: _Array, picks: list[int]) -> Lattice:
    """Candidates (D, K) with the scores the chain saw; ``picks`` are the chain's columns."""
    depth, width = ids.shape
    edges = np.full((depth, width, width), -np.inf, np.float32)
    edges[np.arange(depth), [0, *picks[:-1]]] = scores
    return Lattice(torch.from_numpy(ids), torch.from_numpy(edges))


def _own(state: DrafterState) -> Eagle3State:
    if not isinstance(state, Eagle3State):
        raise EngineError(
            f"drafter state: got {type(state).__name__}, expected Eagle3State; use a state that new_state of this "
            "drafter made"
        )
    return state


def load_eagle3(path: Path, *, target: BorrowedTarget) -> Eagle3Drafter:
    """Read an EAGLE-3 checkpoint and attach it to its target.

    Parameters
    ----------
    path
        Folder in the Hugging Face layout SGLang 0.5.20 loads: config.json and safetensors.
    target
        The loaded target; lends embedding and LM head.

    Raises
    ------
    CheckpointError
        The folder is damaged, the drafter belongs to another target or needs something this engine does not compute;
        the message names the key or tensor.
    """
    path = Path(path)
    config = Eagle3Config.read(path)
    if config.block_size > MAX_CHAIN_ROWS + 1:
        raise CheckpointError(
            f"{path}: block_size is {config.block_size}, expected 2 to {MAX_CHAIN_ROWS + 1}, for which there is room"
        )
    num_layers = target.config.num_layers
    fits = (
        ("vocab_size", config.vocab_size, target.config.vocab_size),
        ("hidden_size", config.hidden_size, target.config.hidden_size),
        ("num_target_layers", config.num_target_layers or num_layers, num_layers),
    )
    refuse_another_targets(path, target, fits)
    config.check_taps(num_layers)
    return Eagle3Drafter(config, read_tensors(path, eagle3_shapes(config)), target)
