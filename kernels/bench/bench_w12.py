"""Time the W12 codec: encode, decode and the 8-bit view, in GB/s of BF16.

    python kernels/bench/bench_w12.py --threads 1 2

Weights are normal numbers, (8192, 4096): 67 MB of BF16, more than the caches of the machines it ran on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from specpilot_kernels.cpu_jit import set_num_threads
from specpilot_kernels.testing import cpu_name, quantile, time_in_turns
from specpilot_kernels.w12 import decode_w12, encode_w12, view_w12

SHAPE = (8192, 4096)
WARM_UP, SAMPLES = 1, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).bfloat16()
    encoded = encode_w12(weight)
    copied = torch.empty_like(weight)
    calls: dict[str, Callable[[], object]] = {
        "encode": lambda: encode_w12(weight),
        "decode": lambda: decode_w12(encoded),
        "view": lambda: view_w12(encoded),
        "copy of BF16": lambda: copied.copy_(weight),
    }
    print(f"{cpu_name()}, {SHAPE} normal numbers, {encoded.bits_per_weight:.4f} bits a weight")
    print(f"warm-up {WARM_UP}, samples {SAMPLES}; GB/s of BF16 at p20 p50 p80 of the times")
    for num_threads in options.threads:
        set_num_threads(num_threads)
        for name, times in time_in_turns(calls, WARM_UP, SAMPLES).items():
            rates = (weight.nbytes / quantile(times, share) / 1e3 for share in (0.2, 0.5, 0.8))
            print(f"{num_threads} threads  {name:13s}", *(f"{rate:6.2f}" for rate in rates))


if __name__ == "__main__":
    main()
