"""Learning rate, optimiser and resumable progress shared by the training programs."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

# Steps after which a fitted run looks at its pace.
PACE_STEPS = 60

__all__ = ["PACE_STEPS", "Progress", "learning_rate", "make_optimizer"]


def learning_rate(step: int, total: int, peak: float, warmup: int) -> float:
    """Linear warm-up, then a cosine to 2% of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def make_optimizer(model: nn.Module, peak: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices only; tables with a row a token, norms and gates are left alone."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_table = any(word in name for word in ("embed", "codebook", "markov"))
            (decayed if parameter.ndim == 2 and not is_table else plain).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), eps=1e-8)


class Progress:
    """Saves model, optimiser, generators and history so that a stopped run goes on where it was.

    The file is written beside its name, synced and renamed: a kill leaves the old one or the new one.
    """

    def __init__(self, path: Path, time_limit_s: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.deadline = time.monotonic() + time_limit_s
        self._mark = time.monotonic()

    @property
    def is_out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    def fit(self, num_done: int, steps: int, first: int) -> int:
        """Shorten a plan of ``steps`` to what ends before the deadline, at the pace of the steps after warm-up.

        Called before every step with the number done in this run; changes the plan once, after ``PACE_STEPS``.
        """
        if num_done == PACE_STEPS // 3:
            self._mark = time.monotonic()
        if num_done != PACE_STEPS:
            return steps
        now = time.monotonic()
        pace_s = (now - self._mark) / (PACE_STEPS - PACE_STEPS // 3)
        return min(steps, first + num_done + int(0.94 * (self.deadline - now) / pace_s))

    def load(self) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, weights_only=False, map_location="cpu")
        return state

    def save(self, state: dict[str, Any]) -> None:
        partial = self.path.with_suffix(".partial")
        with open(partial, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.path)
