"""Matrix products of few rows with BF16 or float32 weights on the CPU; a row's result depends on no other row."""

from specpilot_kernels.skinny_gemm.layout import GROUP_PANELS, PANEL_COLUMNS, ElementType, PackedWeight
from specpilot_kernels.skinny_gemm.ops import skinny_gemm, skinny_gemm_arrays

__all__ = [
    "GROUP_PANELS",
    "PANEL_COLUMNS",
    "ElementType",
    "PackedWeight",
    "skinny_gemm",
    "skinny_gemm_arrays",
]
