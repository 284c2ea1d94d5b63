"""Answers of the trained target to the corpus's prompts: the text its drafters learn from.

All sequences of a batch start at position 0 and take one token a step: a row still inside its prompt is fed the prompt,
any other row its own last token. No padding, no prefill, and the recurrent form is used as in serving.

A step is some 900 small operations on fixed buffers, with the position in a tensor. Launched one by one they took
42 ms a step for 4,096 rows on an H200 (measured), about what 900 launches cost; so on CUDA a step is captured once as
a graph and replayed. The capture has not been run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.models.train.target import GatedAttention, GatedDeltaNet, TrainTarget, rope_tables, rotate

__all__ = ["regenerate"]


class _Caches:
    def __init__(self, model: TrainTarget, rows: int, length: int, device: torch.device) -> None:
        config = model.config
        self.recurrent: dict[int, Tensor] = {}
        self.window: dict[int, Tensor] = {}
        self.kv: dict[int, Tensor] = {}
        conv = (
            2 * config.gdn_num_key_heads * config.gdn_key_dim
            + config.gdn_num_value_heads * config.gdn_value_dim
        )
        for index, kind in enumerate(config.layer_types):
            if kind == "full_attention":
                shape = (2, rows, config.num_kv_heads, length, config.head_dim)
                self.kv[index] = torch.zeros(shape, device=device, dtype=torch.bfloat16)
            else:
                state = (rows, config.gdn_num_value_heads, config.gdn_key_dim, config.gdn_value_dim)
                self.recurrent[index] = torch.zeros(state, device=device)
                self.window[index] = torch.zeros(rows, config.gdn_conv_size, conv, device=device)


def _attention_step(
    layer: GatedAttention, x: Tensor, kv: Tensor, place: Tensor, seen: Tensor, cos: Tensor, sin: Tensor
) -> Tensor:
    """place (1,) int64; seen (1, length) bool, true up to ``place``; cos, sin (1, rotary)."""
    rows = x.shape[0]
    query, gate = layer.q_proj(x).view(rows, layer.num_heads, 2 * layer.head_dim).chunk(2, dim=-1)
    key = layer.k_norm(layer.k_proj(x).view(rows, layer.num_kv_heads, layer.head_dim))
    value = layer.v_proj(x).view(rows, layer.num_kv_heads, layer.head_dim)
    kv.index_copy_(3, place, torch.stack((rotate(key, cos, sin), value))[..., None, :].to(kv.dtype))
    query = rotate(layer.q_norm(query), cos, sin)
    # Queries of one key head are rows of one small product, so keys and values are read once.
    query = query.to(kv.dtype).view(rows, layer.num_kv_heads, -1, layer.head_dim)
    out = F.scaled_dot_product_attention(query, kv[0], kv[1], attn_mask=seen)
    out = out.to(gate.dtype).reshape(rows, layer.num_heads, -1) * gate.sigmoid()
    mixed: Tensor = layer.o_proj(out.flatten(1))
    return mixed


def _delta_step(layer: GatedDeltaNet, x: Tensor, state: Tensor, window: Tensor) -> Tensor:
    config, rows = layer.config, x.shape[0]
    window[:, :-1] = window[:, 1:].clone()
    window[:, -1] = layer.in_proj_qkv(x)
    mixed = F.silu((window * layer.conv1d.weight[:, 0].T).sum(1))
    query, key, value = mixed.split(layer.splits, dim=-1)
    repeat = config.gdn_num_value_heads // config.gdn_num_key_heads
    query, key = (t.view(rows, -1, config.gdn_key_dim).repeat_interleave(repeat, 1) for t in (query, key))
    query = query * torch.rsqrt(query.square().sum(-1, keepdim=True) + 1e-6) * config.gdn_key_dim**-0.5
    key = key * torch.rsqrt(key.square().sum(-1, keepdim=True) + 1e-6)
    value = value.view(rows, -1, config.gdn_value_dim)
    decay = (-layer.A_log.exp() * F.softplus(layer.in_proj_a(x).float() + layer.dt_bias)).exp()
    write = layer.in_proj_b(x).float().sigmoid()
    state.mul_(decay[..., None, None])
    delta = write[..., None] * (value - (state * key[..., None]).sum(-2))
    state.addcmul_(key[..., None], delta[..., None, :])
    out = (state * query[..., None]).sum(-2)
    gate = F.silu(layer.in_proj_z(x).float()).view(rows, -1, config.gdn_value_dim)
    mixed = layer.norm(out) * gate
    result: Tensor = layer.out_proj(mixed.flatten(1))
    return result


class _Batch:
    """Sequences that advance together, all at position ``place``."""

    def __init__(
        self,
        model: TrainTarget,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        end_id: int,
        temperature: Tensor,
        generator: torch.Generator,
    ) -> None:
        self.model, self.end_id, self.generator = model, end_id, generator
        self.temperature, self.max_new_tokens = temperature[:, None], max_new_tokens
        device, rows = temperature.device, len(prompts)
        # One more place than tokens, for the step that ends the longest; whole 64s keep masked attention aligned.
        self.length = -(-(max(map(len, prompts)) + max_new_tokens + 1) // 64) * 64
        given = torch.full((rows, self.length), -1)
        for row, prompt in enumerate(prompts):
            given[row, : len(prompt)] = torch.tensor(prompt)
        self.given = given.to(device)
        self.sizes = torch.tensor([len(prompt) for prompt in prompts], device=device)
        self.caches = _Caches(model, rows, self.length, device)
        tables = rope_tables(self.length, model.config.rotary_dim, model.config.rope_theta, device)
        self.cos, self.sin = tables
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.places = torch.arange(self.length, device=device)

    def step(self) -> None:
        """Feed every row its token at ``place``, choose the next one, move on. No shape depends on ``place``."""
        model, caches, place = self.model, self.caches, self.place
        fed = self.given.index_select(1, place)[:, 0]
        cos, sin = self.cos.index_select(0, place), self.sin.index_select(0, place)
        seen = (self.places <= place)[None]
        x = F.embedding(fed.clamp_min(0), model.model.embed_tokens.weight)
        for index, layer in enumerate(model.model.layers):
            normed = layer.input_layernorm(x)
            if index in caches.kv:
                x = x + _attention_step(layer.self_attn, normed, caches.kv[index], place, seen, cos, sin)
            else:
                x = x + _delta_step(layer.linear_attn, normed, caches.recurrent[index], caches.window[index])
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = model.logits(model.model.norm(x)).float()
        uniform = torch.rand(logits.shape, generator=self.generator, device=logits.device)
        # Gumbel maximum; temperature 0 leaves the argmax.
        noise = -torch.log(-torch.log(uniform.clamp_(1e-20, 1 - 1e-7)))
        choice = (logits + self.temperature * noise).argmax(-1)
        self.done |= (fed == self.end_id) & (place >= self.sizes)
        self.done |= place + 1 >= self.sizes + self.max_new_tokens
        after = self.given.index_select(1, place + 1)[:, 0]
        free = (after < 0) & ~self.done
        self.given.index_copy_(1, place + 1, torch.where(free, choice, after)[:, None])
        place.add_(1)

    def run(self, enough: float) -> None:
        """Step until the share ``enough`` of the rows has ended, or no position is left."""
        step: Callable[[], object] = self.step
        first = 0
        if self.given.is_cuda:
            # The first steps run as they are: they load what a capture may not load.
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.generator)
            with torch.cuda.graph(graph):
                self.step()
            step, first = graph.replay, 3
        for position in range(first, self.length - 1):
            step()
            if position % 32 == 0 and float(self.done.float().mean()) >= enough:
                break


@torch.no_grad()
def regenerate(
    model: TrainTarget,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    end_id: int,
    temperature: Tensor,
    generator: torch.Generator,
    enough: float = 1.0,
) -> list[list[int] | None]:
    """Continue every prompt until ``end_id`` or ``max_new_tokens``; returns prompt + answer (end included).

    temperature (rows,) float32: 0 is greedy for that row. Once the share ``enough`` of the rows has ended, the rest
    is given up and comes back as None: what goes on that long mostly repeats itself.
    """
    batch = _Batch(model, prompts, max_new_tokens, end_id, temperature, generator)
    batch.run(enough)
    return [
        [token for token in row if token >= 0] if is_done else None
        for row, is_done in zip(batch.given.tolist(), batch.done.tolist(), strict=True)
    ]
