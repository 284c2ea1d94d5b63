"""Trains the bundled DFlash2 drafter on the target's own answers.

Objective (the published recipes' common core, https://arxiv.org/abs/2602.06036 and NVIDIA NeMo Automodel's DFlash2):
cross-entropy of each drafted row, weighted exp(-(k-1)/gamma) by its distance k from the anchor, plus the selector's
cross-entropy over the row's top-16 candidates with the true predecessor, where rows whose token is no candidate
are dropped.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.models.train.answers import Answers
from specpilot.models.train.dflash2 import DFlash2Shape, TrainDFlash2
from specpilot.models.train.schedule import Progress, learning_rate, make_optimizer
from specpilot.models.train.target import TrainTarget

__all__ = ["ROW_WEIGHT_GAMMA", "accept_length", "draft_losses", "train_dflash2"]

# gamma of the row weights for block 8: the DFlash paper gives 7, 5, 4 for blocks 16, 10, 8.
ROW_WEIGHT_GAMMA = 4.0


def _starts(ids: Tensor) -> Tensor:
    starts = torch.zeros_like(ids, dtype=torch.bool)
    starts[:, 0] = True
    return starts


def _labels(ids: Tensor, anchors: Tensor, ends: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Tokens after each anchor (S, A, depth + 1), anchor first, and which drafted rows exist (S, A, depth)."""
    places = anchors[..., None] + torch.arange(depth + 1, device=ids.device)
    tokens = ids.gather(1, places.clamp_max(ids.shape[1] - 1).flatten(1)).view(places.shape)
    return tokens, places[..., 1:] < ends[:, None, None]


def draft_losses(
    drafter: TrainDFlash2, ids: Tensor, taps: Tensor, anchors: Tensor, ends: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """(row loss, selector loss), each a weighted mean over the rows that exist."""
    shape = drafter.shape
    depth = shape.block_size - 1
    tokens, exists = _labels(ids, anchors, ends, depth)
    out = drafter(ids, taps, anchors, table)
    logits, hidden = out.logits.float(), out.hidden.float()
    weights = torch.exp(-torch.arange(depth, device=ids.device) / ROW_WEIGHT_GAMMA) * exists
    row = F.cross_entropy(logits.flatten(0, 2), tokens[..., 1:].flatten(), reduction="none").view(
        weights.shape
    )
    top, candidates = logits.topk(shape.top_k, dim=-1)
    with torch.autocast(ids.device.type, enabled=False):
        scores = top + drafter.candidate_selector.pair_scores(hidden, tokens[..., :-1], candidates)
    hit = candidates == tokens[..., 1:, None]
    chosen = -(F.log_softmax(scores, -1) * hit).sum(-1)
    selector_weights = weights * hit.any(-1)
    # Early on a batch may hold no row whose token is a candidate: its selector loss is zero, not 0 / 0.
    selected = selector_weights.sum().clamp_min(1e-6)
    return (row * weights).sum() / weights.sum(), (chosen * selector_weights).sum() / selected


@torch.no_grad()
def accept_length(
    drafter: TrainDFlash2, target: TrainTarget, held_out: Answers, table: Tensor, seed: int
) -> float:
    """tau of the greedy selector chain at random anchors of held-out answers (teacher forced, bonus included)."""
    shape, total, count = drafter.shape, 0.0, 0
    generator = torch.Generator(device=held_out.ids.device).manual_seed(seed)
    for _ in range(4):
        ids, anchors, ends = held_out.batch(64, 32, generator)
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=ids.is_cuda):
            taps = target(ids, _starts(ids), shape.tap_outputs)[1]
            assert taps is not None
            out = drafter(ids, taps, anchors, table)
        tokens, exists = _labels(ids, anchors, ends, shape.block_size - 1)
        top, candidates = out.logits.float().topk(shape.top_k, dim=-1)
        previous, right = tokens[..., 0], torch.ones_like(tokens[..., 0], dtype=torch.bool)
        for depth in range(shape.block_size - 1):
            pair = drafter.candidate_selector.pair_scores(
                out.hidden[..., depth, :].float(), previous, candidates[..., depth, :]
            )
            best = (top[..., depth, :] + pair).argmax(-1, keepdim=True)
            previous = candidates[..., depth, :].gather(-1, best)[..., 0]
            right = right & (previous == tokens[..., depth + 1]) & exists[..., depth]
            total += float(right.sum())
        count += anchors.numel()
    return total / count + 1.0


def train_dflash2(
    shape: DFlash2Shape,
    target: TrainTarget,
    answers: Answers,
    out: Path,
    *,
    steps: int,
    sequences: int,
    anchors: int,
    peak_lr: float,
    seed: int,
    time_limit_s: float,
    is_fitted: bool,
    device: str,
) -> TrainDFlash2 | None:
    """Train for ``steps`` batches of ``sequences * anchors`` blocks.

    None when the time limit came first; calling again goes on.
    """
    torch.set_float32_matmul_precision("high")
    drafter = TrainDFlash2(shape)
    drafter.initialise(seed)
    drafter.to(device)
    target.requires_grad_(False)
    table = target.model.embed_tokens.weight
    optimizer = make_optimizer(drafter, peak_lr, 0.05)
    generator = torch.Generator(device=device).manual_seed(seed)
    training, held_out = (part.by_length() for part in answers.split(min(1024, answers.ids.shape[0] // 10)))
    progress, first = Progress(out / "dflash2.state", time_limit_s), 0
    if (saved := progress.load()) is not None:
        drafter.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        generator.set_state(saved["draw"])
        first = saved["step"]
    begun = time.monotonic()
    with open(out / "dflash2.jsonl", "a", encoding="utf-8") as history:
        step = first
        while step < steps:
            if progress.is_out_of_time:
                state = {"model": drafter.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                progress.save(state | {"draw": generator.get_state()})
                return None
            if is_fitted:
                steps = progress.fit(step - first, steps, first)
            rate = learning_rate(step, steps, peak_lr, 100)
            for group in optimizer.param_groups:
                group["lr"] = rate
            ids, places, ends = training.batch(sequences, anchors, generator)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                with torch.no_grad():
                    taps = target(ids, _starts(ids), shape.tap_outputs)[1]
                    assert taps is not None
                row, selector = draft_losses(drafter, ids, taps, places, ends, table)
            (row + selector).backward()
            torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 50 == 0 or step == steps - 1:
                note = {
                    "step": step,
                    "row_loss": round(row.item(), 4),
                    "selector_loss": round(selector.item(), 4),
                }
                if step % 250 == 0 or step == steps - 1:
                    note["tau"] = round(accept_length(drafter, target, held_out, table, 0), 3)
                note["seconds"] = round(time.monotonic() - begun, 1)
                history.write(json.dumps(note) + "\n")
                history.flush()
                print(json.dumps(note), flush=True)
            step += 1
    return drafter
