"""The Qwen3.5 text target on PyTorch: embedding, layers, final norm, head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.errors import ConfigError, EngineError, RequestError, Unsupported
from specpilot.refengine.attention import Block, GatedAttention
from specpilot.refengine.checkpoint import read_tensors, target_shapes
from specpilot.refengine.config import ARCHITECTURE, TargetConfig
from specpilot.refengine.gdn_layer import GatedDeltaNet
from specpilot.refengine.gdn_rules import ChunkRule, DeltaRule, KernelRule, PrefixRule, RecurrentRule
from specpilot.refengine.mlp import Mlp
from specpilot.refengine.norm import RmsNorm
from specpilot.refengine.numerics import JUDGE_TILES, Projection, Rows, find_invariant_tile, tiles
from specpilot.refengine.rope import rotation_table
from specpilot.refengine.state import SequenceState

__all__ = ["KERNEL_ROWS", "SERVE_BLOCK_ROWS", "Layer", "TargetModel", "TargetOutput", "load_target"]

KERNEL_ROWS = 32
"""Up to this many rows serve mode runs the recurrence in order, in the compiled kernel; above, in chunks."""
SERVE_BLOCK_ROWS = 512
"""Rows that run through the layers together in serve mode; a multiple of ``ChunkRule.max_rows``."""


@dataclass(frozen=True)
class TargetOutput:
    """Result of a forward over T rows.

    Attributes
    ----------
    hidden : Tensor, (T, hidden_size)
        After the final norm.
    taps : Tensor, (T, len(taps) * hidden_size)
        Residual stream after each tapped layer, side by side in the order asked for.
    """

    hidden: Tensor
    taps: Tensor


class Layer:
    """x += mixer(norm(x)); x += mlp(norm(x))."""

    def __init__(
        self, weights: Mapping[str, Tensor], config: TargetConfig, mixer: GatedAttention | GatedDeltaNet
    ) -> None:
        self.mixer = mixer
        self.mlp = Mlp(*(weights[f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down")))
        self.norms = [
            RmsNorm(1 + weights[f"{name}_layernorm.weight"], config.norm_eps)
            for name in ("input", "post_attention")
        ]

    def arrays(
        self,
        x: NDArray[np.float32],
        position: int,
        rotation: NDArray[np.float32],
        state: SequenceState,
        index: int,
    ) -> None:
        """Advance rows x (T, hidden) in place, in compiled kernels."""
        normed = self.norms[0].arrays(x)
        if isinstance(self.mixer, GatedAttention):
            x += self.mixer.arrays(normed, position, rotation, state.kv[index])
        else:
            x += self.mixer.arrays(normed, state)
        x += self.mlp.arrays(self.norms[1].arrays(x))

    def __call__(
        self, x: Tensor, block: Block, state: SequenceState, rule: DeltaRule, attention_index: int
    ) -> Tensor:
        normed = self.norms[0](x)
        if isinstance(self.mixer, GatedAttention):
            mixed = self.mixer(normed, block, state.kv[attention_index])
        else:
            mixed = self.mixer(normed, block.num_rows, state, rule)
        x = mixed.add_(x)
        return self.mlp(self.norms[1](x)).add_(x)


class TargetModel:
    """A target with its weights in one numeric mode. Any number of sequences; one forward at a time.

    Results are inference tensors (a quarter less time per small operation): autograd does not take them, and
    they are changed in place only under ``torch.inference_mode``.

    Attributes
    ----------
    config : TargetConfig
    mode : "judge" or "serve"
    judge_tile : int or None
        Rows of the fixed tile that judge mode proved invariant at load; None in serve mode.
    """

    def __init__(self, config: TargetConfig, tensors: Mapping[str, Tensor], mode: NumericMode) -> None:
        if mode not in ("judge", "serve"):
            raise ConfigError(f"numeric mode: got {mode!r}, expected 'judge' or 'serve'")
        self.config, self.mode = config, mode
        self._embedding = tensors["model.embed_tokens.weight"]
        self._dtype = self._embedding.dtype
        self._norm = RmsNorm(1 + tensors["model.norm.weight"], config.norm_eps)
        self._head = Projection(self._embedding if config.tie_word_embeddings else tensors["lm_head.weight"])
        self._rotation = rotation_table(
            config.context_length, config.rotary_dim, config.rope_theta, self._dtype
        )
        # Complex numbers as cosine and sine side by side.
        self._rotation_array = torch.view_as_real(self._rotation).contiguous().numpy()
        self._rows_rule, self._prompt_rule = self._choose_rules()
        self._layers: list[Layer] = []
        self._kind_index: list[int] = []
        for number, layer_type in enumerate(config.layer_types):
            index = config.layer_types[:number].count(layer_type)
            weights = _subset(tensors, f"model.layers.{number}.")
            mixer: GatedAttention | GatedDeltaNet
            if layer_type == "full_attention":
                mixer = GatedAttention(_subset(weights, "self_attn."), config, by_row=mode == "judge")
            else:
                mixer = GatedDeltaNet(_subset(weights, "linear_attn."), config, index)
            self._layers.append(Layer(weights, config, mixer))
            self._kind_index.append(index)
        self.judge_tile: int | None = None
        if mode == "judge":
            with torch.inference_mode():
                self.judge_tile = find_invariant_tile(self._row_functions(), self._dtype)
            self._rows_rule.max_rows = self._prompt_rule.max_rows = self.judge_tile

    @property
    def architecture(self) -> str:
        """Class name in the checkpoint's ``architectures``; drafters resolve their tap convention from it."""
        return ARCHITECTURE

    def new_state(self, max_tokens: int) -> SequenceState:
        """Empty state of a sequence of at most ``max_tokens`` tokens; RequestError beyond the context
        length."""
        return SequenceState(self.config, max_tokens, self._dtype)

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """(T,) int64 -> (T, hidden_size); RequestError for an id outside the vocabulary."""
        try:
            return F.embedding(ids, self._embedding)
        except IndexError:
            raise RequestError(
                f"token ids: got {int(ids.min())} to {int(ids.max())}, "
                f"expected 0 to {self.config.vocab_size - 1}"
            ) from None

    @torch.inference_mode()
    def forward(self, ids: Tensor, state: SequenceState, *, taps: tuple[int, ...] = ()) -> TargetOutput:
        """Run T tokens that follow the committed ones, each seeing all before it.

        The rows stay pending until ``state.commit``.

        Parameters
        ----------
        ids : Tensor, (T,), int64
            T >= 1; together with the committed tokens at most ``state.max_tokens``.
        state
            Made by :meth:`new_state` of this model, nothing pending.
        taps
            Layers, counted from 0, whose output is wanted.
        """
        for tap in taps:
            if not 0 <= tap < self.config.num_layers:
                raise EngineError(f"taps: got layer {tap}, expected 0 to {self.config.num_layers - 1}")
        rows = self.embed(ids)
        rule = self._rows_rule if ids.shape[0] <= self._rows_rule.max_rows else self._prompt_rule
        state.open_rows(ids.shape[0], rule)
        block_rows = self.judge_tile or SERVE_BLOCK_ROWS
        outputs = []
        for first in range(0, ids.shape[0], block_rows):
            block = rows[first : first + block_rows]
            outputs.append(self._run_block(block, state.num_tokens + first, state, rule, taps))
        if len(outputs) == 1:
            return outputs[0]
        return TargetOutput(torch.cat([o.hidden for o in outputs]), torch.cat([o.taps for o in outputs]))

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """(R, hidden_size) -> (R, vocab_size), float32."""
        if self.judge_tile is None:
            return self._head(hidden).float()
        parts = [self._head(part) for part in tiles(hidden, self.judge_tile)]
        return torch.cat(parts)[: hidden.shape[0]].float()

    def _run_block(
        self, x: Tensor, position: int, state: SequenceState, rule: PrefixRule, taps: tuple[int, ...]
    ) -> TargetOutput:
        if isinstance(rule, KernelRule):
            return self._run_rows(x, position, state, taps)
        num_rows = x.shape[0]
        rotation = self._rotation[position : position + num_rows]
        if self.judge_tile is not None:
            (x,) = tiles(x, self.judge_tile)
            rotation = F.pad(rotation, (0, 0, 0, self.judge_tile - num_rows))
        block = Block(position, num_rows, rotation.unsqueeze(1))
        tapped: dict[int, Tensor] = {}
        for number, layer in enumerate(self._layers):
            x = layer(x, block, state, cast(DeltaRule, rule), self._kind_index[number])
            if number in taps:
                tapped[number] = x[:num_rows]
        outputs = [tapped[tap] for tap in taps]
        return TargetOutput(
            self._norm(x)[:num_rows], torch.cat(outputs, 1) if outputs else x.new_empty(num_rows, 0)
        )

    def _run_rows(
        self, x: Tensor, position: int, state: SequenceState, taps: tuple[int, ...]
    ) -> TargetOutput:
        """Few rows, or in judge mode any, in kernels whose rows do not depend on each other's company."""
        rows = np.array(x.numpy())
        tapped: dict[int, NDArray[np.float32]] = {}
        for number, layer in enumerate(self._layers):
            layer.arrays(rows, position, self._rotation_array, state, self._kind_index[number])
            if number in taps:
                tapped[number] = rows.copy()
        joined = np.concatenate([tapped[tap] for tap in taps], 1) if taps else rows[:, :0]
        return TargetOutput(torch.from_numpy(self._norm.arrays(rows)), torch.from_numpy(joined))

    def _choose_rules(self) -> tuple[PrefixRule, PrefixRule]:
        """How the recurrence runs for few rows and for a longer part of a prompt."""
        if self.mode == "judge":
            # One rule for any number of rows: their bits must not tell how they came.
            is_exact = self._dtype == torch.float64
            rule: PrefixRule = RecurrentRule(JUDGE_TILES[0]) if is_exact else KernelRule(JUDGE_TILES[0])
            return rule, rule
        if self._dtype == torch.float64:
            return ChunkRule(), ChunkRule()
        return KernelRule(KERNEL_ROWS), ChunkRule()

    def _row_functions(self) -> list[tuple[Rows, int]]:
        """One function for every distinct shape of row-wise work: each mixer kind once, norm, feed-forward
        and head."""
        hidden = self.config.hidden_size
        functions: list[tuple[Rows, int]] = [(self._norm, hidden), (self._head, hidden)]
        functions += self._layers[0].mlp.row_functions()
        for kind in (GatedDeltaNet, GatedAttention):
            mixers = [layer.mixer for layer in self._layers if isinstance(layer.mixer, kind)]
            functions += mixers[0].row_functions() if mixers else []
        return functions


def load_target(path: str | Path, *, mode: NumericMode, dtype: torch.dtype = torch.float32) -> TargetModel:
    """Load a target from a model folder.

    Parameters
    ----------
    path
        Folder with ``config.json`` and safetensors weights in the Hugging Face layout.
    mode
        "serve" (fastest) or "judge" (a row's result never depends on the rows beside it).
    dtype
        float32, or float64 for checking.

    Raises
    ------
    CheckpointError
        The folder is damaged or does not fit; the message names key or tensor.
    """
    if dtype not in (torch.float32, torch.float64):
        raise Unsupported(f"dtype: got {dtype}, expected torch.float32 or torch.float64")
    config = TargetConfig.from_json(path)
    return TargetModel(config, read_tensors(path, target_shapes(config), dtype), mode)


def _subset(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
