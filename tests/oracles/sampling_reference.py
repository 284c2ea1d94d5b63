"""The sampling options written out for one row in plain Python: slow, obvious, and sharing no code with the product."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from specpilot.engines.base import SamplingParams


def reference_logits(
    logits: Sequence[float],
    params: SamplingParams,
    *,
    prompt: Sequence[int],
    said: Sequence[int],
    allowed: Collection[int] | None = None,
) -> list[float]:
    """Logits after penalties, bias and grammar; ``allowed`` are the ids the grammar admits, None admits all."""
    out = []
    for token, logit in enumerate(logits):
        if token in prompt or token in said:
            logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
        count = list(said).count(token)
        logit -= params.frequency_penalty * count
        if count:
            logit -= params.presence_penalty
        logit += params.logit_bias.get(token, 0.0)
        out.append(logit if allowed is None or token in allowed else -math.inf)
    return out


def reference_choice(logits: Sequence[float]) -> int:
    """The largest, the lowest id among equals."""
    return max(range(len(logits)), key=lambda token: (logits[token], -token))


def reference_law(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """Law of the next token from processed logits: temperature, top-k, top-p, min-p."""
    highest = max(logits)
    weights = [math.exp((logit - highest) / params.temperature) for logit in logits]
    ranked = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    kept = ranked[: params.top_k or len(ranked)]
    mass, total, nucleus = 0.0, math.fsum(weights[token] for token in kept), []
    for token in kept:
        if mass >= params.top_p * total:
            break
        nucleus.append(token)
        mass += weights[token]
    survivors = {token for token in nucleus if weights[token] >= params.min_p * weights[ranked[0]]}
    total = math.fsum(weights[token] for token in survivors)
    return [weight / total if token in survivors else 0.0 for token, weight in enumerate(weights)]
