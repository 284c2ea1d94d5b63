"""``make soak``: the reliability table, on loopback, with fake engines in processes of their own. Ends by itself.

``python -m tests.soak [NAME...]`` runs the rows whose function's name contains one of the words.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.soak.clients import compare_clients
from tests.soak.cost import measure_added_latency, measure_events
from tests.soak.faults import (
    engine_killed,
    resets_before_first_byte,
    sidecar_killed_in_a_switch,
    switch_under_load,
)
from tests.soak.gateways import compare_gateways
from tests.soak.jobs import measure_job_cost

PARTS = (
    switch_under_load,
    engine_killed,
    sidecar_killed_in_a_switch,
    resets_before_first_byte,
    measure_added_latency,
    measure_events,
    compare_clients,
    measure_job_cost,
    compare_gateways,
)


async def main(words: list[str]) -> int:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            if words and not any(word in part.__name__ for word in words):
                continue
            found = await part(Path(folder) / part.__name__)
            for row in found if isinstance(found, list) else [found]:
                rows.append(row)
                print(
                    f"| {row.what} | {row.measured} | {row.limit} | {'yes' if row.is_ok else 'NO'} |",
                    flush=True,
                )
    return 0 if rows and all(row.is_ok for row in rows) else 1


if __name__ == "__main__":
    print("| what | measured | limit | kept |\n|---|---|---|---|", flush=True)
    sys.exit(asyncio.run(main(sys.argv[1:])))
