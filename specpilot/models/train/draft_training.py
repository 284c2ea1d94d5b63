"""Trains a bundled drafter on the target's own answers; the loop is the same for every kind of drafter."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from specpilot.errors import SpecPilotError
from specpilot.models.train.answers import Answers
from specpilot.models.train.drafter import DraftBatch, TrainableDrafter, labels
from specpilot.models.train.schedule import Progress, learning_rate, make_optimizer
from specpilot.models.train.target import TrainTarget

__all__ = ["accept_length", "make_batch", "train_drafter"]

_Drafter = TypeVar("_Drafter", bound=TrainableDrafter)


@torch.no_grad()
def make_batch(
    taps: tuple[int, ...],
    target: TrainTarget,
    answers: Answers,
    size: int,
    anchors: int,
    draw: torch.Generator,
) -> DraftBatch:
    """``size`` answers of similar length, ``anchors`` anchors in each, and the target's forward over them."""
    ids, places, ends = answers.batch(size, anchors, draw)
    starts = torch.zeros_like(ids, dtype=torch.bool)
    starts[:, 0] = True
    hidden, tapped = target(ids, starts, taps)
    return DraftBatch(ids, tapped, hidden, places, ends, target.model.embed_tokens.weight.detach())


@torch.no_grad()
def accept_length(drafter: TrainableDrafter, target: TrainTarget, held_out: Answers, seed: int) -> float:
    """tau of the greedy chain at random anchors of held-out answers (teacher forced, bonus included)."""
    total, count, device = 0.0, 0, held_out.ids.device.type
    draw = torch.Generator(device=held_out.ids.device).manual_seed(seed)
    for _ in range(4):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            batch = make_batch(drafter.tap_outputs, target, held_out, 64, 32, draw)
            chains = drafter.greedy_chains(batch)
        tokens, exists = labels(batch.ids, batch.anchors, batch.ends, drafter.num_drafts)
        right = (chains == tokens[..., 1:]) & exists
        total += float(right.long().cumprod(-1).sum())
        count += batch.anchors.numel()
    return total / count + 1.0


def train_drafter(
    drafter: _Drafter,
    losses_of: Callable[[_Drafter, DraftBatch], dict[str, Tensor]],
    target: TrainTarget,
    answers: Answers,
    history: Path,
    *,
    steps: int,
    sequences: int,
    anchors: int,
    peak_lr: float,
    seed: int,
    time_limit_s: float,
    is_fitted: bool,
    device: str,
) -> _Drafter | None:
    """Train for ``steps`` batches of ``sequences * anchors`` blocks.

    Returns the drafter when all steps are done, None when the time limit came first; calling again goes on.
    ``history`` (.jsonl) gets step, losses, tau and seconds; what a stopped run needs lies beside it (.state).

    Raises
    ------
    SpecPilotError
        A gradient is not finite; nothing of this run is saved.
    """
    torch.set_float32_matmul_precision("high")
    drafter.initialise(seed)
    drafter.to(device)
    target.requires_grad_(False)
    optimizer = make_optimizer(drafter, peak_lr, 0.05)
    draw = torch.Generator(device=device).manual_seed(seed)
    training, held_out = (part.by_length() for part in answers.split(min(1024, answers.ids.shape[0] // 10)))
    progress, first = Progress(history.with_suffix(".state"), time_limit_s), 0
    if (saved := progress.load()) is not None:
        drafter.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        draw.set_state(saved["draw"])
        first = saved["step"]
    begun = time.monotonic()
    with open(history, "a", encoding="utf-8") as file:
        step = first
        while step < steps:
            if progress.is_out_of_time:
                state = {"model": drafter.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                progress.save(state | {"draw": draw.get_state()})
                return None
            if is_fitted:
                steps = progress.fit(step - first, steps, first)
            rate = learning_rate(step, steps, peak_lr, 100)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                batch = make_batch(drafter.tap_outputs, target, training, sequences, anchors, draw)
                losses = losses_of(drafter, batch)
            torch.stack([*losses.values()]).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
            if not norm.isfinite():
                found = {name: loss.item() for name, loss in losses.items()}
                raise SpecPilotError(
                    f"training step {step}: the gradient's norm is {norm.item()}, expected a finite number; losses "
                    f"{found}, learning rate {rate:.2e}; lower the learning rate or look at this batch"
                )
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 50 == 0 or step == steps - 1:
                note = {
                    "step": step,
                    **{f"{name}_loss": round(loss.item(), 4) for name, loss in losses.items()},
                }
                if step % 250 == 0 or step == steps - 1:
                    note["tau"] = round(accept_length(drafter, target, held_out, 0), 3)
                note["seconds"] = round(time.monotonic() - begun, 1)
                file.write(json.dumps(note) + "\n")
                file.flush()
                print(json.dumps(note), flush=True)
            step += 1
    return drafter
