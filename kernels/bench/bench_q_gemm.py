"""Time the products over INT8, INT6 and the 8-bit view on an H200 against the bare read of the same bytes; CSV rows.

    make kernels
    python kernels/bench/bench_q_gemm.py --out kernels/bench/results/q_gemm_h200.csv --commit COMMIT

Every call finds a cold L2; an empty kernel shows about 4 us, which is in all times. *w12_us* is the exact product
(w12_gemm), *cublas_us* the BF16 product, the rival of bench_w12_gemm.py, *read_us* the fastest of nine grids of plain
loads and two of bulk copies. Weights are random normal numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from result_file import ResultFile
from rivals import best_bf16_products
from shapes import QWEN_27B
from specpilot_kernels.gpu_timing import bare_read_us, measure_us, sm_clock_mhz
from specpilot_kernels.q_gemm import q_gemm, quantise_on_device, w12_view_gemm
from specpilot_kernels.w12.cuda import encode_on_device
from specpilot_kernels.w12_gemm import w12_gemm

ROWS = (1, 8, 16, 32)
BYTES_OF_EIGHT = {"view": 8, "int8": 8, "int6": 6}
COLUMNS = (
    "gpu",
    "sm_clock_mhz",
    "shape",
    "n",
    "k",
    "rows",
    "format",
    "ours_us",
    "read_us",
    "w12_us",
    "cublas_us",
    "commit",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    options = parser.parse_args()
    generator = torch.Generator("cuda").manual_seed(0)
    with ResultFile(options.out, COLUMNS) as results:
        for name, (n, k) in QWEN_27B.items():
            dense = (torch.randn(n, k, device="cuda", generator=generator) * 0.02).bfloat16()
            exact, int8, int6 = (
                encode_on_device(dense),
                quantise_on_device(dense, 8),
                quantise_on_device(dense, 6),
            )
            reads = {f: bare_read_us(exact.records, n * k * size // 8) for f, size in BYTES_OF_EIGHT.items()}
            for num_rows in ROWS:
                x = torch.randn(num_rows, k, device="cuda", generator=generator).bfloat16()
                y = torch.empty(num_rows, n, dtype=torch.bfloat16, device="cuda")
                rivals = best_bf16_products(x, dense, y)
                times = measure_us(
                    {
                        "view": lambda: w12_view_gemm(x, exact),  # noqa: B023
                        "int8": lambda: q_gemm(x, int8),  # noqa: B023
                        "int6": lambda: q_gemm(x, int6),  # noqa: B023
                        "w12": lambda: w12_gemm(x, exact),  # noqa: B023
                        **rivals,
                    }
                )
                gpu, clock = torch.cuda.get_device_name(0), sm_clock_mhz()
                cublas = min(times[rival].p50 for rival in rivals)
                for form in BYTES_OF_EIGHT:
                    shown = times[form].p50, reads[form], times["w12"].p50, cublas
                    rounded = [round(time, 2) for time in shown]
                    line = (gpu, clock, name, n, k, num_rows, form, *rounded, options.commit)
                    results.add(*line)
                    print(*line, f"{reads[form] / times[form].p50:.0%} of the read", flush=True)


if __name__ == "__main__":
    main()
