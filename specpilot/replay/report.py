"""Tables of a replay: builders and the oracle at several N."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

from specpilot.draft.builders import make_builder
from specpilot.draft.builders.sequoia import positional_rates
from specpilot.engines.mechanisms import Builder
from specpilot.errors import ConfigError
from specpilot.replay.oracle import replay_oracle
from specpilot.replay.records import ReplayStep, read_records
from specpilot.replay.selection import ReplayRow, replay_builder

__all__ = ["FORMAT_VERSION", "NUM_RATES", "fitted_rates", "replay_report", "replay_rows"]

FORMAT_VERSION = 1

NUM_RATES = 8
"""Ranks that a Sequoia tree may use."""


def replay_rows(
    steps: Sequence[ReplayStep], builders: Sequence[str], nodes: Sequence[int]
) -> list[ReplayRow]:
    """Rows of every builder at every N, and of the oracle.

    Sequoia's positional acceptance rates are fitted on every second request of the recording.
    """
    rows: list[ReplayRow] = []
    for name in builders:
        if name not in get_args(Builder):
            raise ConfigError(f"builder: got {name!r}, expected one of: {', '.join(get_args(Builder))}")
        rates = fitted_rates(steps) if name == "sequoia" else None
        rows += replay_builder(steps, name, make_builder(cast(Builder, name), rates=rates), nodes)
    return rows + list(replay_oracle(steps, nodes))


def fitted_rates(steps: Sequence[ReplayStep]) -> tuple[float, ...]:
    """Positional acceptance rates of every second request's steps."""
    requests = list(dict.fromkeys(step.request for step in steps))[::2]
    chosen = set(requests)
    return positional_rates(
        ((step.lattice, step.truth.tolist()) for step in steps if step.request in chosen), NUM_RATES
    )


def replay_report(
    records: Sequence[Path], builders: Sequence[str], nodes: Sequence[int], *, drafter: str | None = None
) -> tuple[dict[str, Any], list[ReplayRow]]:
    """Read recordings and replay them: the report as a JSON object, and its rows."""
    steps = read_records(records, drafter=drafter)
    drafters = sorted({step.request.drafter for step in steps})
    if len(drafters) > 1:
        raise ConfigError(
            f"records: got drafters {', '.join(drafters)}, expected one; name it with --drafter"
        )
    rows = replay_rows(steps, builders, nodes)
    report = {
        "format_version": FORMAT_VERSION,
        "drafter": drafters[0],
        "num_requests": len({step.request for step in steps}),
        "num_steps": len(steps),
        "depths": sorted({step.lattice.depth for step in steps}),
        "rows": [asdict(row) for row in rows],
    }
    return report, rows
