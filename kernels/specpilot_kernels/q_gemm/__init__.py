"""y = x W^T over cheaper copies of a weight: INT8, INT6, and the 8-bit view of W12."""

from specpilot_kernels.q_gemm.layout import DeviceQ
from specpilot_kernels.q_gemm.ops import MAX_ROWS, q_gemm, w12_view_gemm
from specpilot_kernels.q_gemm.quantise import quantise_on_device
from specpilot_kernels.q_gemm.reference import q_gemm_reference, w12_view_gemm_reference

__all__ = [
    "MAX_ROWS",
    "DeviceQ",
    "q_gemm",
    "q_gemm_reference",
    "quantise_on_device",
    "w12_view_gemm",
    "w12_view_gemm_reference",
]
