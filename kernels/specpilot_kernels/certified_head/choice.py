"""Which head is faster on a GPU: measurements in choices.csv, which kernels/bench/bench_certified_head.py writes."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Literal

__all__ = ["Head", "choose_head"]

Head = Literal["certified", "w12"]
_FILE = Path(__file__).parent / "choices.csv"


def choose_head(gpu: str, num_rows: int) -> Head:
    """The faster head for rows of x on a GPU of that name.

    Of the measured numbers of rows, the next larger one decides.

    Raises
    ------
    KeyError
        Nothing was measured on that GPU, or not for so many rows.
    """
    for rows, head in _choices().get(gpu, ()):
        if num_rows <= rows:
            return head
    raise KeyError(
        f"no measured choice for {num_rows} rows on {gpu}: run kernels/bench/bench_certified_head.py there"
    )


@functools.cache
def _choices() -> dict[str, list[tuple[int, Head]]]:
    found: dict[str, list[tuple[int, Head]]] = {}
    with open(_FILE, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            is_certified = float(row["certified_us"]) < float(row["w12_us"])
            found.setdefault(row["gpu"], []).append(
                (int(row["rows"]), "certified" if is_certified else "w12")
            )
    return {gpu: sorted(rows) for gpu, rows in found.items()}
