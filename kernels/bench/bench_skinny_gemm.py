"""Time the product of few rows against torch and against what this machine can do at most.

    python kernels/bench/bench_skinny_gemm.py --threads 2 --rows 1 8 32 256

Every line is one shape; the last lines are all products of the bundled target in the order of a step. Weights
rotate over copies of ``--rotate-mib`` in total, so a weight is as cold as in a model of that size. Product and
baselines take turns. The baseline is the best of torch's forms by its own 20th percentile. The ceiling is the
larger of weight bytes at the measured read bandwidth over the same buffers and of operations at the best rate of
a 256-cubed float32 product in torch (MKL where torch has it).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
import torch.nn.functional as F

from specpilot_kernels import cpu_jit
from specpilot_kernels.cpu_pool import job_of, pool_for, run_parts
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm_arrays
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns

LAYER_SHAPES = {
    "gate_up": (1408, 256),
    "down": (256, 704),
    "gdn_in": (772, 256),
    "gdn_out": (256, 256),
    "attention_in": (768, 256),
    "attention_out": (256, 256),
    "head": (4096, 256),
}
"""(N, K) of the bundled target."""
LAYER_PRODUCTS = {
    "linear_attention": ["gdn_in", "gdn_out", "gate_up", "down"],
    "full_attention": ["attention_in", "attention_out", "gate_up", "down"],
}
STEP = [*(2 * (3 * LAYER_PRODUCTS["linear_attention"] + LAYER_PRODUCTS["full_attention"])), "head"]

Call = Callable[[], object]


@dataclass(frozen=True)
class Line:
    name: str
    rows: int
    columns: int
    inputs: int
    element_type: str
    threads: int
    warm_up: int
    samples: int
    p20_us: float
    p50_us: float
    p80_us: float
    baseline: str
    baseline_p20_us: float
    ceiling_us: float
    weight_gb_s: float
    ceiling_gb_s: float
    gflop_s: float
    ceiling_gflop_s: float

    def __str__(self) -> str:
        shape = f"{self.rows}x{self.columns}x{self.inputs}"
        return (
            f"{self.name:14} {shape:14} {self.element_type} threads {self.threads} warm-up {self.warm_up} samples "
            f"{self.samples}  p20/p50/p80 {self.p20_us:.1f}/{self.p50_us:.1f}/{self.p80_us:.1f} us  "
            f"{self.baseline} {self.baseline_p20_us:.1f} us ({self.baseline_p20_us / self.p20_us:.2f}x)  "
            f"{self.weight_gb_s:.1f} of {self.ceiling_gb_s:.1f} GB/s  "
            f"{self.gflop_s:.1f} of {self.ceiling_gflop_s:.1f} GFLOP/s  ceiling {self.ceiling_us:.1f} us"
        )


@cpu_jit.inlined
def _read_part(part: int, buffer: Any, totals: Any) -> None:
    a, b, c, d, e, f, g, h = 0, 0, 0, 0, 0, 0, 0, 0
    for i in range(buffer.shape[2]):
        a += buffer[part, 0, i]
        b += buffer[part, 1, i]
        c += buffer[part, 2, i]
        d += buffer[part, 3, i]
        e += buffer[part, 4, i]
        f += buffer[part, 5, i]
        g += buffer[part, 6, i]
        h += buffer[part, 7, i]
    totals[part] = a + b + c + d + e + f + g + h


@cpu_jit.kernel("i8(i8[:,:,::1], i8)")
def read_all(buffer: Any, pool: int) -> Any:
    """Read a buffer once, (parts, 8, size): eight streams a part, for one alone does not fill the memory bus."""
    totals = np.empty(buffer.shape[0], np.int64)
    run_parts(pool, job_of(_read_part, (buffer, totals)), buffer.shape[0])
    return totals.sum()


def rotating(calls: Sequence[Call]) -> Call:
    position = 0

    def call() -> object:
        nonlocal position
        position = (position + 1) % len(calls)
        return calls[position]()

    return call


def forms(weight: torch.Tensor, x: torch.Tensor) -> dict[str, Call]:
    """Our product and torch's ways to compute it."""
    packed, x_array = PackedWeight.pack(weight), x.numpy()
    row_major = weight.float()
    column_major = row_major.t().contiguous()
    out, torch_out = (
        np.empty((x.shape[0], weight.shape[0]), np.float32),
        torch.empty(x.shape[0], weight.shape[0]),
    )
    x_bf16 = x.bfloat16()
    return {
        "skinny_gemm": lambda: skinny_gemm_arrays(x_array, packed, out),
        "mm(x,W^T)": lambda: torch.mm(x, column_major, out=torch_out),
        "linear": lambda: F.linear(x, row_major),
        "linear(bf16)": lambda: F.linear(x_bf16, weight),
    }


def measure(
    name: str,
    shapes: Sequence[tuple[int, int]],
    rows: int,
    limits: tuple[float, float],
    options: argparse.Namespace,
) -> Line:
    """Time one shape, or several as one step."""
    num_weights = sum(columns * inputs for columns, inputs in shapes)
    copies = max(1, round(options.rotate_mib * 2**20 / (2 * num_weights)))
    variants: dict[str, list[Call]] = {}
    for _ in range(copies):
        steps: dict[str, list[Call]] = {}
        for columns, inputs in shapes:
            weight = torch.randn(columns, inputs).bfloat16()
            for form, call in forms(weight, torch.randn(rows, inputs)).items():
                steps.setdefault(form, []).append(call)
        for form, calls in steps.items():
            variants.setdefault(form, []).append(lambda calls=calls: [call() for call in calls])  # type: ignore[misc]
    times = time_in_turns(
        {form: rotating(calls) for form, calls in variants.items()}, copies + 5, options.samples
    )
    ours = times.pop("skinny_gemm")
    baseline = min(times, key=lambda form: quantile(times[form], 0.2))
    read_gb_s, gflop_s = limits
    p20 = quantile(ours, 0.2)
    operations, num_bytes = 2 * rows * num_weights, 2 * num_weights
    return Line(
        name=name,
        rows=rows,
        columns=sum(columns for columns, _ in shapes),
        inputs=shapes[0][1],
        element_type="bfloat16",
        threads=options.threads,
        warm_up=copies + 5,
        samples=options.samples,
        p20_us=p20,
        p50_us=quantile(ours, 0.5),
        p80_us=quantile(ours, 0.8),
        baseline=baseline,
        baseline_p20_us=quantile(times[baseline], 0.2),
        ceiling_us=max(num_bytes / read_gb_s, operations / gflop_s) / 1e3,
        weight_gb_s=num_bytes / p20 / 1e3,
        ceiling_gb_s=read_gb_s,
        gflop_s=operations / p20 / 1e3,
        ceiling_gflop_s=gflop_s,
    )


def measure_limits(options: argparse.Namespace) -> tuple[float, float]:
    """Read bandwidth in GB/s over ``--rotate-mib``, and GFLOP/s of torch's 256-cubed product; both the best
    seen."""
    buffer = np.ones((16, 8, options.rotate_mib * 2**10), np.int64)
    square = torch.randn(256, 256)
    out = torch.empty(256, 256)
    calls: dict[str, Call] = {
        "read": lambda: read_all(buffer, pool_for(buffer.size)),
        "multiply": lambda: torch.mm(square, square, out=out),
    }
    times = time_in_turns(calls, 3, 500)
    return buffer.nbytes / times["read"][0] / 1e3, 2 * 256**3 / times["multiply"][0] / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description="Time skinny_gemm.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 256])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rotate-mib", type=int, default=16, help="about the size of the bundled target")
    parser.add_argument("--csv", type=Path, help="append the lines to this file")
    options = parser.parse_args()
    cpu_jit.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    limits = measure_limits(options)
    print(
        f"# {cpu_name()}, torch {torch.__version__}, numba {numba.__version__}, weights rotate over "
        f"{options.rotate_mib} MiB, clocks not fixed"
    )
    lines = []
    for rows in options.rows:
        cases = [(name, [shape]) for name, shape in LAYER_SHAPES.items()]
        cases.append(("whole_step", [LAYER_SHAPES[name] for name in STEP]))
        for name, shapes in cases:
            lines.append(measure(name, shapes, rows, limits, options))
            print(lines[-1], flush=True)
    if options.csv:
        is_new = not options.csv.exists()
        with options.csv.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(lines[0])))
            if is_new:
                writer.writeheader()
            writer.writerows(asdict(line) for line in lines)


if __name__ == "__main__":
    main()
