"""A greedy token from an INT8 screen of the LM head, provably the full head's, on a GPU."""

from specpilot_kernels.certified_head.bounds import DeviceHead, build_head
from specpilot_kernels.certified_head.choice import choose_head
from specpilot_kernels.certified_head.ops import MAX_ROWS, HeadIds, certified_argmax, full_argmax

__all__ = [
    "MAX_ROWS",
    "DeviceHead",
    "HeadIds",
    "build_head",
    "certified_argmax",
    "choose_head",
    "full_argmax",
]
