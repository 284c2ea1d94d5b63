"""W12: BF16 weights in 12 bits, no bit lost.

The codec on the CPU is compiled when one of its functions is first asked for; the layout and the codec on a GPU
(:mod:`specpilot_kernels.w12.cuda`) need no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specpilot_kernels.w12.layout import W12Weight

if TYPE_CHECKING:
    from specpilot_kernels.w12.modules import ConversionReport, W12Linear, convert_
    from specpilot_kernels.w12.ops import decode_w12, encode_w12, view_w12

__all__ = [
    "ConversionReport",
    "W12Linear",
    "W12Weight",
    "convert_",
    "decode_w12",
    "encode_w12",
    "view_w12",
]

_IN_MODULES = ("ConversionReport", "W12Linear", "convert_")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _IN_MODULES:
        from specpilot_kernels.w12 import modules

        return getattr(modules, name)
    from specpilot_kernels.w12 import ops

    return getattr(ops, name)
