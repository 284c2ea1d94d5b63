"""Time the W12 product on an H200 against cuBLAS and against the bare read of the same bytes; one CSV row a shape.

    make kernels
    python kernels/bench/bench_w12_gemm.py --out kernels/bench/results/w12_gemm_h200.csv --commit COMMIT

Every call but those marked warm finds a cold L2: 256 MB are written before it. Weights are random normal numbers. Times
are medians of CUDA events around one call; an empty kernel shows about 4 us, which is in all of them. Before a warm
call the device sleeps, so that no launch is late. *cublas* is the faster of torch's two libraries, *read* the fastest
of nine grids of plain loads and two of bulk copies.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import statistics
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from specpilot_kernels.loader import load_library
from specpilot_kernels.w12.cuda import DeviceW12, encode_on_device
from specpilot_kernels.w12_gemm import w12_gemm

# Qwen3.8-27B's projections first. Then, from their published configurations, Muse-Glimmer-30B (hidden size 6656, 32
# and 2 heads of 128 with an output gate, MLP 19968, vocabulary 202048), Llama-3.1-8B (4096, 32 and 8 heads of 128,
# 14336, 128256)
# and Gemma 12B (3840, 16 and 8 heads of 256, 15360: the third generation's, the fourth's was not found).
SHAPES = {
    "qkv_gate": (14336, 5120),
    "attn_out": (5120, 6144),
    "gdn_in": (16384, 5120),
    "mlp_down": (5120, 17408),
    "gate_up": (34816, 5120),
    "lm_head": (248320, 5120),
    "muse30b_qkv_gate": (8704, 6656),
    "muse30b_attn_out": (6656, 4096),
    "muse30b_gate_up": (39936, 6656),
    "muse30b_mlp_down": (6656, 19968),
    "muse30b_lm_head": (202048, 6656),
    "gemma12b_qkv": (8192, 3840),
    "gemma12b_attn_out": (3840, 4096),
    "gemma12b_gate_up": (30720, 3840),
    "gemma12b_mlp_down": (3840, 15360),
    "llama8b_qkv": (6144, 4096),
    "llama8b_attn_out": (4096, 4096),
    "llama8b_gate_up": (28672, 4096),
    "llama8b_mlp_down": (4096, 14336),
    "llama8b_lm_head": (128256, 4096),
}
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
SAMPLES = 21
FLUSH_BYTES = 256 * 2**20
SLEEP_CYCLES = 300_000


def measure_us(
    calls: Mapping[str, Callable[[], object]], flush: torch.Tensor | None
) -> dict[str, tuple[float, float, float]]:
    """20th, 50th and 80th percentile; calls take turns."""
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for sample in range(SAMPLES):
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(SLEEP_CYCLES)
            if flush is not None:
                flush.fill_(sample & 1)
            else:
                call()
            begin.record()
            call()
            end.record()
            events[name].append((begin, end))
    torch.cuda.synchronize()
    sorted_us = {
        name: sorted(begin.elapsed_time(end) * 1e3 for begin, end in pairs) for name, pairs in events.items()
    }
    return {
        name: (us[SAMPLES // 5], statistics.median(us), us[4 * SAMPLES // 5])
        for name, us in sorted_us.items()
    }


def reads(weight: DeviceW12) -> dict[str, Callable[[], object]]:
    library, sink = load_library(), torch.zeros(1, dtype=torch.int32, device="cuda")
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    stream = torch.cuda.current_stream().cuda_stream

    def read(blocks: int, ahead: int) -> Callable[[], object]:
        function = library.specpilot_w12_read_sm90
        function.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
        arguments = (
            weight.records.data_ptr(),
            len(weight.records),
            sink.data_ptr(),
            blocks * multiprocessors,
            ahead,
            stream,
        )
        return lambda: function(*arguments)

    plain = {f"read{blocks}x{ahead}": read(blocks, ahead) for blocks in (2, 4, 6) for ahead in (1, 2, 4)}
    return plain | {f"ring{blocks}": read(blocks, 0) for blocks in (2, 3)}


def products(
    x: torch.Tensor, y: torch.Tensor, dense: torch.Tensor, weight: DeviceW12
) -> dict[str, Callable[[], object]]:
    def with_library(library: str) -> Callable[[], object]:
        def multiply() -> object:
            torch.backends.cuda.preferred_blas_library(library)
            return torch.mm(x, dense.T, out=y)

        return multiply

    return {
        "ours": lambda: w12_gemm(x, weight),
        "cublas": with_library("cublas"),
        "cublaslt": with_library("cublaslt"),
    }


def clock_mhz() -> int:
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(query, check=True, capture_output=True, text=True).stdout.split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    options = parser.parse_args()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    gpu = torch.cuda.get_device_name(0)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with open(options.out, "w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for name, (n, k) in SHAPES.items():
            dense = (torch.randn(n, k, device="cuda", generator=generator) * 0.02).bfloat16()
            weight = encode_on_device(dense)
            for l2, buffer in (("cold", flush), ("warm", None)):
                best_read = min(p50 for _, p50, _ in measure_us(reads(weight), buffer).values())
                for num_rows in ROWS:
                    x = torch.randn(num_rows, k, device="cuda", generator=generator).bfloat16()
                    y = torch.empty(num_rows, n, dtype=torch.bfloat16, device="cuda")
                    times = measure_us(products(x, y, dense, weight), buffer)
                    p20, ours, p80 = times["ours"]
                    best_blas = min(times["cublas"][1], times["cublaslt"][1])
                    micros = (round(ours, 2), round(best_blas, 2), round(best_read, 2))
                    values = (gpu, clock_mhz(), name, n, k, num_rows, l2, *micros, options.commit)
                    rows.writerow(dict(zip(COLUMNS, values, strict=True)))
                    print(
                        f"{name:18s} {l2} rows {num_rows:2d}: ours {ours:7.1f} us (p20 {p20:.1f}, p80 {p80:.1f}), "
                        f"cublas {best_blas:7.1f} ({best_blas / ours:.3f} x), "
                        f"read {best_read:7.1f} ({best_read / ours:.0%})",
                        flush=True,
                    )
            del dense, weight
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
