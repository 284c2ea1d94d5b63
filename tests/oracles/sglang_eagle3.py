"""SGLang 0.5.20's own EAGLE-3 drafter on the CPU: the wheel's model code on plain stand-ins for its server parts.

From the wheel run unchanged: everything in srt/models/llama_eagle3.py (weights loading, feature projection, layer, what
is handed on), the Llama layers of srt/models/llama.py below it, rotary arithmetic. Stand-ins are the parallel linear
layers, embedding and head, RMS norm, the logits processor, and the paged attention, which here keeps lists.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from tests.oracles.sglang_drafter import _merged_linear, _qkv_linear, _RmsNorm, _row_linear, _SiluAndMul
from tests.oracles.sglang_wheel import execute


class _Table(nn.Module):
    """Embedding and head: nothing in it until the target's is set."""

    def __init__(self, rows: int, columns: int, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((rows, columns), torch.nan), requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.weight)


class _RadixAttention(nn.Module):
    """Causal attention over what the forward batch has kept so far and the rows at hand."""

    def __init__(
        self, num_heads: int, head_dim: int, scaling: float, *, num_kv_heads: int, layer_id: int, **_: Any
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.scaling = num_heads, num_kv_heads, head_dim, scaling

    def forward(self, q: Tensor, k: Tensor, v: Tensor, forward_batch: Any) -> Tensor:
        for kept, new in ((forward_batch.keys, k), (forward_batch.values, v)):
            kept.extend(new.view(-1, self.kv_heads, self.dim))
        share = self.heads // self.kv_heads
        keys, values = (
            torch.stack(kept).repeat_interleave(share, 1)
            for kept in (forward_batch.keys, forward_batch.values)
        )
        rows, total = q.shape[0], keys.shape[0]
        scores = torch.einsum("qhd,khd->hqk", q.view(rows, self.heads, self.dim), keys) * self.scaling
        future = torch.ones(rows, total, dtype=torch.bool).triu(total - rows + 1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)


class _LogitsProcessor:
    def __init__(self, config: Any) -> None:
        self.vocab_size = config.vocab_size

    def __call__(self, ids: Tensor, hidden: Tensor, head: _Table, batch: Any, aux: list[Tensor]) -> Any:
        return SimpleNamespace(next_token_logits=hidden @ head.weight.T, hidden_states=aux[0])


def _namespace(root: Path) -> dict[str, Any]:
    rotary = execute(root / "layers/rotary_embedding/utils.py", {}, {"apply_rotary_emb"})["apply_rotary_emb"]

    def get_rope(head_dim: int, *, rotary_dim: int, base: float, is_neox_style: bool, **rest: Any) -> Any:
        assert rotary_dim == head_dim and rest["rope_scaling"]["rope_type"] == "default"
        inverse = 1.0 / base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)

        def apply(positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            angle = positions[:, None].float() * inverse
            turned = [
                rotary(x.unflatten(-1, (-1, head_dim)), angle.cos(), angle.sin(), is_neox_style).flatten(-2)
                for x in (q, k)
            ]
            return turned[0], turned[1]

        return apply

    def qkv_linear(hidden_size: int, head_size: int, heads: int, kv_heads: int, **_: Any) -> nn.Module:
        return _qkv_linear(
            hidden_size=hidden_size, head_size=head_size, total_num_heads=heads, total_num_kv_heads=kv_heads
        )

    nothing = SimpleNamespace(empty_cache=lambda: None, synchronize=lambda: None)
    stand_ins: dict[str, Any] = {
        "LogitsProcessor": _LogitsProcessor,
        "MergedColumnParallelLinear": _merged_linear,
        "ParallelLMHead": _Table,
        "QKVParallelLinear": qkv_linear,
        "RMSNorm": _RmsNorm,
        "RadixAttention": _RadixAttention,
        "RowParallelLinear": _row_linear,
        "SiluAndMul": _SiluAndMul,
        "VocabParallelEmbedding": _Table,
        "add_prefix": lambda name, prefix: f"{prefix}.{name}",
        "current_platform": nothing,
        "default_weight_loader": lambda parameter, loaded: parameter.data.copy_(loaded),
        "get_parallel": lambda: SimpleNamespace(tp_size=1, tp_rank=0),
        "get_pp_group": lambda: SimpleNamespace(is_last_rank=True, is_first_rank=True),
        "get_rope": get_rope,
        "get_spec": lambda: SimpleNamespace(speculative_draft_window_size=None),
        "is_cuda": lambda: False,
        "is_npu": lambda: False,
        "is_xpu": lambda: False,
        "__name__": "wheel_llama",
    }
    llama = {"LlamaMLP", "LlamaAttention", "LlamaDecoderLayer", "LlamaForCausalLM", "_is_npu", "_is_xpu"}
    namespace = execute(root / "models/llama.py", stand_ins, llama)
    return execute(root / "models/llama_eagle3.py", namespace | {"__name__": "wheel_llama_eagle3"})


class WheelEagle3:
    """The wheel's model, driven for one request the way srt/speculative/eagle_worker_v2.py drives it with topk 1."""

    def __init__(self, root: Path, config: dict[str, Any], tensors: dict[str, Tensor], table: Tensor) -> None:
        self.model = _namespace(root)["LlamaForCausalLMEagle3"](LlamaConfig(**config))
        self.model.load_weights(tensors.items())
        assert self.model.load_lm_head_from_target and self.model.hot_token_id is None
        weight = nn.Parameter(table, requires_grad=False)
        self.model.set_embed_and_head(weight, weight)
        for name, parameter in self.model.named_parameters():
            assert bool(parameter.isfinite().all()), f"{name} was not loaded"

    def draft(self, ids: Tensor, taps: Tensor, depth: int) -> tuple[list[int], Tensor]:
        """Greedy chain and its logits (depth, V). ids (P + 1,): committed tokens and the anchor; taps (P, n * H).

        The context in one "draft extend": tokens shifted left by one, at the target's positions.
        """
        batch = SimpleNamespace(
            mm_input_embeds=None,
            spec_info=SimpleNamespace(hidden_states=taps),
            forward_mode=SimpleNamespace(is_extend=lambda: False),
            contains_mm_inputs=lambda: False,
            keys=[],
            values=[],
        )
        positions = torch.arange(taps.shape[0])
        out = self.model(ids[1:], positions, batch)
        chain, logits = [], []
        for step in range(depth):
            logits.append(out.next_token_logits[-1])
            chain.append(int(logits[-1].argmax()))
            if step < depth - 1:
                batch.spec_info.hidden_states = out.hidden_states[-1:]
                out = self.model(torch.tensor(chain[-1:]), positions[-1:] + 1 + step, batch)
        return chain, torch.stack(logits)
