"""What the drafters are trained on, teacher forced: losses by name, whose sum is minimised.

Rows count exp(-k / gamma) by their distance k from the first drafted row; rows past the answer's end do not count. A
batch without a row that counts has loss zero, not 0 / 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.models.train.dflash2 import TrainDFlash2
from specpilot.models.train.drafter import DraftBatch, labels
from specpilot.models.train.dspark import TrainDSpark
from specpilot.models.train.eagle3 import TrainEagle3

__all__ = [
    "ROW_WEIGHT_GAMMA",
    "dflash2_losses",
    "dspark_losses",
    "eagle3_losses",
    "row_weights",
    "target_law",
    "weighted_mean",
]

# gamma of the row weights for 7 drafts: the DFlash paper gives 7, 5, 4 for blocks 16, 10, 8; DSpark's is 4.
ROW_WEIGHT_GAMMA = 4.0

# DSpark's weights of cross-entropy, L1 distance of the laws, and confidence. The published ones are 0.1, 0.9, 1.0; for
# greedy answers of a small target the cross-entropy decides, and the distance starts slowly from random weights.
_DSPARK_WEIGHTS = (1.0, 0.5, 0.5)


def row_weights(exists: Tensor) -> Tensor:
    """exists (..., D) bool -> weights (..., D) float32."""
    return torch.exp(-torch.arange(exists.shape[-1], device=exists.device) / ROW_WEIGHT_GAMMA) * exists


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp_min(1e-6)


@torch.no_grad()
def target_law(batch: DraftBatch, depth: int) -> Tensor:
    """The target's law, at temperature 1, of each of the ``depth`` tokens after each anchor, (S, A, depth, V)."""
    places = (batch.anchors[..., None] + torch.arange(depth, device=batch.ids.device)).flatten(1)
    places = places.clamp_max(batch.ids.shape[1] - 1)[..., None].expand(-1, -1, batch.hidden.shape[-1])
    confirmed = batch.hidden.gather(1, places).view(*batch.anchors.shape, depth, -1)
    return F.linear(confirmed, batch.table).float().softmax(-1)


def dflash2_losses(drafter: TrainDFlash2, batch: DraftBatch) -> dict[str, Tensor]:
    """Cross-entropy of each drafted row, and the selector's over the row's candidates with the true predecessor.

    The published recipes' common core (https://arxiv.org/abs/2602.06036, NVIDIA NeMo Automodel's DFlash2). Rows whose
    token is no candidate are left out of the selector's loss.
    """
    shape = drafter.shape
    tokens, exists = labels(batch.ids, batch.anchors, batch.ends, drafter.num_drafts)
    out = drafter(batch.ids, batch.taps, batch.anchors, batch.table)
    logits, hidden = out.logits.float(), out.hidden.float()
    weights = row_weights(exists)
    row = F.cross_entropy(logits.flatten(0, 2), tokens[..., 1:].flatten(), reduction="none")
    top, candidates = logits.topk(shape.top_k, dim=-1)
    with torch.autocast(logits.device.type, enabled=False):
        scores = top + drafter.candidate_selector.pair_scores(hidden, tokens[..., :-1], candidates)
    hit = candidates == tokens[..., 1:, None]
    chosen = -(F.log_softmax(scores, -1) * hit).sum(-1)
    return {
        "row": weighted_mean(row.view(weights.shape), weights),
        "selector": weighted_mean(chosen, weights * hit.any(-1)),
    }


def dspark_losses(drafter: TrainDSpark, batch: DraftBatch) -> dict[str, Tensor]:
    """Cross-entropy, L1 distance of drafter's and target's law, and binary cross-entropy of the confidence, weighted.

    The label of the confidence is the probability that rejection sampling accepts the row's token, 1 minus the total
    variation distance (half the L1) of the two laws. Objective: https://arxiv.org/abs/2607.05147.
    """
    depth = drafter.num_drafts
    tokens, exists = labels(batch.ids, batch.anchors, batch.ends, depth)
    hidden, base = drafter(batch.ids, batch.taps, batch.anchors, batch.table)
    weights = row_weights(exists)
    wanted = target_law(batch, depth)
    with torch.autocast(tokens.device.type, enabled=False):
        before = tokens[..., :-1]
        logprobs = (base.float() + drafter.markov_head(before)).log_softmax(-1)
        confidence = drafter.confidence_head(hidden.float(), drafter.markov_head.markov_w1(before))
    cross_entropy = -logprobs.gather(-1, tokens[..., 1:, None])[..., 0]
    distance = (logprobs.exp() - wanted).abs().sum(-1)
    accepted = (1.0 - 0.5 * distance.detach()).clamp(0.0, 1.0)
    doubt = F.binary_cross_entropy_with_logits(confidence, accepted, reduction="none")
    names = ("row", "distance", "confidence")
    parts = zip(names, _DSPARK_WEIGHTS, (cross_entropy, distance, doubt), strict=True)
    return {name: factor * weighted_mean(values, weights) for name, factor, values in parts}


def eagle3_losses(drafter: TrainEagle3, batch: DraftBatch) -> dict[str, Tensor]:
    """Cross-entropy of every row of the unrolled chain against the target's law at its place, temperature 1.

    The "training-time test" of https://arxiv.org/abs/2503.01840: rows are fed as they will be when drafting, with the
    drafter's own hidden row before them. (The authors' code weights 0.8^k, which :func:`row_weights` is within 3%.)
    """
    exists = labels(batch.ids, batch.anchors, batch.ends, drafter.num_drafts)[1]
    wanted = target_law(batch, drafter.num_drafts)
    logits = drafter(batch.ids, batch.taps, batch.anchors, batch.table).float()
    row = F.cross_entropy(logits.flatten(0, 2), wanted.flatten(0, 2), reduction="none")
    return {"row": weighted_mean(row.view(exists.shape), row_weights(exists))}
