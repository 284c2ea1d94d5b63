"""The report, as JSON and as text laid out like the paper's tables 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from specpilot.bench.compare.arms import AR, STOCK, Arm
from specpilot.bench.compare.run import Results, compare_gain, tau

__all__ = ["GROUPS", "REPORT_VERSION", "make_report", "render"]

REPORT_VERSION: Final = 1
GROUPS: Final[Mapping[str, str]] = {
    "gsm8k": "Math",
    "math500": "Math",
    "school-math": "Math",
    "competition-math": "Math",
    "humaneval": "Code",
    "mbpp": "Code",
    "python-body": "Code",
    "python-task": "Code",
    "mt_bench": "Chat",
    "dialogue": "Chat",
}
"""Heading over a benchmark's columns; others stand under 'Other'."""
_ORDER = ("Math", "Code", "Chat", "Other")


def make_report(results: Results, arms: Sequence[Arm], batch_sizes: Sequence[int]) -> dict[str, Any]:
    """Speed-up over AR and tau of every arm, benchmark and batch size; gains over stock with their intervals."""
    names = {one.benchmark for one in results[AR, batch_sizes[0]]}
    benchmarks = sorted(names, key=lambda name: (_ORDER.index(GROUPS.get(name, "Other")), name))
    rows = []
    for arm in arms:
        whole = compare_gain(results, arm.name, AR, batch_sizes)
        cells: dict[str, dict[str, Any]] = {}
        for name in benchmarks:
            per_size = {str(size): math.exp(whole.gain.cells[name, size]) for size in batch_sizes}
            answers = [
                one for size in batch_sizes for one in results[arm.name, size] if one.benchmark == name
            ]
            mean = math.exp(sum(whole.gain.cells[name, size] for size in batch_sizes) / len(batch_sizes))
            cells[name] = {"speedup": mean, "tau": tau(answers, arm.name), "speedup_by_batch_size": per_size}
        everything = [one for size in batch_sizes for one in results[arm.name, size]]
        taus = [cell["tau"] for cell in cells.values()]
        rows.append(
            {
                "arm": arm.name,
                "label": arm.label,
                "benchmarks": cells,
                "speedup": whole.gain.ratio,
                "speedup_95": [whole.lower, whole.upper],
                "tau": None if None in taus else sum(taus) / len(taus),
                "tok_s": sum(len(one.output_ids) for one in everything)
                / sum(one.elapsed_s for one in everything),
                "num_diverged": sum(
                    one.output_ids != other.output_ids
                    for size in batch_sizes
                    for one, other in zip(results[arm.name, size], results[AR, size], strict=True)
                ),
            }
        )
    report: dict[str, Any] = {
        "report_version": REPORT_VERSION,
        "batch_sizes": list(batch_sizes),
        "arms": rows,
    }
    if any(arm.name == STOCK for arm in arms):
        report["gains_over_stock"] = [
            {"arm": arm.name, "gain": found.gain.ratio, "gain_95": [found.lower, found.upper]}
            for arm in arms
            if arm.name not in (AR, STOCK)
            for found in [compare_gain(results, arm.name, STOCK, batch_sizes)]
        ]
    return report


def render(report: Mapping[str, Any]) -> str:
    """Tables for a terminal: speed-up over AR and tau by benchmark; by batch size if there are several; gains."""
    rows = report["arms"]
    names = list(rows[0]["benchmarks"])
    width = max(len(f"{row['arm']} ({row['label']})") for row in rows)
    columns = [f"{GROUPS.get(name, 'Other')}: {name}" for name in names] + ["Avg."]
    cell = max(16, *(len(head) + 2 for head in columns))
    lines = ["Speedup over AR and tau", " " * width + "".join(f"{head:>{cell}}" for head in columns)]
    for row in rows:
        values = [*(row["benchmarks"][name] for name in names), row]
        shown = "".join(f"{_cell(one['speedup'], one['tau']):>{cell}}" for one in values)
        lines.append(f"{row['arm'] + ' (' + row['label'] + ')':<{width}}{shown}")
    if len(sizes := report["batch_sizes"]) > 1:
        lines += [
            "",
            "Speedup over AR by requests in flight",
            " " * width + "".join(f"{size:>{cell}}" for size in sizes),
        ]
        for row in rows:
            means = [
                math.exp(
                    sum(
                        math.log(row["benchmarks"][name]["speedup_by_batch_size"][str(size)])
                        for name in names
                    )
                    / len(names)
                )
                for size in sizes
            ]
            lines.append(f"{row['arm']:<{width}}" + "".join(f"{f'{mean:.2f}x':>{cell}}" for mean in means))
    if gains := report.get("gains_over_stock"):
        lines += ["", "Gain over tuned stock (95% interval over requests)"]
        by_name = {row["arm"]: row for row in rows}
        for one in gains:
            low, high = one["gain_95"]
            steps = f"tokens/step {_tau(by_name[STOCK]['tau'])} -> {_tau(by_name[one['arm']]['tau'])}"
            lines.append(f"{one['arm']:<{width}}  {one['gain']:.3f}x [{low:.3f}, {high:.3f}]  {steps}")
    return "\n".join(lines)


def _cell(speedup: float, accept_length: float | None) -> str:
    return f"{speedup:.2f}x {_tau(accept_length)}"


def _tau(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
