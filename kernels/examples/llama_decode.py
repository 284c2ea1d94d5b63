"""Greedy decoding of a Hugging Face Llama with BF16 and with W12 weights: tokens a second of both, and do tokens agree.

    python kernels/examples/llama_decode.py --shape 8b --device cuda

Weights are random (nothing is downloaded). On a CUDA device a decoding step is one graph over a static cache; on the
CPU it runs as it is. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from specpilot_kernels.w12 import convert_

SHAPES: dict[str, dict[str, Any]] = {
    "8b": {  # Llama-3.1-8B
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "small": {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 384,
    },
}
REPEATS = 3


def build_model(shape: str, device: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"tie_word_embeddings": False, "attn_implementation": "sdpa"}
    config = LlamaConfig(**SHAPES[shape], **settings)
    with torch.device(device):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model: LlamaForCausalLM = LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
    model.eval()
    return model


class Decoder:
    """One request, greedy, over a static cache. ``step`` is captured once and replayed on a CUDA device."""

    def __init__(self, model: LlamaForCausalLM, max_tokens: int) -> None:
        self.model, self.device = model, model.device
        self.cache = StaticCache(model.config, max_cache_len=max_tokens)
        self.token = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.margin = torch.zeros((), device=self.device)
        self.replay: Callable[[], Any] = self._step
        if self.device.type == "cuda":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step()
            self.replay = graph.replay

    @torch.no_grad()
    def _step(self) -> None:
        output = self.model(
            self.token,
            position_ids=self.position[None],
            cache_position=self.position,
            past_key_values=self.cache,
            use_cache=True,
        )
        two = output.logits[0, -1].float().topk(2)
        self.margin.copy_(two.values[0] - two.values[1])
        self.token.copy_(two.indices[:1, None])
        self.position.add_(1)

    def run(self, num_tokens: int) -> tuple[list[int], list[float]]:
        """Tokens after token 1, and by how much each led."""
        self.cache.reset()
        self.token.fill_(1)
        self.position.zero_()
        ids, margins = [], []
        for _ in range(num_tokens):
            self.replay()
            ids.append(self.token.clone())
            margins.append(self.margin.clone())
        return torch.cat(ids).view(-1).tolist(), torch.stack(margins).tolist()


def tokens_a_second(decoder: Decoder, num_tokens: int) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        decoder.run(num_tokens)
        times.append(time.perf_counter() - begin)
    return num_tokens / statistics.median(times)


def compare(shape: str, device: str, num_tokens: int, min_output_rows: int) -> dict[str, Any]:
    """The same model before and after its linear layers are swapped."""
    model = build_model(shape, device)
    decoder = Decoder(model, num_tokens + 8)
    plain_ids, margins = decoder.run(num_tokens)
    plain_tok_s = tokens_a_second(decoder, num_tokens)
    report = convert_(model, min_output_rows=min_output_rows)
    decoder = Decoder(model, num_tokens + 8)
    ids, _ = decoder.run(num_tokens)
    tok_s = tokens_a_second(decoder, num_tokens)
    same = next((i for i, (a, b) in enumerate(zip(plain_ids, ids, strict=True)) if a != b), num_tokens)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "shape": shape,
        "tokens": num_tokens,
        "bf16_tok_s": round(plain_tok_s, 2),
        "w12_tok_s": round(tok_s, 2),
        "ratio": round(tok_s / plain_tok_s, 4),
        "equal_tokens_before_the_first_difference": same,
        # By how much BF16's token led there: a tie within rounding, where sums have another order.
        "margin_at_the_first_difference": margins[same] if same < num_tokens else None,
        "median_margin": statistics.median(margins),
        "layers": len(report.converted),
        "skipped": len(report.skipped),
        "gb_before": round(report.bytes_before / 1e9, 3),
        "gb_after": round(report.bytes_after / 1e9, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="small")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--min-output-rows", type=int, default=128)
    options = parser.parse_args()
    print(
        json.dumps(compare(options.shape, options.device, options.tokens, options.min_output_rows), indent=2)
    )


if __name__ == "__main__":
    main()
