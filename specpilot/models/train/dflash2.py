"""Trainable form of the DFlash2 drafter: many anchors of a sequence at once.

Names and layouts are those SGLang 0.5.20 loads. The short convolutions stay inside a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specpilot.models.train.block_drafter import BlockDrafter, BlockShape, DraftLayer
from specpilot.models.train.drafter import DraftBatch

__all__ = ["BlockConv", "CandidateSelector", "ConvolvedLayer", "DFlash2Shape", "DraftOutput", "TrainDFlash2"]


@dataclass(frozen=True)
class DFlash2Shape(BlockShape):
    """Dimensions of a drafter; ``config_dict`` is its config.json."""

    block_size: int = 8
    top_k: int = 16
    selector_rank: int = 64
    conv_kernel_size: int = 2
    conv_group_size: int = 16

    def config_dict(self) -> dict[str, Any]:
        own = {
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": self.target_layer_ids,
            "conv_kernel_size": self.conv_kernel_size,
            "conv_group_size": self.conv_group_size,
            "selector_rank": self.selector_rank,
            "selector_top_k": self.top_k,
        }
        return {"architectures": ["DFlash2DraftModel"], **super().config_dict(), "dflash_config": own}


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


class ConvolvedLayer(DraftLayer):
    def __init__(self, shape: DFlash2Shape) -> None:
        super().__init__(shape)
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


class TrainDFlash2(BlockDrafter[DFlash2Shape]):
    def __init__(self, shape: DFlash2Shape) -> None:
        super().__init__(shape, [ConvolvedLayer(shape) for _ in range(shape.num_layers)])
        self.candidate_selector = CandidateSelector(shape)

    @property
    def num_drafts(self) -> int:
        return self.shape.block_size - 1

    def initialise(self, seed: int) -> None:
        """The selector starts as a no-op (successors zero), the convolutions as the identity."""
        generator = self.initialise_backbone(seed)
        selector = self.candidate_selector
        for table, std in (
            (selector.hidden_projection.weight, self.shape.hidden_size**-0.5),
            (selector.predecessor_codebook, 0.02),
        ):
            table.data.copy_(torch.randn(table.shape, generator=generator) * std)
        for name, parameter in self.named_parameters():
            if name.endswith("kernel_projection.weight"):
                parameter.data.zero_()

    def forward(self, ids: Tensor, taps: Tensor, anchors: Tensor, embedding: Tensor) -> DraftOutput:
        """Draft a block at every anchor; see :meth:`BlockDrafter.block_hidden`."""
        hidden = self.block_hidden(ids, taps, anchors, embedding)[..., 1:, :]
        return DraftOutput(hidden, F.linear(hidden, embedding))

    def greedy_chains(self, batch: DraftBatch) -> Tensor:
        out = self(batch.ids, batch.taps, batch.anchors, batch.table)
        top, candidates = out.logits.float().topk(self.shape.top_k, dim=-1)
        previous, chain = batch.ids.gather(1, batch.anchors), []
        for depth in range(self.num_drafts):
            pair = self.candidate_selector.pair_scores(
                out.hidden[..., depth, :].float(), previous, candidates[..., depth, :]
            )
            best = (top[..., depth, :] + pair).argmax(-1, keepdim=True)
            previous = candidates[..., depth, :].gather(-1, best)[..., 0]
            chain.append(previous)
        return torch.stack(chain, dim=-1)
