"""Time the products over INT8, INT6 and the 8-bit view on an H200 against the bare read of the same bytes; CSV rows.

    make kernels
    python kernels/bench/bench_q_gemm.py --out kernels/bench/results/q_gemm_h200.csv --commit COMMIT

Every call finds a cold L2; an empty kernel shows about 4 us, which is in all times. *w12_us* is the exact product
(w12_gemm), *cublas_us* torch.mm with the BF16 weight. Weights are random normal numbers.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch

from specpilot_kernels.gpu_timing import bare_read_us, median_us, sm_clock_mhz
from specpilot_kernels.q_gemm import q_gemm, quantise_on_device, w12_view_gemm
from specpilot_kernels.w12.cuda import encode_on_device
from specpilot_kernels.w12_gemm import w12_gemm

SHAPES = {
    "qkv_gate": (14336, 5120),
    "attn_out": (5120, 6144),
    "gdn_in": (16384, 5120),
    "mlp_down": (5120, 17408),
    "gate_up": (34816, 5120),
    "lm_head": (248320, 5120),
}
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
    with open(options.out, "w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for name, (n, k) in SHAPES.items():
            dense = (torch.randn(n, k, device="cuda", generator=generator) * 0.02).bfloat16()
            exact, int8, int6 = (
                encode_on_device(dense),
                quantise_on_device(dense, 8),
                quantise_on_device(dense, 6),
            )
            reads = {f: bare_read_us(exact.records, n * k * size // 8) for f, size in BYTES_OF_EIGHT.items()}
            for num_rows in ROWS:
                x = torch.randn(num_rows, k, device="cuda", generator=generator).bfloat16()
                times = median_us(
                    {
                        "view": lambda: w12_view_gemm(x, exact),  # noqa: B023
                        "int8": lambda: q_gemm(x, int8),  # noqa: B023
                        "int6": lambda: q_gemm(x, int6),  # noqa: B023
                        "w12": lambda: w12_gemm(x, exact),  # noqa: B023
                        "cublas": lambda: torch.mm(x, dense.T),  # noqa: B023
                    }
                )
                clock = sm_clock_mhz()
                for form in BYTES_OF_EIGHT:
                    shown = times[form], reads[form], times["w12"], times["cublas"]
                    rounded = [round(time, 2) for time in shown]
                    gpu = torch.cuda.get_device_name(0)
                    line = (gpu, clock, name, n, k, num_rows, form, *rounded, options.commit)
                    rows.writerow(dict(zip(COLUMNS, line, strict=True)))
                    print(*line, f"{reads[form] / times[form]:.0%} of the read", flush=True)


if __name__ == "__main__":
    main()
