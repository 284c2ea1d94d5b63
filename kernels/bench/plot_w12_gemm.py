"""Draw the W12 product's speed over cuBLAS by rows of x, a line a projection of Qwen3.8-27B, from the bench's CSV.

python kernels/bench/plot_w12_gemm.py kernels/bench/results/w12_gemm_h200.csv kernels/bench/results/w12_gemm_h200.svg
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

SHAPES = {
    "qkv_gate": ("attention qkv + gate", "#1b6ca8"),
    "attn_out": ("attention out", "#c1440e"),
    "gdn_in": ("GDN in", "#4b8b3b"),
    "mlp_down": ("MLP down", "#7d4ea8"),
    "gate_up": ("MLP gate + up", "#b58900"),
    "lm_head": ("LM head", "#333333"),
}
LOW, HIGH, STEP = 0.9, 1.5, 0.1
TOP, HEIGHT, WIDTH, LEFTS = 60, 240, 300, (60, 400)


def place_y(ratio: float) -> float:
    return TOP + HEIGHT * (HIGH - ratio) / (HIGH - LOW)


def draw_panel(rows: list[dict[str, str]], l2: str, left: int) -> list[str]:
    parts = [f'<text x="{left + WIDTH / 2}" y="{TOP - 8}" text-anchor="middle">{l2} L2</text>']
    for i in range(round((HIGH - LOW) / STEP) + 1):
        ratio = LOW + STEP * i
        y, color = place_y(ratio), "#000" if abs(ratio - 1) < 1e-6 else "#ddd"
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{color}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{ratio:.1f}</text>')
    counts = list(dict.fromkeys(row["rows"] for row in rows))
    places = {count: left + 20 + (WIDTH - 40) * i / (len(counts) - 1) for i, count in enumerate(counts)}
    parts += [
        f'<text x="{x:.0f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{n}</text>'
        for n, x in places.items()
    ]
    parts.append(
        f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">rows of x</text>'
    )
    for shape, (_, color) in SHAPES.items():
        points = [
            (places[row["rows"]], place_y(float(row["cublas_us"]) / float(row["ours_us"])))
            for row in rows
            if row["shape"] == shape and row["l2"] == l2
        ]
        line = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.0f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
    return parts


def main(table: Path, picture: Path) -> None:
    with open(table, newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["rows"]))
    sizes = {row["shape"]: f"{row['n']} x {row['k']}" for row in rows}
    title = (
        f"{rows[0]['gpu']}: time of the best BF16 product of cuBLAS over time of the W12 product, Qwen3.8-27B"
    )
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="930" height="350" font-family="sans-serif" font-size="12">',
        '<rect width="930" height="350" fill="#fff"/>',
        f'<text x="60" y="24" font-size="15">{title}</text>',
    ]
    for l2, left in zip(("cold", "warm"), LEFTS, strict=True):
        parts += draw_panel(rows, l2, left)
    for i, (shape, (label, color)) in enumerate(SHAPES.items()):
        y = TOP + 20 + 34 * i
        parts.append(f'<line x1="720" x2="744" y1="{y - 4}" y2="{y - 4}" stroke="{color}" stroke-width="3"/>')
        parts.append(f'<text x="750" y="{y}">{label}</text>')
        parts.append(f'<text x="750" y="{y + 14}" fill="#666">{sizes[shape]}</text>')
    picture.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
