"""Trainable backbone of the drafters that draft a block in one bidirectional forward (DFlash2, DSpark).

Every anchor's block sees the context features of the tokens before the anchor and its own rows, nothing of other
blocks. Names and layouts are those SGLang 0.5.20 loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specpilot.models.train.drafter import TrainableDrafter
from specpilot.models.train.target import GatedMlp, PlainNorm, rope_tables, rotate

__all__ = ["BlockDrafter", "BlockShape", "DraftAttention", "DraftLayer", "block_mask"]


_Shape = TypeVar("_Shape", bound="BlockShape")


@dataclass(frozen=True)
class BlockShape:
    """Dimensions of a block drafter. ``block_size`` counts the rows of a block, the anchor's included."""

    hidden_size: int
    vocab_size: int
    num_target_layers: int
    mask_token_id: int
    tap_outputs: tuple[int, ...]
    block_size: int
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 704
    rope_theta: float = 100_000.0
    context_length: int = 8192
    rms_norm_eps: float = 1e-6

    @property
    def target_layer_ids(self) -> list[int]:
        """Tap ids by the capture rule of ``Qwen3_5ForCausalLM``: layer inputs."""
        return [layer + 1 for layer in self.tap_outputs]

    def config_dict(self) -> dict[str, Any]:
        """The part of config.json that all block drafters share."""
        return {
            "model_type": "qwen3",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "hidden_act": "silu",
            "attention_bias": False,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "max_position_embeddings": self.context_length,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "dtype": "bfloat16",
            "block_size": self.block_size,
            "num_target_layers": self.num_target_layers,
            "target_tap_convention": "layer_input",
        }


class DraftAttention(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)
        self.q_norm = PlainNorm(shape.head_dim, shape.rms_norm_eps)
        self.k_norm = PlainNorm(shape.head_dim, shape.rms_norm_eps)

    def forward(
        self, x: Tensor, context: Tensor, tables: tuple[Tensor, Tensor], positions: Tensor, mask: Tensor
    ) -> Tensor:
        """x (S, A, B, H) rows of blocks; context (S, T, H); positions (S, A*B); mask (S, 1, A*B, T + A*B)."""
        shape, (sequences, anchors, block, _) = self.shape, x.shape
        rows = x.flatten(1, 2)
        both = torch.cat((context, rows), dim=1)

        def heads(tensor: Tensor, count: int) -> Tensor:
            return tensor.view(sequences, -1, count, shape.head_dim).transpose(1, 2)

        cos, sin = tables
        row_cos, row_sin = cos[positions][:, None], sin[positions][:, None]
        everywhere = (
            cos[: context.shape[1]].expand(sequences, 1, -1, -1),
            sin[: context.shape[1]].expand(sequences, 1, -1, -1),
        )
        query = rotate(self.q_norm(heads(self.q_proj(rows), shape.num_heads)), row_cos, row_sin)
        key = self.k_norm(heads(self.k_proj(both), shape.num_kv_heads))
        key = rotate(key, torch.cat((everywhere[0], row_cos), 2), torch.cat((everywhere[1], row_sin), 2))
        value = heads(self.v_proj(both), shape.num_kv_heads)
        groups = shape.num_heads // shape.num_kv_heads
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).reshape(sequences, anchors, block, -1))
        return mixed


class DraftLayer(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.input_layernorm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = DraftAttention(shape)
        self.mlp = GatedMlp(shape.hidden_size, shape.intermediate_size)

    def forward(
        self, x: Tensor, context: Tensor, tables: tuple[Tensor, Tensor], positions: Tensor, mask: Tensor
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, tables, positions, mask)
        mixed: Tensor = self.mlp(self.post_attention_layernorm(x))
        return x + mixed


def block_mask(anchors: Tensor, length: int, block: int) -> Tensor:
    """Who sees whom. anchors (S, A) positions -> (S, 1, A*B, length + A*B) bool."""
    count = anchors.shape[1]
    before = torch.arange(length, device=anchors.device) < anchors[..., None]  # (S, A, T)
    own = torch.eye(count, dtype=torch.bool, device=anchors.device).repeat_interleave(block, 1)  # (A, A*B)
    rows = torch.cat((before, own.expand(anchors.shape[0], -1, -1)), dim=-1)
    return rows.repeat_interleave(block, 1)[:, None]


class BlockDrafter(TrainableDrafter, Generic[_Shape]):
    """Context features, layers and final norm; subclasses add what turns hidden rows into tokens."""

    def __init__(self, shape: _Shape, layers: Sequence[DraftLayer]) -> None:
        super().__init__()
        self.fc = nn.Linear(len(shape.tap_outputs) * shape.hidden_size, shape.hidden_size, bias=False)
        self.hidden_norm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.layers = nn.ModuleList(layers)
        self.norm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.shape = shape

    def config_dict(self) -> dict[str, Any]:
        return self.shape.config_dict()

    @property
    def tap_outputs(self) -> tuple[int, ...]:
        return self.shape.tap_outputs

    def initialise_backbone(self, seed: int) -> torch.Generator:
        """Normal matrices scaled by fan-in, residual outputs also by depth; the rest keeps its start values.

        Returns the generator they were drawn with, for the heads.
        """
        generator = torch.Generator().manual_seed(seed)
        scale = (2 * len(self.layers)) ** -0.5
        for name, parameter in [*self.fc.named_parameters("fc"), *self.layers.named_parameters("layers")]:
            if parameter.ndim == 2:
                std = parameter.shape[1] ** -0.5
                std *= scale if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * std)
        return generator

    def block_hidden(self, ids: Tensor, taps: Tensor, anchors: Tensor, embedding: Tensor) -> Tensor:
        """Run a block at every anchor.

        ids (S, T) int64, taps (S, T, n*H), anchors (S, A) positions of the anchor tokens (context: the tokens before),
        embedding (V, H) the target's tied table -> hidden rows after the final norm (S, A, B, H), the anchor's first.
        """
        shape = self.shape
        context = self.hidden_norm(self.fc(taps))
        block = shape.block_size
        rows = torch.full((*anchors.shape, block), shape.mask_token_id, device=ids.device)
        rows[..., 0] = ids.gather(1, anchors)
        positions = (anchors[..., None] + torch.arange(block, device=ids.device)).flatten(1)
        tables = rope_tables(ids.shape[1] + block, shape.head_dim, shape.rope_theta, ids.device)
        mask = block_mask(anchors, ids.shape[1], block)
        x = F.embedding(rows, embedding)
        for layer in self.layers:
            x = layer(x, context, tables, positions, mask)
        hidden: Tensor = self.norm(x)
        return hidden
