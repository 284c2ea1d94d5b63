"""y = x W^T with W12 weights, decoded in registers."""

from specpilot_kernels.w12_gemm.ops import MAX_ROWS, w12_gemm
from specpilot_kernels.w12_gemm.plan import Kernel, Plan, plan_product
from specpilot_kernels.w12_gemm.reference import w12_gemm_reference

__all__ = ["MAX_ROWS", "Kernel", "Plan", "plan_product", "w12_gemm", "w12_gemm_reference"]
