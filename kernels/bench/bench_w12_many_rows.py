"""Time more than 64 rows of x by W12 weights on an H200: products of 64 rows each, one after the other, or decoding
the weight and one cuBLAS product; a table.

    make kernels
    python kernels/bench/bench_w12_many_rows.py

Cold L2, as ``gpu_timing.measure_us`` has it. ``W12Linear`` switches where the second becomes the faster one
(``specpilot_kernels/w12/modules.py``).
"""

from __future__ import annotations

import torch

from shapes import SHAPES
from specpilot_kernels.gpu_timing import measure_us
from specpilot_kernels.w12.cuda import encode_on_device
from specpilot_kernels.w12.device_decode import decode_on_device
from specpilot_kernels.w12_gemm import MAX_ROWS, w12_gemm

ROWS = (64, 96, 128, 160, 192, 256)
NAMES = ("attn_out", "qkv_gate", "mlp_down", "gate_up")


def main() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    for name in NAMES:
        n, k = SHAPES[name]
        weight = encode_on_device((torch.randn(n, k, device="cuda", generator=generator) * 0.02).bfloat16())
        for rows in ROWS:
            x = torch.randn(rows, k, device="cuda", generator=generator).bfloat16()
            times = measure_us(
                {
                    "passes": lambda: torch.cat([w12_gemm(part, weight) for part in x.split(MAX_ROWS)]),  # noqa: B023
                    "decoded": lambda: torch.mm(x, decode_on_device(weight).T),  # noqa: B023
                }
            )
            passes, decoded = times["passes"].p50, times["decoded"].p50
            print(
                f"{name:9s} rows {rows:3d}: products of 64 {passes:6.1f} us, decoded {decoded:6.1f} us",
                flush=True,
            )


if __name__ == "__main__":
    main()
