"""Every kernel that reads records, once each on small weights: a program for compute-sanitizer on a Hopper GPU.

    export NV_COMPUTE_SANITIZER_MAX_RACECHECK_HAZARDS=100000000  # else it stops at the first kernel that has any
    compute-sanitizer --tool racecheck python -m tests.kernels.sanitize
    compute-sanitizer --tool memcheck python -m tests.kernels.sanitize

Rings go round more than once and weights have escapes, in slots and in lists. Products are compared with float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specpilot_kernels.certified_head import build_head, certified_argmax, full_argmax
from specpilot_kernels.q_gemm import q_gemm, quantise_on_device, w12_view_gemm
from specpilot_kernels.w12 import encode_w12
from specpilot_kernels.w12.cuda import to_device
from specpilot_kernels.w12_gemm import w12_gemm
from specpilot_kernels.w12_gemm.sm120 import w12_gemm_sm120
from tests.kernels.w12_cases import draw

SHAPES = [
    (300, 136),
    (640, 1024),
    (5120, 3592),
    (6144, 256),
    (8192, 1416),
    (14336, 256),
    (14336, 712),
    (28672, 256),
    (28672, 712),
    (34816, 256),
    (34816, 712),
    (79000, 712),
]
ROWS = (8, 16, 32, 48, 64)
MOST_ROWS_OF_COPIES = 32
LARGEST_ERRORS = {"exact": 0.003, "sm120": 0.003, "view": 0.05, "INT8": 0.02, "INT6": 0.05}
"""Relative, in the 2-norm: about twice what rounding makes of these weights."""


def products(weight: Tensor) -> dict[str, Tensor]:
    """Errors of all products of one weight, by name and rows."""
    encoded = to_device(encode_w12(weight), "cuda")
    copies = {f"INT{bits}": quantise_on_device(weight.cuda(), bits) for bits in (8, 6)}
    truth, errors = weight.double().T, {}
    for rows in ROWS:
        x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(rows)).bfloat16()
        expected, on_device = x.double() @ truth, x.cuda()
        found = {"exact": w12_gemm(on_device, encoded), "sm120": w12_gemm_sm120(on_device, encoded)}
        if rows <= MOST_ROWS_OF_COPIES:
            found["view"] = w12_view_gemm(on_device, encoded)
            found |= {name: q_gemm(on_device, copy) for name, copy in copies.items()}
        for name, y in found.items():
            errors[f"{name} {rows}"] = (y.cpu().double() - expected).norm() / expected.norm()
    return errors


def main() -> None:
    for shape in SHAPES:
        for name, error in products(draw(shape)).items():
            if not error <= LARGEST_ERRORS[name.split()[0]]:
                raise SystemExit(f"{shape}, {name}: relative error {float(error):.3g}")
        print(shape, flush=True)
    head = build_head(draw((5000, 648)).cuda())
    for rows in (1, 8, 32):
        x = torch.randn(rows, 648, generator=torch.Generator().manual_seed(rows)).bfloat16().cuda()
        if not torch.equal(certified_argmax(x, head).ids, full_argmax(x, head.exact).ids):
            raise SystemExit(f"certified head, {rows} rows: another id than the full head's")
    print("all products right")


if __name__ == "__main__":
    main()
