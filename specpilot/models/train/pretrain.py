"""Trains the bundled target: next-token prediction on the packed corpus."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from specpilot.models.train.data import TokenStream
from specpilot.models.train.schedule import Progress, learning_rate, make_optimizer
from specpilot.models.train.target import TrainTarget
from specpilot.refengine.config import TargetConfig

__all__ = ["pretrain"]


def pretrain(
    config: TargetConfig,
    corpus: Path,
    out: Path,
    *,
    end_id: int,
    steps: int,
    rows: int,
    length: int,
    peak_lr: float,
    seed: int,
    time_limit_s: float,
    is_fitted: bool,
    device: str,
) -> TrainTarget | None:
    """Train for ``steps`` batches of ``rows * length`` tokens.

    Returns the model when all steps are done, None when the time limit came first; calling again goes on. The history
    (step, loss, validation loss, learning rate, seconds) is in ``out/pretrain.jsonl``. ``is_fitted`` shortens the
    plan, and with it the learning-rate curve, to what ends before the time limit.
    """
    torch.set_float32_matmul_precision("high")
    train, valid = (TokenStream.open(corpus / f"{name}.bin", end_id) for name in ("train", "valid"))
    model = TrainTarget(config)
    model.initialise(seed)
    model.to(device)
    optimizer = make_optimizer(model, peak_lr, 0.1)
    draw = np.random.default_rng(seed)
    progress, first = Progress(out / "pretrain.state", time_limit_s), 0
    if (saved := progress.load()) is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        draw.bit_generator.state, first = saved["draw"], saved["step"]
    begun = time.monotonic()

    def batch_loss(stream: TokenStream, generator: np.random.Generator) -> torch.Tensor:
        ids, labels, starts = (
            part.to(device, non_blocking=True) for part in stream.batch(rows, length, generator)
        )
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits = model.logits(model(ids, starts)[0])
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    @torch.no_grad()
    def validation_loss() -> float:
        fixed = np.random.default_rng(0)
        return sum(float(batch_loss(valid, fixed)) for _ in range(4)) / 4

    step = first
    while step < steps:
        if progress.is_out_of_time:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            progress.save(state | {"draw": draw.bit_generator.state})
            return None
        if is_fitted:
            steps = progress.fit(step - first, steps, first)
        rate = learning_rate(step, steps, peak_lr, 100)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = batch_loss(train, draw)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == steps - 1:
            row = {"step": step, "loss": round(loss.item(), 4), "lr": round(rate, 6)}
            if step % 250 == 0 or step == steps - 1:
                row["valid_loss"] = round(validation_loss(), 4)
            row["seconds"] = round(time.monotonic() - begun, 1)
            with open(out / "pretrain.jsonl", "a", encoding="utf-8") as history:
                history.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
        step += 1
    return model
