"""Timing on CUDA devices, for the benches."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from specpilot_kernels.loader import load_library
from specpilot_kernels.testing import quantile

__all__ = [
    "Percentiles",
    "bare_read_us",
    "graph_of",
    "measure_us",
    "sm_clock_mhz",
]

_FLUSH_BYTES = 256 * 2**20
"""Written before a call, so that it finds nothing of its own in the L2."""
_SLEEP_CYCLES = 600_000
"""About 0.3 ms, in which the host queues a call and the events around it."""
_RECORD_BYTES = 12288


class Percentiles(NamedTuple):
    """Microseconds."""

    p20: float
    p50: float
    p80: float


def measure_us(
    calls: Mapping[str, Callable[[], object]], *, warm: bool = False, samples: int = 21
) -> dict[str, Percentiles]:
    """CUDA events around single calls, which take turns; an empty kernel shows about 4 us.

    Before every call the device sleeps, so that its launch is not late, and then writes 256 MB; *warm*: it
    runs the same call instead, whose data the timed one finds in the L2 as far as they fit.
    """
    flush = torch.empty(0 if warm else _FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for sample in range(samples):
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(_SLEEP_CYCLES)
            if warm:
                call()
            else:
                flush.fill_(sample & 1)
            begin.record()
            call()
            end.record()
            pairs[name].append((begin, end))
    torch.cuda.synchronize()
    percentiles = {}
    for name, events in pairs.items():
        times = sorted(begin.elapsed_time(end) * 1e3 for begin, end in events)
        percentiles[name] = Percentiles(*(quantile(times, fraction) for fraction in (0.2, 0.5, 0.8)))
    return percentiles


def bare_read_us(memory: Tensor, num_bytes: int, *, warm: bool = False) -> float:
    """Median of the fastest way to read the first bytes of a tensor, timed by :func:`measure_us`.

    Nine grids of plain loads (2, 4 or 6 blocks a multiprocessor, 1, 2 or 4 records of 12288 bytes ahead), two rings of
    bulk copies (2 or 3 blocks). A last part of a record is left out.

    Raises
    ------
    RuntimeError
        The kernels are not built, or a launch failed.
    """
    function = load_library().specpilot_w12_read_sm90
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, ctypes.c_int64, pointer, integer, integer, pointer]
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    stream = torch.cuda.current_stream().cuda_stream

    def read(blocks: int, ahead: int) -> None:
        status = function(
            memory.data_ptr(),
            num_bytes // _RECORD_BYTES,
            sink.data_ptr(),
            blocks * multiprocessors,
            ahead,
            stream,
        )
        if status:
            raise RuntimeError(f"specpilot_w12_read_sm90: CUDA error {status}")

    grids = [(blocks, ahead) for blocks in (2, 4, 6) for ahead in (1, 2, 4)] + [(2, 0), (3, 0)]
    calls = {f"{blocks} {ahead}": functools.partial(read, blocks, ahead) for blocks, ahead in grids}
    return min(times.p50 for times in measure_us(calls, warm=warm).values())


def graph_of(call: Callable[[], object]) -> Callable[[], object]:
    """A CUDA graph of a call; what the call returned is kept."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay(kept: object = kept) -> None:
        graph.replay()

    return replay


def sm_clock_mhz() -> int:
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(query, check=True, capture_output=True, text=True).stdout.split()[0])
