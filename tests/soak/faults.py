"""Switches and deaths under load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import httpx

from tests.soak.client import StreamResult, read_stream, reset_before_first_byte
from tests.soak.processes import SidecarProcess, run_sidecar_process
from tests.soak.row import Row

__all__ = ["engine_killed", "resets_before_first_byte", "sidecar_killed_in_a_switch", "switch_under_load"]

_NUM_STREAMS = 100


def _is_whole(result: StreamResult, num_events: int) -> bool:
    return (
        result.status == 200 and result.is_done and not result.has_error and result.num_events == num_events
    )


async def _switch(sidecar: SidecarProcess, profile: str, mode: str) -> str:
    switch_id = await asyncio.to_thread(sidecar.switch, profile, mode)
    return await sidecar.wait_for(switch_id, "applied", "rolled_back", "failed")


async def switch_under_load(folder: Path) -> list[Row]:
    """100 clients that ask again and again, while the profile is switched there and back in both modes."""
    rows = []
    options = ("--max-in-flight", "200", "--keep-alive-s", "0.5", "--drain-timeout-s", "60")
    with run_sidecar_process(folder, *options) as sidecar:
        for mode in ("surge", "recreate"):
            results: list[StreamResult] = []
            is_over = False

            async def client(results: list[StreamResult] = results) -> None:
                while not is_over:  # noqa: B023 - the loop's own flag
                    body = {"max_tokens": 40, "fake": {"delay_s": 0.02}}
                    results.append(await read_stream(sidecar.address, body))

            clients = [asyncio.create_task(client()) for _ in range(_NUM_STREAMS)]
            await asyncio.sleep(0.5)
            states = [await _switch(sidecar, profile, mode) for profile in ("b", "a")]
            is_over = True
            await asyncio.gather(*clients)
            dropped = sum(not _is_whole(result, 40) for result in results)
            measured = f"{dropped} of {len(results)} streams dropped or cut; switches {', '.join(states)}"
            rows.append(
                Row(
                    f"{mode} there and back, {_NUM_STREAMS} clients",
                    measured,
                    "0",
                    dropped == 0 and states == ["applied"] * 2,
                )
            )
    return rows


async def engine_killed(folder: Path) -> Row:
    """kill -9 of the engine with 100 open streams: how long until every client has an error frame, and the service."""
    with run_sidecar_process(folder, "--max-in-flight", "200", "--breaker-failures", "1000") as sidecar:
        body = {"max_tokens": 10_000, "fake": {"delay_s": 0.02}}
        streams = [asyncio.create_task(read_stream(sidecar.address, body)) for _ in range(_NUM_STREAMS)]
        await asyncio.sleep(1.0)
        engine = sidecar.admin.get("/engine").json()["instances"][0]
        before = sidecar.admin.get("/audit-log/verify").json()
        killed_s = time.monotonic()
        os.kill(engine["pid"], signal.SIGKILL)
        results = await asyncio.gather(*streams)
        worst_s = max((r.error_at_s or float("inf")) - killed_s for r in results)
        told = sum(r.has_error and r.is_done for r in results)
        again = await read_stream(sidecar.address, {"max_tokens": 3})
        back_s = time.monotonic() - killed_s
        after = sidecar.admin.get("/audit-log/verify").json()
        crash = sidecar.admin.get("/engine/logs", params={"which": "previous"}).json()["crash"]
    is_kept = (
        after["is_intact"] and after["num_entries"] > before["num_entries"] and crash["signal"] == "SIGKILL"
    )
    back = f"next answer whole after {back_s:.1f} s; log kept: {is_kept}"
    measured = f"{told} told, the last after {worst_s:.2f} s; {back}"
    is_ok = told == _NUM_STREAMS and worst_s <= 5 and _is_whole(again, 3) and is_kept
    return Row(f"engine kill -9, {_NUM_STREAMS} streams", measured, "all within 5 s", is_ok)


async def sidecar_killed_in_a_switch(folder: Path) -> Row:
    """kill -9 in each state of a switch; what the next sidecar finds and serves."""
    problems, num_kills = [], 0
    for state in ("pending", "draining", "starting", "gating", "promoting", "applied"):
        for mode in ("surge", "recreate"):
            if state == "draining" and mode == "surge":
                continue
            place = folder / f"{state}-{mode}"
            with run_sidecar_process(place) as sidecar:
                reading = asyncio.create_task(asyncio.sleep(0, StreamResult()))
                if state == "draining":  # an open stream keeps it there
                    reading = asyncio.create_task(
                        read_stream(sidecar.address, {"max_tokens": 500, "fake": {"delay_s": 0.02}})
                    )
                    await asyncio.sleep(0.2)
                switch_id = sidecar.switch("b", mode)
                pause_s = {"pending": 0.0, "starting": 0.3}.get(state)
                if pause_s is None:
                    await sidecar.wait_for(switch_id, state, "applied")
                else:
                    await asyncio.sleep(pause_s)
                engines = [engine["pid"] for engine in sidecar.admin.get("/engine").json()["instances"]]
                sidecar.kill()
                num_kills += 1
                await asyncio.gather(reading)
            with run_sidecar_process(place) as sidecar:
                await asyncio.sleep(0.3)
                switch = sidecar.admin.get(f"/switches/{switch_id}").json()
                revisions = sidecar.admin.get("/revisions").json()
                wanted = {"applied": 2, "rolled_back": 1}.get(switch["state"])
                served = await read_stream(sidecar.address, {"max_tokens": 3})
                alive = [pid for pid in engines if pid is not None and Path(f"/proc/{pid}").exists()]
                is_intact = sidecar.admin.get("/audit-log/verify").json()["is_intact"]
                if revisions["current"] != wanted or not _is_whole(served, 3) or alive or not is_intact:
                    problems.append(
                        f"{state}/{mode}: {switch['state']}, current {revisions['current']}, left {alive}"
                    )
    measured = f"{num_kills} kills, {len(problems)} inconsistent {problems or ''}".strip()
    return Row("sidecar kill -9 in a switch", measured, "consistent", not problems)


async def resets_before_first_byte(folder: Path) -> Row:
    """20 clients reset their connection while their request waits for its first byte; a pool of 4."""
    with run_sidecar_process(folder, "--max-in-flight", "4") as sidecar:
        body = {"fake": {"head_delay_s": 600}}
        await asyncio.gather(*(reset_before_first_byte(sidecar.address, body, 0.5) for _ in range(20)))
        results = [await read_stream(sidecar.address, {"max_tokens": 3}) for _ in range(8)]
        traffic = sidecar.admin.get("/overview").json()["traffic"]
        text = httpx.get(
            f"{str(sidecar.admin.base_url).removesuffix('/admin/v1/')}/metrics", headers=sidecar.admin.headers
        )
        is_zero = "specpilot_gateway_requests_in_flight 0.0" in text.text
    left = traffic["num_in_flight"] + traffic["num_queued"]
    good = sum(_is_whole(result, 3) for result in results)
    measured = f"{left} places still taken, {good} of 8 next requests whole"
    return Row(
        "20 resets before the first byte, pool of 4",
        measured,
        "0 leaked",
        left == 0 and good == 8 and is_zero,
    )
