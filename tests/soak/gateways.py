"""The gateway beside LiteLLM's proxy, in front of the same fake engine.

LiteLLM has an environment of its own: ``pip install 'litellm[proxy]'`` there, and its program in ``SOAK_LITELLM``.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from tests.soak.cost import added_ms, us_per_event
from tests.soak.processes import run_fake_engine, run_litellm, run_sidecar_process
from tests.soak.row import Row

__all__ = ["compare_gateways"]


async def compare_gateways(folder: Path) -> Row:
    """Added p99 an event (20 streams, 400 events a second), then processor time an event (50 streams)."""
    program = os.environ.get("SOAK_LITELLM")
    if not program:
        return Row(
            "beside LiteLLM proxy", "not measured: SOAK_LITELLM names no program", "less of both", True
        )
    with (
        run_fake_engine() as port,
        run_sidecar_process(folder / "state", "--max-in-flight", "200", engine_port=port) as sidecar,
        run_litellm(program, folder / "litellm", port) as (other_port, other_pid),
    ):
        engine, other = ("127.0.0.1", port), ("127.0.0.1", other_port)
        _, _, ours = await added_ms(engine, sidecar.address, 3)
        _, _, theirs = await added_ms(engine, other, 3)
        our_us, our_rate = await us_per_event(sidecar.address, sidecar.process.pid, 0.05)
        their_us, their_rate = await us_per_event(other, other_pid, 0.05)
    added = statistics.median(ours), statistics.median(theirs)
    measured = (
        f"added p99 {added[0]:.2f} ms, LiteLLM {added[1]:.2f} ms; processor time an event {our_us:.0f} us, LiteLLM "
        f"{their_us:.0f} us; of 1,000 events/s asked for {our_rate:.0f} and {their_rate:.0f} came"
    )
    return Row("beside LiteLLM proxy", measured, "less of both", added[0] < added[1] and our_us < their_us)
