"""Time the W12 product on an H200 against cuBLAS and against the bare read of the same bytes; one CSV row a shape.

    make kernels
    python kernels/bench/bench_w12_gemm.py --out kernels/bench/results/w12_gemm_h200.csv --commit COMMIT

Every call but those marked warm finds a cold L2: 256 MB are written before it. Weights are random normal numbers. Times
are medians of CUDA events around one call; an empty kernel shows about 4 us, which is in all of them. Before a call the
device sleeps, so that no launch is late. *cublas_us* is the fastest median of torch.mm by cuBLAS, torch.mm by cublasLt
and every algorithm of cublasLt's heuristic (up to 16, workspace of 64 MB): five samples each choose two, which then
take turns with ours. *read_us* is the fastest of nine grids of plain loads and two of bulk copies.

A run may be made in parts: ``--shapes`` and ``--rows`` choose, ``--append`` goes on with a file and leaves out what it
has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from result_file import ResultFile
from rivals import best_bf16_products
from shapes import SHAPES
from specpilot_kernels.gpu_timing import bare_read_us, measure_us, sm_clock_mhz
from specpilot_kernels.w12.cuda import encode_on_device
from specpilot_kernels.w12_gemm import MAX_ROWS, w12_gemm

ROWS = (1, 8, 16, 32, 48, 64)
COLUMNS = (
    "gpu",
    "sm_clock_mhz",
    "shape",
    "n",
    "k",
    "rows",
    "l2",
    "ours_us",
    "cublas_us",
    "read_us",
    "commit",
)


def measure_shape(name: str, cases: list[tuple[str, int]], results: ResultFile, commit: str) -> None:
    """Cases: (*cold* or *warm*, rows of x)."""
    n, k = SHAPES[name]
    generator = torch.Generator("cuda").manual_seed(0)
    dense = (torch.randn(n, k, device="cuda", generator=generator) * 0.02).bfloat16()
    weight = encode_on_device(dense)
    reads = {
        l2: bare_read_us(weight.records, weight.records.nbytes, warm=l2 == "warm")
        for l2 in dict.fromkeys(l2 for l2, _ in cases)
    }
    for l2, num_rows in cases:
        x = torch.randn(num_rows, k, device="cuda", generator=generator).bfloat16()
        y = torch.empty(num_rows, n, dtype=torch.bfloat16, device="cuda")
        rivals = best_bf16_products(x, dense, y, warm=l2 == "warm")
        times = measure_us({"ours": lambda: w12_gemm(x, weight), **rivals}, warm=l2 == "warm")  # noqa: B023
        ours, read = times["ours"], reads[l2]
        winner = min(rivals, key=lambda rival: times[rival].p50)
        best = times[winner].p50
        micros = (round(time, 2) for time in (ours.p50, best, read))
        results.add(torch.cuda.get_device_name(0), sm_clock_mhz(), name, n, k, num_rows, l2, *micros, commit)
        print(
            f"{name:18s} {l2} rows {num_rows:2d}: ours {ours.p50:7.1f} us (p20 {ours.p20:.1f}, p80 {ours.p80:.1f}), "
            f"cublas {best:7.1f} ({best / ours.p50:.3f} x, {winner}), read {read:7.1f} ({read / ours.p50:.0%})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help=f"of x, 1 to {MAX_ROWS}")
    parser.add_argument("--append", action="store_true", help="go on with the file of an interrupted run")
    options = parser.parse_args()
    if not all(1 <= rows <= MAX_ROWS for rows in options.rows):
        parser.error(f"--rows: 1 to {MAX_ROWS}")
    with ResultFile(options.out, COLUMNS, append=options.append) as results:
        others = {(row["gpu"], row["commit"]) for row in results.earlier}
        if others - {(torch.cuda.get_device_name(0), options.commit)}:
            parser.error(
                f"{options.out.name} holds rows of {sorted(others)}; a file is of one GPU and one commit"
            )
        done = {(row["shape"], row["l2"], int(row["rows"])) for row in results.earlier}
        for name in options.shapes:
            cases = [
                (l2, rows) for l2 in ("cold", "warm") for rows in options.rows if (name, l2, rows) not in done
            ]
            if cases:
                measure_shape(name, cases, results, options.commit)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
