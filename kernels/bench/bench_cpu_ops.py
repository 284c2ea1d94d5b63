"""Time the CPU ops around the products beside their usual torch forms, in the bundled target's shapes.

    python kernels/bench/bench_cpu_ops.py --rows 1 8

One thread, call included, data warm in the cache as in a step; op and torch form take turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numba
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments, batch_attention
from specpilot_kernels.gdn_rows import GdnMemory, GdnPart, GdnSegments, GdnWeights, gdn_rows
from specpilot_kernels.gdn_rows.reference import gdn_rows_reference
from specpilot_kernels.rms_norm import rms_norm
from specpilot_kernels.silu_mul import silu_mul
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns

HIDDEN, INNER = 256, 704
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, PAIRS = 4, 2, 64, 8
GDN_VALUE_HEADS, GDN_DIM, GDN_TAPS = 2, 128, 4
CONTEXTS = (200, 1000, 8000)
EPS = 1e-6
WARM_UP, SAMPLES = 20, 1000

Forms = tuple[Callable[[], object], Callable[[], object]]


def norm_forms(rows: int) -> Forms:
    x, scale = torch.randn(rows, HIDDEN), torch.randn(HIDDEN)
    x_array, scale_array = x.numpy(), scale.numpy()
    return lambda: rms_norm(x_array, scale_array, EPS), lambda: F.rms_norm(x, (HIDDEN,), scale, EPS)


def gate_forms(rows: int) -> Forms:
    x = torch.randn(rows, 2 * INNER)
    x_array = x.numpy()
    return lambda: silu_mul(x_array), lambda: F.silu(x[:, :INNER]) * x[:, INNER:]


def gdn_forms(rows: int) -> Forms:
    """Torch form: the reference, row by row."""
    value_width = GDN_VALUE_HEADS * GDN_DIM
    channels = 2 * GDN_DIM + value_width
    taps, norm_weight = torch.randn(GDN_TAPS, channels), torch.rand(GDN_DIM)
    rate, dt_bias = -torch.rand(GDN_VALUE_HEADS), torch.randn(GDN_VALUE_HEADS)
    weights = GdnWeights(taps, rate, dt_bias, norm_weight, 1, EPS, EPS)
    projected = torch.randn(rows, channels + value_width + 2 * GDN_VALUE_HEADS)
    window, state = torch.randn(GDN_TAPS - 1, channels), torch.randn(1, GDN_DIM, value_width)
    memory = GdnMemory(1, weights.shape)
    memory.recurrent[0], memory.window[0] = state.numpy(), window.numpy()
    memory.make_room(rows)
    segments, array = GdnSegments([GdnPart(memory, rows, is_decided=False)]), projected.numpy()

    def torch_form() -> object:
        return gdn_rows_reference(
            projected,
            window,
            state,
            taps,
            rate,
            dt_bias,
            norm_weight,
            num_groups=1,
            unit_eps=EPS,
            norm_eps=EPS,
        )

    return lambda: gdn_rows(array, segments, 0, weights), torch_form


def attention_forms(rows: int, context: int) -> Forms:
    """The torch form attends only; its norms, rotation, cache writes and gate are not counted."""
    num_tokens = context + rows
    keys, values = torch.randn(2, NUM_KV_HEADS, num_tokens, HEAD_DIM).unbind(0)
    rotation = torch.randn(num_tokens, PAIRS, 2).numpy()
    scales = torch.randn(NUM_HEADS + NUM_KV_HEADS, HEAD_DIM).numpy()
    projected = torch.randn(rows, 2 * (NUM_HEADS + NUM_KV_HEADS) * HEAD_DIM).numpy()
    queries = torch.randn(1, NUM_HEADS, rows, HEAD_DIM)
    mask = torch.ones(rows, num_tokens, dtype=torch.bool).tril(context)
    memory = KvMemory(1, NUM_KV_HEADS, HEAD_DIM, num_tokens)
    memory.reserve(num_tokens)
    memory.buffer[0, 0], memory.buffer[0, 1] = keys.numpy(), values.numpy()
    segments = KvSegments([KvPart(memory, rows, context)])

    def torch_form() -> Tensor:
        return F.scaled_dot_product_attention(queries, keys[None], values[None], mask, enable_gqa=True)

    return lambda: batch_attention(projected, segments, 0, scales, rotation, EPS), torch_form


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the CPU ops around the products.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        f"# {cpu_name()}, torch {torch.__version__}, numba {numba.__version__}, numpy {np.__version__}, 1 thread, "
        f"float32, warm-up {WARM_UP}, samples {SAMPLES}, clocks not fixed"
    )
    for rows in options.rows:
        cases = {
            f"rms_norm {rows}x{HIDDEN}": norm_forms(rows),
            f"silu_mul {rows}x{2 * INNER}": gate_forms(rows),
            f"gdn_rows {rows} rows, {GDN_VALUE_HEADS} heads of {GDN_DIM}": gdn_forms(rows),
        }
        for context in CONTEXTS:
            shape = f"{rows} rows, {NUM_HEADS}/{NUM_KV_HEADS} heads of {HEAD_DIM}, {context} tokens"
            cases[f"chain_attention {shape}"] = attention_forms(rows, context)
        for name, (op, torch_form) in cases.items():
            times = time_in_turns({"op": op, "torch": torch_form}, WARM_UP, SAMPLES)
            p20, p50, p80 = (quantile(times["op"], fraction) for fraction in (0.2, 0.5, 0.8))
            baseline = quantile(times["torch"], 0.2)
            print(
                f"{name:58} p20/p50/p80 {p20:.1f}/{p50:.1f}/{p80:.1f} us  torch {baseline:.1f} us", flush=True
            )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
