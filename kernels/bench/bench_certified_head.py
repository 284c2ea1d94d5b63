"""Time the certified LM head on an H200 against the W12 head and the BF16 head; the table that choose_head reads.

    make kernels
    python kernels/bench/bench_certified_head.py --commit COMMIT \
        --out kernels/specpilot_kernels/certified_head/choices.csv

Each head, its argmax included, is one CUDA graph, whose replays find a cold L2. Weights are random normal numbers; a
hidden row leans towards one row of the head, so that its largest logit leads as a trained model's does, or is random,
which leaves the most survivors (*_random*). *w12_us* is the faster of w12_gemm with torch's argmax and of full_argmax.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from result_file import ResultFile
from shapes import QWEN_27B
from specpilot_kernels.certified_head import build_head, certified_argmax, full_argmax
from specpilot_kernels.gpu_timing import graph_of, measure_us, sm_clock_mhz
from specpilot_kernels.w12_gemm import w12_gemm

VOCABULARY, INPUTS = QWEN_27B["lm_head"]
ROWS = (1, 2, 4, 8, 16, 32)
COLUMNS = (
    "gpu",
    "sm_clock_mhz",
    "n",
    "k",
    "rows",
    "certified_us",
    "certified_random_us",
    "w12_us",
    "bf16_us",
    "survivors",
    "survivors_random",
    "commit",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    options = parser.parse_args()
    generator = torch.Generator("cuda").manual_seed(0)
    weight = (torch.randn(VOCABULARY, INPUTS, device="cuda", generator=generator) * 0.02).bfloat16()
    head = build_head(weight)
    with ResultFile(options.out, COLUMNS) as results:
        for num_rows in ROWS:
            noise = torch.randn(num_rows, INPUTS, device="cuda", generator=generator)
            picked = torch.randint(0, VOCABULARY, (num_rows,), device="cuda", generator=generator)
            leaning = (noise + 6 * weight[picked].float()).bfloat16()
            noise = noise.bfloat16()
            for x in (leaning, noise):
                if not torch.equal(certified_argmax(x, head).ids, full_argmax(x, head.exact).ids):
                    raise RuntimeError("the certified head and the full head differ")
            times = measure_us(
                {
                    name: graph_of(call)
                    for name, call in {
                        "certified": lambda: certified_argmax(leaning, head),  # noqa: B023
                        "random": lambda: certified_argmax(noise, head),  # noqa: B023
                        "full": lambda: full_argmax(leaning, head.exact),  # noqa: B023
                        "w12": lambda: w12_gemm(leaning, head.exact).argmax(1),  # noqa: B023
                        "bf16": lambda: torch.mm(leaning, weight.T).argmax(1),  # noqa: B023
                    }.items()
                }
            )
            medians = {name: percentiles.p50 for name, percentiles in times.items()}
            counts = [int(certified_argmax(x, head).counts[0]) for x in (leaning, noise)]
            full = min(medians["w12"], medians["full"])
            shown = medians["certified"], medians["random"], full, medians["bf16"]
            gpu, clock = torch.cuda.get_device_name(0), sm_clock_mhz()
            measured = [round(time, 2) for time in shown]
            line = (gpu, clock, VOCABULARY, INPUTS, num_rows, *measured, *counts, options.commit)
            results.add(*line)
            print(*line, {name: round(time, 1) for name, time in medians.items()}, flush=True)


if __name__ == "__main__":
    main()
