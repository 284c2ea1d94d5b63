"""Timing on CUDA devices, for the benches."""

from __future__ import annotations

import ctypes
import statistics
import subprocess
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from specpilot_kernels.loader import load_library

__all__ = ["FLUSH_BYTES", "bare_read_us", "graph_of", "median_us", "sm_clock_mhz"]

FLUSH_BYTES = 256 * 2**20
"""Written before a call, so that it finds nothing of its own in the L2."""
_RECORD_BYTES = 12288


def median_us(calls: Mapping[str, Callable[[], object]], samples: int = 21) -> dict[str, float]:
    """Medians of CUDA events around single calls, which take turns and each find a cold L2.

    An empty kernel shows about 4 us.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for sample in range(samples):
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.fill_(sample & 1)
            begin.record()
            call()
            end.record()
            pairs[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(a.elapsed_time(b) * 1e3 for a, b in times) for name, times in pairs.items()
    }


def bare_read_us(memory: Tensor, num_bytes: int) -> float:
    """The fastest of nine grids of plain loads over the first bytes of a tensor, as :func:`median_us` times it."""
    function = load_library().specpilot_w12_read_sm90
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer, ctypes.c_int64, pointer, integer, integer, pointer]
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    stream = torch.cuda.current_stream().cuda_stream

    def read(times: int, ahead: int) -> Callable[[], object]:
        arguments = (
            memory.data_ptr(),
            num_bytes // _RECORD_BYTES,
            sink.data_ptr(),
            times * blocks,
            ahead,
            stream,
        )
        return lambda: function(*arguments)

    calls = {f"{times} {ahead}": read(times, ahead) for times in (2, 4, 6) for ahead in (1, 2, 4)}
    return min(median_us(calls).values())


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
