"""SpecPilot: lossless speculative decoding, measured and proved on the box."""

import specpilot_kernels as specpilot_kernels  # before torch: it chooses how threads wait

__all__ = ["__version__"]
__version__ = "0.1.0"
