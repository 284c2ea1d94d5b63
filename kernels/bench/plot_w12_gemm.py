"""Draw the W12 product's speed over cuBLAS by rows, a line a projection, from the bench's CSV.

python kernels/bench/plot_w12_gemm.py kernels/bench/results/w12_gemm_h200.csv kernels/bench/results/w12_gemm_h200.png
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt

SHAPES = {
    "qkv_gate": "attention qkv + gate",
    "attn_out": "attention out",
    "gdn_in": "GDN in",
    "mlp_down": "MLP down",
    "gate_up": "MLP gate + up",
    "lm_head": "LM head",
}


def main(table: Path, picture: Path) -> None:
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), sharey=True, layout="constrained")
    for axis, l2 in zip(axes, ("cold", "warm"), strict=True):
        for (shape, label), marker in zip(SHAPES.items(), "os^Dvx", strict=True):
            found = [row for row in rows if row["shape"] == shape and row["l2"] == l2]
            ratios = [float(row["cublas_us"]) / float(row["ours_us"]) for row in found]
            axis.plot(
                range(len(found)),
                ratios,
                marker=marker,
                markersize=5,
                label=f"{label}, {found[0]['n']} x {found[0]['k']}",
            )
            axis.set_xticks(range(len(found)), [row["rows"] for row in found])
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(title=f"{l2} L2", xlabel="rows of x", ylim=(0.9, 1.5))
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("cuBLAS BF16 time / W12 time")
    figure.suptitle(
        f"W12 product on {rows[0]['gpu']}, {rows[0]['sm_clock_mhz']} MHz: projections of Qwen3.8-27B"
    )
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
