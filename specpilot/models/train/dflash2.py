"""Trainable form of the DFlash2 drafter: many anchors of a sequence at once.

Names and layouts are those SGLang 0.5.20 loads. Every anchor's block sees the context features of the tokens before the
anchor and its own rows, nothing of other blocks; the short convolutions stay inside a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specpilot.models.train.target import GatedMlp, PlainNorm, rope_tables, rotate

__all__ = [
    "BlockConv",
    "CandidateSelector",
    "DFlash2Shape",
    "DraftAttention",
    "DraftLayer",
    "DraftOutput",
    "TrainDFlash2",
    "block_mask",
]


@dataclass(frozen=True)
class DFlash2Shape:
    """Dimensions of a drafter; ``config_dict`` is its config.json."""

    hidden_size: int
    vocab_size: int
    num_target_layers: int
    mask_token_id: int
    tap_outputs: tuple[int, ...]
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 704
    block_size: int = 8
    top_k: int = 16
    selector_rank: int = 64
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    rope_theta: float = 100_000.0
    context_length: int = 8192
    rms_norm_eps: float = 1e-6

    def config_dict(self) -> dict[str, Any]:
        """The Hugging Face config; tap ids follow the capture rule of ``Qwen3_5ForCausalLM`` (layer inputs)."""
        return {
            "architectures": ["DFlash2DraftModel"],
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
            "dflash_config": {
                "mask_token_id": self.mask_token_id,
                "target_layer_ids": [layer + 1 for layer in self.tap_outputs],
                "conv_kernel_size": self.conv_kernel_size,
                "conv_group_size": self.conv_group_size,
                "selector_rank": self.selector_rank,
                "selector_top_k": self.top_k,
            },
        }


class BlockConv(nn.Module):
    """Dynamic grouped convolution over the rows of a block, before and after a sublayer."""

    def __init__(self, shape: DFlash2Shape) -> None:
        super().__init__()
        self.taps, self.group_size = shape.conv_kernel_size, shape.conv_group_size
        self.num_groups = shape.hidden_size // shape.conv_group_size
        base = torch.zeros(2, self.taps, shape.hidden_size)
        base[:, 0] = 1.0
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = nn.Linear(shape.hidden_size, 2 * self.taps * self.num_groups, bias=False)

    def coefficients(self, x: Tensor) -> Tensor:
        """x (..., B, H) -> (2, ..., B, taps, H): kernel of the input side and of the output side."""
        delta: Tensor = self.kernel_projection(x).unflatten(-1, (2, self.taps, self.num_groups))
        delta = delta.movedim(-3, 0).repeat_interleave(self.group_size, -1)
        base = self.base_kernel.view(2, *([1] * (delta.ndim - 3)), self.taps, -1)
        return base.to(delta.dtype) + delta

    def convolve(self, x: Tensor, kernel: Tensor) -> Tensor:
        out = x * kernel[..., 0, :]
        for back in range(1, self.taps):
            out = out + F.pad(x, (0, 0, back, 0))[..., : x.shape[-2], :] * kernel[..., back, :]
        return out


class DraftAttention(nn.Module):
    def __init__(self, shape: DFlash2Shape) -> None:
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
    def __init__(self, shape: DFlash2Shape) -> None:
        super().__init__()
        self.input_layernorm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = DraftAttention(shape)
        self.mlp = GatedMlp(shape.hidden_size, shape.intermediate_size)
        self.attention_conv = BlockConv(shape)
        self.mlp_conv = BlockConv(shape)

    def forward(
        self, x: Tensor, context: Tensor, tables: tuple[Tensor, Tensor], positions: Tensor, mask: Tensor
    ) -> Tensor:
        normed = self.input_layernorm(x)
        before, after = self.attention_conv.coefficients(normed)
        mixed = self.self_attn(self.attention_conv.convolve(normed, before), context, tables, positions, mask)
        x = x + self.attention_conv.convolve(mixed, after)
        normed = self.post_attention_layernorm(x)
        before, after = self.mlp_conv.coefficients(normed)
        return x + self.mlp_conv.convolve(self.mlp(self.mlp_conv.convolve(normed, before)), after)


class CandidateSelector(nn.Module):
    def __init__(self, shape: DFlash2Shape) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.zeros(shape.vocab_size, shape.selector_rank))
        self.successor_codebook = nn.Parameter(torch.zeros(shape.vocab_size, shape.selector_rank))
        self.hidden_projection = nn.Linear(shape.hidden_size, shape.selector_rank, bias=False)

    def pair_scores(self, hidden: Tensor, predecessor: Tensor, candidates: Tensor) -> Tensor:
        """hidden (..., H), predecessor (...), candidates (..., K) -> <P[pred] * W h, S[cand]>, (..., K)."""
        left = self.predecessor_codebook[predecessor] * self.hidden_projection(hidden)
        return torch.einsum("...r,...kr->...k", left, self.successor_codebook[candidates])


@dataclass(frozen=True)
class DraftOutput:
    """hidden (S, A, D, H) of the drafted rows after the final norm, logits (S, A, D, V) of the borrowed head."""

    hidden: Tensor
    logits: Tensor


def block_mask(anchors: Tensor, length: int, block: int) -> Tensor:
    """Who sees whom. anchors (S, A) positions -> (S, 1, A*B, length + A*B) bool."""
    count = anchors.shape[1]
    before = torch.arange(length, device=anchors.device) < anchors[..., None]  # (S, A, T)
    own = torch.eye(count, dtype=torch.bool, device=anchors.device).repeat_interleave(block, 1)  # (A, A*B)
    rows = torch.cat((before, own.expand(anchors.shape[0], -1, -1)), dim=-1)
    return rows.repeat_interleave(block, 1)[:, None]


class TrainDFlash2(nn.Module):
    def __init__(self, shape: DFlash2Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.tap_outputs) * shape.hidden_size, shape.hidden_size, bias=False)
        self.hidden_norm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.num_layers))
        self.norm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.candidate_selector = CandidateSelector(shape)

    def initialise(self, seed: int) -> None:
        """The selector starts as a no-op (successors zero), the convolutions as the identity."""
        generator = torch.Generator().manual_seed(seed)
        scale = (2 * len(self.layers)) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "codebook" not in name:
                std = parameter.shape[1] ** -0.5
                std *= scale if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                std *= 0.0 if name.endswith("kernel_projection.weight") else 1.0
                parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * std)
        table = self.candidate_selector.predecessor_codebook
        table.data.copy_(torch.randn(table.shape, generator=generator) * 0.02)

    def forward(self, ids: Tensor, taps: Tensor, anchors: Tensor, embedding: Tensor) -> DraftOutput:
        """Draft a block at every anchor.

        ids (S, T) int64, taps (S, T, n*H), anchors (S, A) positions of the anchor tokens (context: the tokens before),
        embedding (V, H) the target's tied table.
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
        hidden = self.norm(x)[..., 1:, :]
        return DraftOutput(hidden, F.linear(hidden, embedding))
