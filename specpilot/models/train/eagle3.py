"""Trainable form of the EAGLE-3 drafter (https://arxiv.org/abs/2503.01840): chains from many anchors of a sequence at
once.

Names and layouts are those SGLang 0.5.20 loads into ``LlamaForCausalLMEagle3`` (srt/models/llama_eagle3.py) with
``draft_vocab_size: null``: there the head is the target's, so the checkpoint holds neither embedding nor head.

A *pair* stands for the features of token t, ``fc(taps[t])``, beside the embedding of token t + 1, at rotary position t.
A chain begins with the pair of its anchor; each further row takes the next token and, in place of the target's
features, the chain's own row before it. It sees the pairs up to its anchor's and the rows of its own chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specpilot.models.train.drafter import DraftBatch, TrainableDrafter
from specpilot.models.train.target import GatedMlp, PlainNorm, rope_tables, rotate

__all__ = ["ChainAttention", "Eagle3Shape", "MidLayer", "TrainEagle3"]


@dataclass(frozen=True)
class Eagle3Shape:
    """Dimensions of a drafter; ``config_dict`` is its config.json."""

    hidden_size: int
    vocab_size: int
    num_target_layers: int
    tap_outputs: tuple[int, ...]
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 1024
    block_size: int = 8
    rope_theta: float = 100_000.0
    context_length: int = 8192
    rms_norm_eps: float = 1e-6

    def config_dict(self) -> dict[str, Any]:
        """The Hugging Face config. Layer ids mean layer *outputs*: every ``set_eagle3_layers_to_capture`` of SGLang
        0.5.20 captures the input of layer id + 1."""
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": 1,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "max_position_embeddings": self.context_length,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": None,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            "block_size": self.block_size,
            "num_target_layers": self.num_target_layers,
            "target_tap_convention": "layer_output",
            "eagle_config": {
                "use_aux_hidden_state": True,
                "eagle_aux_hidden_state_layer_ids": list(self.tap_outputs),
            },
        }


@dataclass(frozen=True)
class _Heads:
    """Rotated queries (S, heads, n, head_dim), rotated keys and values (S, kv heads, n, head_dim)."""

    query: Tensor
    key: Tensor
    value: Tensor


class ChainAttention(nn.Module):
    """Attention whose input is embedding and hidden state side by side, 2 H wide."""

    def __init__(self, shape: Eagle3Shape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(2 * shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(2 * shape.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(2 * shape.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def _split(self, projected: Tensor) -> Tensor:
        heads: Tensor = projected.unflatten(-1, (-1, self.shape.head_dim))
        return heads.transpose(1, 2)

    def context(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of pairs. x (S, T, 2H), tables (T, head_dim)."""
        return rotate(self._split(self.k_proj(x)), cos, sin), self._split(self.v_proj(x))

    def rows(self, x: Tensor, cos: Tensor, sin: Tensor) -> _Heads:
        """Rows of chains. x (S, A, 2H), tables (S, 1, A, head_dim)."""
        key, value = self.context(x, cos, sin)
        return _Heads(rotate(self._split(self.q_proj(x)), cos, sin), key, value)

    def forward(
        self, row: _Heads, chain: list[_Heads], context: tuple[Tensor, Tensor], hidden_from: Tensor
    ) -> Tensor:
        """One row of every chain over the context pairs and the chain's rows after the first -> (S, A, H).

        hidden_from (S, A, T) bool is true where a chain must not look. The first row of a chain is a context pair.
        """
        shape = self.shape
        sequences, _, anchors, dim = row.query.shape
        query = row.query.unflatten(1, (shape.num_kv_heads, -1)) * dim**-0.5  # (S, kv, group, A, dim)
        keys, values = context
        scores = torch.einsum("skgad,sktd->skgat", query, keys)
        scores = scores.masked_fill(hidden_from[:, None, None], -torch.inf)
        own = [(query * other.key[:, :, None]).sum(-1, keepdim=True) for other in chain]
        weights = torch.cat((scores, *own), dim=-1).float().softmax(-1).to(values.dtype)
        mixed = torch.einsum("skgat,sktd->skgad", weights[..., : keys.shape[2]], values)
        for index, other in enumerate(chain, keys.shape[2]):
            mixed = mixed + weights[..., index : index + 1] * other.value[:, :, None]
        out: Tensor = self.o_proj(mixed.permute(0, 3, 1, 2, 4).reshape(sequences, anchors, -1))
        return out


class MidLayer(nn.Module):
    """The drafter's one layer."""

    def __init__(self, shape: Eagle3Shape) -> None:
        super().__init__()
        self.input_layernorm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = ChainAttention(shape)
        self.post_attention_layernorm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = GatedMlp(shape.hidden_size, shape.intermediate_size)

    def fuse(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """What attention reads: both parts under norms of their own, side by side (..., 2H)."""
        return torch.cat((self.input_layernorm(embedded), self.hidden_norm(hidden)), dim=-1)

    def finish(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """The residual stream after attention's output ``mixed`` and the MLP."""
        hidden = hidden + mixed
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class TrainEagle3(TrainableDrafter):
    def __init__(self, shape: Eagle3Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.tap_outputs) * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = MidLayer(shape)
        self.norm = PlainNorm(shape.hidden_size, shape.rms_norm_eps)

    def config_dict(self) -> dict[str, Any]:
        return self.shape.config_dict()

    @property
    def tap_outputs(self) -> tuple[int, ...]:
        return self.shape.tap_outputs

    @property
    def num_drafts(self) -> int:
        return self.shape.block_size - 1

    def greedy_chains(self, batch: DraftBatch) -> Tensor:
        """Fed with the true tokens, which are the chain's own up to the first wrong one."""
        logits: Tensor = self(batch.ids, batch.taps, batch.anchors, batch.table)
        return logits.argmax(-1)

    def initialise(self, seed: int) -> None:
        """Normal matrices that keep the variance, those that write into the residual stream scaled down.

        So is ``fc``: the target's residual stream is several times as large as what one layer writes into it.
        """
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                std = parameter.shape[1] ** -0.5
                std *= 0.5**0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                std *= 0.25 if name == "fc.weight" else 1.0
                parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * std)

    def forward(self, ids: Tensor, taps: Tensor, anchors: Tensor, embedding: Tensor) -> Tensor:
        """Draft a chain at every anchor, fed with the true tokens and with its own hidden rows: logits (S, A, D, V).

        ids (S, T) int64, taps (S, T, n*H), anchors (S, A) positions of the anchor tokens, 1 or more, embedding (V, H)
        the target's tied table. Past the end of ``ids`` a chain goes on with the last token; such rows mean nothing.
        """
        shape, layer = self.shape, self.midlayer
        features = self.fc(taps[:, :-1])
        places = torch.arange(features.shape[1], device=ids.device)
        cos, sin = rope_tables(ids.shape[1] + self.num_drafts, shape.head_dim, shape.rope_theta, ids.device)
        fused = layer.fuse(F.embedding(ids[:, 1:], embedding), features)
        context = layer.self_attn.context(fused, cos[: len(places)], sin[: len(places)])
        pairs = anchors - 1  # the pair that holds the anchor's embedding
        hidden_from = places > pairs[..., None]
        hidden = features.gather(1, pairs[..., None].expand(-1, -1, features.shape[2]))
        chain: list[_Heads] = []
        drafted = []
        for step in range(self.num_drafts):
            tokens = ids.gather(1, (anchors + step).clamp_max(ids.shape[1] - 1))
            at = pairs + step
            row = layer.self_attn.rows(
                layer.fuse(F.embedding(tokens, embedding), hidden), cos[at][:, None], sin[at][:, None]
            )
            if step:
                chain.append(row)
            hidden = layer.finish(hidden, layer.self_attn(row, chain, context, hidden_from))
            drafted.append(hidden)
        return F.linear(self.norm(torch.stack(drafted, dim=2)), embedding)
