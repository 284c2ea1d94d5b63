"""GPU kernels of SpecPilot and what must be known of a device before one is launched.

Importing this package needs no GPU, no CUDA and no compiler.
"""
