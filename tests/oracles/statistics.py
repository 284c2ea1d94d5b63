"""Goodness of fit, for tests of sampled laws."""

from __future__ import annotations

import torch
from torch import Tensor


def chi_square_p_value(counts: Tensor, law: Tensor) -> float:
    """p-value of Pearson's test that ``counts`` (cells,) were drawn from ``law`` (cells,).

    Cells are merged, rarest first, until each expects at least 5; a count where the law is 0 gives p = 0.
    """
    counts, law = counts.double(), law.double()
    if bool((counts[law == 0] > 0).any()):
        return 0.0
    order = law.argsort()
    total, cells, seen, expected = counts.sum(), [], 0.0, 0.0
    for cell in order.tolist():
        seen += float(counts[cell])
        expected += float(law[cell] * total)
        if expected >= 5.0:
            cells.append((seen, expected))
            seen = expected = 0.0
    if expected and cells:
        cells[-1] = (cells[-1][0] + seen, cells[-1][1] + expected)
    statistic = sum((observed - mean) ** 2 / mean for observed, mean in cells)
    degrees = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(degrees, torch.tensor(statistic / 2, dtype=torch.float64)))
