"""Oracle: the chain and the confidence of SGLang 0.5.20's DSpark drafter, written down plainly from their equations.

Float64, one token at a time. Sources in the wheel: srt/models/dspark.py (``VanillaMarkov``, ``DSparkConfidenceHead``,
base logits), srt/speculative/dspark_components/dspark_draft.py (rows of a block), dspark_planner.py (confidence). The
block itself is that of ``sglang_dflash2.block_hidden``. Independent of ``specpilot``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def scores_after(weights: Weights, head: Tensor, hidden_row: Tensor, before: int) -> Tensor:
    """Scores (V,) of the token a row proposes, given the token before it; head (V, H) is the target's."""
    latent = weights["markov_head.markov_w1.weight"][before].double()
    bias = weights["markov_head.markov_w2.weight"].double() @ latent
    return head.double() @ hidden_row.double() + bias


def chain(
    weights: Weights, head: Tensor, hidden: Tensor, anchor: int, pick: Callable[[Tensor, int], int]
) -> tuple[list[int], Tensor]:
    """Walk from the anchor; hidden (D, H), ``pick(scores, depth)`` chooses a token -> tokens and score rows (D, V)."""
    tokens, rows = [anchor], []
    for depth, row in enumerate(hidden):
        rows.append(scores_after(weights, head, row, tokens[-1]))
        tokens.append(pick(rows[-1], depth))
    return tokens[1:], torch.stack(rows)


def survival(
    config: dict[str, Any], weights: Weights, hidden: Tensor, anchor: int, tokens: list[int]
) -> Tensor:
    """Probability (D,) that drafts 0 .. i are all accepted, as the confidence head has it."""
    alive, out = torch.tensor(1.0, dtype=torch.float64), []
    for row, before in zip(hidden, [anchor, *tokens[:-1]], strict=True):
        features = row.double()
        if config.get("confidence_head_with_markov", True):
            features = torch.cat((features, weights["markov_head.markov_w1.weight"][before].double()))
        logit = weights["confidence_head.proj.weight"][0].double() @ features
        alive = alive * torch.sigmoid(logit + weights["confidence_head.proj.bias"][0].double())
        out.append(alive)
    return torch.stack(out)
