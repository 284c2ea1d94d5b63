"""SGLang 0.5.20's own DFlash2 drafter on the CPU: the wheel's model code on plain stand-ins for its server
parts.

From the wheel run unchanged: everything in srt/models/dflash.py (weights loading, layers, convolutions,
context projection, candidates, lattice, path walk), the config parser of srt/speculative/dflash_utils.py,
rotary arithmetic, attention types. Stand-ins are the parallel linear layers, RMS norm, and the paged
attention, which here reads a list of keys and values.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config

from tests.oracles.sglang_wheel import execute


class _UnquantizedLinearMethod:
    pass


class _Linear(nn.Module):
    """Linear layer that returns (output, bias) and fills its weight by shard, as the server's layers do."""

    def __init__(self, rows: int, columns: int, shards: dict[Any, slice] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((rows, columns), torch.nan), requires_grad=False)
        self.bias = None
        self.quant_method = _UnquantizedLinearMethod()
        if shards is not None:

            def load(parameter: Tensor, loaded: Tensor, shard: Any) -> None:
                parameter.data[shards[shard]].copy_(loaded)

            self.weight.weight_loader = load  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x @ self.weight.T, None


def _qkv_linear(
    *, hidden_size: int, head_size: int, total_num_heads: int, total_num_kv_heads: int, **_: Any
) -> _Linear:
    width, kv_width = total_num_heads * head_size, total_num_kv_heads * head_size
    ends = (width, width + kv_width, width + 2 * kv_width)
    return _Linear(
        ends[2], hidden_size, {"q": slice(0, ends[0]), "k": slice(*ends[:2]), "v": slice(*ends[1:])}
    )


def _merged_linear(hidden_size: int, sizes: list[int], **_: Any) -> _Linear:
    first, both = sizes[0], sum(sizes)
    return _Linear(both, hidden_size, {0: slice(0, first), 1: slice(first, both)})


def _row_linear(columns: int, rows: int, **_: Any) -> _Linear:
    return _Linear(rows, columns)


class _RmsNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), torch.nan), requires_grad=False)
        self.variance_epsilon = eps

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        total = x if residual is None else x + residual
        normed = (
            total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * self.weight
        )
        return normed if residual is None else (normed, total)


class _SiluAndMul(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return nn.functional.silu(gate) * up


def _apply_qk_norm(
    q: Tensor, k: Tensor, q_norm: nn.Module, k_norm: nn.Module, head_dim: int
) -> tuple[Tensor, Tensor]:
    normed = [norm(x.reshape(-1, head_dim)).view(x.shape) for x, norm in ((q, q_norm), (k, k_norm))]
    return normed[0], normed[1]


class WheelDrafter:
    """The wheel's model, driven for one request the way srt/speculative/dflash_worker_v2.py drives it."""

    model_class = "DFlash2DraftModel"

    def __init__(self, root: Path, config: dict[str, Any], tensors: dict[str, Tensor], table: Tensor) -> None:
        self.config, self.table = config, table
        self.context: list[tuple[Tensor, Tensor]] = []
        self.attention_kinds: set[tuple[str, int]] = set()
        self.namespace = self._namespace(root)
        self.model = self.namespace[self.model_class](Qwen3Config(**config))
        self.model.load_weights(tensors.items())
        self.model.lm_head = SimpleNamespace(weight=table, org_vocab_size=table.shape[0], quant_method=None)

    def _namespace(self, root: Path) -> dict[str, Any]:
        drafter = self

        class RadixAttention(nn.Module):
            """Keys and values of the context, then those of the block; no mask for encoder-only layers."""

            def __init__(
                self, *, num_heads, head_dim, scaling, num_kv_heads, layer_id, sliding_window_size, attn_type
            ):
                super().__init__()
                self.heads, self.kv_heads, self.dim = num_heads, num_kv_heads, head_dim
                self.scaling, self.layer_id = scaling, layer_id
                self.k_scale = self.v_scale = None
                drafter.attention_kinds.add((attn_type.value, sliding_window_size))

            def forward(self, q: Tensor, k: Tensor, v: Tensor, forward_batch: Any) -> Tensor:
                context_k, context_v = drafter.context[self.layer_id]
                key = torch.cat((context_k, k.view(-1, self.kv_heads, self.dim))).repeat_interleave(
                    self.heads // self.kv_heads, 1
                )
                value = torch.cat((context_v, v.view(-1, self.kv_heads, self.dim))).repeat_interleave(
                    self.heads // self.kv_heads, 1
                )
                scores = torch.einsum("qhd,khd->hqk", q.view(-1, self.heads, self.dim), key) * self.scaling
                return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)

        rotary = execute(root / "layers/rotary_embedding/utils.py", {}, {"apply_rotary_emb"})[
            "apply_rotary_emb"
        ]

        def get_rope(head_dim: int, *, rotary_dim: int, base: float, is_neox_style: bool, **rest: Any) -> Any:
            assert rest["partial_rotary_factor"] == 1.0 and rest["rope_scaling"]["rope_type"] == "default"
            inverse = 1.0 / base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)

            def apply(positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
                angle = positions[:, None].float() * inverse
                turned = [
                    rotary(x.unflatten(-1, (-1, head_dim)), angle.cos(), angle.sin(), is_neox_style).flatten(
                        -2
                    )
                    for x in (q, k)
                ]
                return turned[0], turned[1]

            return apply

        utilities = execute(
            root / "speculative/dflash_utils.py",
            {"UnquantizedLinearMethod": _UnquantizedLinearMethod},
            {
                "DEFAULT_DFLASH_MASK_TOKEN",
                "DFlashDraftConfig",
                "_DENSE_HEAD_DTYPES",
                "_cfg_get",
                "_get_dflash_config",
                "_get_text_config",
                "_parse_optional_int",
                "build_target_layer_ids",
                "can_dflash_slice_qkv_weight",
                "get_dflash_attention_sliding_window_size",
                "get_dflash_layer_types",
                "is_dense_head_weight",
                "is_nemotron_35_draft_config",
                "parse_dflash_draft_config",
            },
        )
        rope_config = execute(root / "utils/hf_transformers/common.py", {}, {"get_rope_config"})[
            "get_rope_config"
        ]
        attention = execute(root / "layers/radix_attention.py", {}, {"AttentionType"})["AttentionType"]
        stand_ins = {
            "AttentionType": attention,
            "LogitsProcessorOutput": SimpleNamespace,
            "MergedColumnParallelLinear": _merged_linear,
            "QKVParallelLinear": _qkv_linear,
            "RMSNorm": _RmsNorm,
            "RadixAttention": RadixAttention,
            "RowParallelLinear": _row_linear,
            "SiluAndMul": _SiluAndMul,
            "apply_qk_norm": _apply_qk_norm,
            "default_weight_loader": lambda parameter, loaded: parameter.data.copy_(loaded),
            "get_compiler_backend": lambda: "eager",
            "get_parallel": lambda: SimpleNamespace(tp_size=1),
            "get_rope": get_rope,
            "get_rope_config": rope_config,
            "is_npu": lambda: False,
            "should_apply_lm_head_quant_method": lambda head, method: False,
        }
        return execute(root / "models/dflash.py", utilities | stand_ins | {"__name__": "wheel_dflash"})

    def append_context(self, taps: Tensor) -> None:
        """Fill the context from nothing: P tokens, taps (P, features * H). See
        ``_append_target_hidden_sequential``."""
        positions, hidden = torch.arange(taps.shape[0]), self.model.project_target_hidden(taps)
        self.context = []
        for layer in self.model.layers:
            attention = layer.self_attn
            k, v = attention.kv_proj_only(self.model.prepare_context_hidden_for_kv(layer, hidden))
            k = attention.apply_k_rope(positions, attention.apply_k_norm(k))
            heads = (taps.shape[0], attention.num_kv_heads, attention.head_dim)
            self.context.append((k.view(heads), v.view(heads)))

    def propose(self, anchor_id: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates (D, K), scores (D, K, K) and greedy chain (D,) of a block of ``rows`` rows."""
        self.model.set_block_size(rows)
        block = torch.full((rows,), self.model.draft_config.mask_token_id)
        block[0] = anchor_id
        positions = self.context[0][0].shape[0] + torch.arange(rows)
        output = self.model(block, positions, None, input_embeds=self.table[block])
        hidden = output.hidden_states[1:]
        candidate_ids, unary = self.model.compute_candidates(hidden)
        selector = self.model.candidate_selector
        scores = selector.build_lattice(
            candidate_ids=candidate_ids[None],
            unary_logits=unary[None],
            hidden_states=hidden[None],
            anchor_token_ids=torch.tensor([anchor_id]),
        )
        chain, _ = selector.sample_path(
            candidate_ids=candidate_ids[None],
            scores=scores,
            uniforms=torch.zeros(1, rows - 1),
            temperatures=torch.ones(1),
            greedy_mask=torch.tensor([True]),
        )
        return candidate_ids, scores[0], chain[0]
