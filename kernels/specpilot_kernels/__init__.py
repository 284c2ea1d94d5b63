"""CPU and GPU kernels of SpecPilot, and what must be known of a device before one is launched.

Importing this package needs no GPU, no CUDA and no compiler.
"""

import os

# torch's OpenMP reads this when it is loaded, so it stands here, in the first module of every program: the library's
# first line imports this package. Threads that spin while they wait take the cores from whatever runs beside them.
# A value set by the user is kept.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
