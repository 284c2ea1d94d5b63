"""W12: BF16 weights in 12 bits, no bit lost."""

from specpilot_kernels.w12.layout import W12Weight
from specpilot_kernels.w12.ops import decode_w12, encode_w12, view_w12

__all__ = ["W12Weight", "decode_w12", "encode_w12", "view_w12"]
