"""W12: BF16 weights in 12 bits, no bit lost.

The codec on the CPU is compiled when one of its functions is first asked for; the layout and the codec on a GPU
(:mod:`specpilot_kernels.w12.cuda`) need no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specpilot_kernels.w12.layout import W12Weight

if TYPE_CHECKING:
    from specpilot_kernels.w12.ops import decode_w12, encode_w12, view_w12

__all__ = ["W12Weight", "decode_w12", "encode_w12", "view_w12"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specpilot_kernels.w12 import ops

    return getattr(ops, name)
