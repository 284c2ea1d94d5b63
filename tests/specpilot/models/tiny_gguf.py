"""A tiny Llama model in a GGUF file, as llama.cpp's converter would write it, and the numbers it holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.oracles.gguf_writer import Blocks, encode, slow_numbers, write_gguf

__all__ = ["CONTROL", "TinyModel", "byte_symbols", "tiny_model"]

HIDDEN, INNER, HEADS, KV_HEADS, DIM, LAYERS = 64, 96, 4, 2, 16, 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "r l", "1 2", "Ġ Ġ", "i n", "in g"]
_MATRICES = {
    "attn_q": ("self_attn.q_proj", (HEADS * DIM, HIDDEN), "Q4_1"),
    "attn_k": ("self_attn.k_proj", (KV_HEADS * DIM, HIDDEN), "Q4_1"),
    "attn_v": ("self_attn.v_proj", (KV_HEADS * DIM, HIDDEN), "Q8_0"),
    "attn_output": ("self_attn.o_proj", (HIDDEN, HEADS * DIM), "Q4_1"),
    "ffn_gate": ("mlp.gate_proj", (INNER, HIDDEN), "F16"),
    "ffn_up": ("mlp.up_proj", (INNER, HIDDEN), "F32"),
    "ffn_down": ("mlp.down_proj", (HIDDEN, INNER), "Q4_1"),
}
_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


@dataclass
class TinyModel:
    """What to write, and under transformers' names what must be read: matrices rounded to BF16."""

    metadata: dict[str, Any]
    blocks: dict[str, Blocks]
    expected: dict[str, Tensor]

    def write(self, path: Path) -> Path:
        write_gguf(path, self.metadata, self.blocks)
        return path


def byte_symbols() -> list[str]:
    """GPT-2's symbol of every byte, by its description: printable bytes stand for themselves, the others get the
    characters from U+0100 on, in order."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    symbols, num_moved = [], 0
    for byte in range(256):
        symbols.append(chr(byte) if byte in shown else chr(256 + num_moved))
        num_moved += byte not in shown
    return symbols


def tiny_model(seed: int = 0) -> TinyModel:
    tokens = [*CONTROL, *byte_symbols(), *(merge.replace(" ", "") for merge in MERGES)]
    metadata = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 1000.0,
        "llama.rope.dimension_count": DIM,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    generator = np.random.default_rng(seed)
    model = TinyModel(metadata, {}, {})

    def add(name: str, full_name: str, shape: tuple[int, ...], kind: str) -> None:
        draw = generator.standard_normal(shape).astype(np.float32)
        draw = 1 + 0.2 * draw if len(shape) == 1 else draw / np.float32(shape[-1] ** 0.5)
        model.blocks[f"{name}.weight"] = blocks = encode(kind, draw)
        numbers = torch.tensor(slow_numbers(blocks), dtype=torch.float64).view(shape)
        if "attn_q" in name or "attn_k" in name:
            # The converter splits a head into two halves and deals their rows out in turn.
            dealt = torch.arange(shape[0]).view(-1, 2, DIM // 2).transpose(1, 2).flatten()
            whole = torch.empty_like(numbers)
            whole[dealt] = numbers
            numbers = whole
        rounded = numbers.float()
        model.expected[f"{full_name}.weight"] = rounded.bfloat16().float() if len(shape) == 2 else rounded

    add("token_embd", "model.embed_tokens", (len(tokens), HIDDEN), "Q8_0")
    for layer in range(LAYERS):
        for name, (full_name, shape, kind) in _MATRICES.items():
            add(f"blk.{layer}.{name}", f"model.layers.{layer}.{full_name}", shape, kind)
        for name, full_name in _NORMS.items():
            add(f"blk.{layer}.{name}", f"model.layers.{layer}.{full_name}", (HIDDEN,), "F32")
    add("output_norm", "model.norm", (HIDDEN,), "F32")
    return model
