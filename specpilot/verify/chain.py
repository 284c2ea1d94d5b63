"""Verification of a drafted chain against the target, greedy and sampled.

Both are lossless: greedy verification emits exactly the target's argmax tokens, sampled verification keeps
the target's distribution (rejection sampling, https://arxiv.org/abs/2211.17192 algorithm 1). The sampled rule
is written as two pure laws, :func:`acceptance_probs` and :func:`bonus_law`, and :func:`verify_sampled` only
draws from them, so the law of the output can be enumerated exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["VerifyResult", "acceptance_probs", "bonus_law", "draw_token", "verify_greedy", "verify_sampled"]


@dataclass(frozen=True)
class VerifyResult:
    """What a verify step commits: ``draft_ids[:num_correct_drafts]`` and then ``bonus_id``."""

    num_correct_drafts: int
    bonus_id: int


def verify_greedy(draft_ids: Tensor, target_argmax: Tensor) -> VerifyResult:
    """Accept drafts while they equal the target's argmax; the bonus is the argmax after the last accepted
    one.

    Parameters
    ----------
    draft_ids : Tensor, int64, (D,)
        D may be 0.
    target_argmax : Tensor, int64, (D + 1,)
        The target's choice after the root and after each draft.
    """
    if target_argmax.shape != (draft_ids.shape[0] + 1,):
        raise ValueError(
            f"target_argmax: got shape {tuple(target_argmax.shape)}, expected ({draft_ids.shape[0] + 1},), "
            "one row for the root and one for each draft"
        )
    choices = target_argmax.tolist()
    count = 0
    for draft, choice in zip(draft_ids.tolist(), choices, strict=False):
        if draft != choice:
            break
        count += 1
    return VerifyResult(count, choices[count])


def acceptance_probs(draft_ids: Tensor, candidate_ids: Tensor, q_rows: Tensor, p_rows: Tensor) -> Tensor:
    """Probability that each draft is accepted, given that all before it were: min(1, p(x) / q(x)).

    Parameters
    ----------
    draft_ids : Tensor, int64, (D,)
    candidate_ids : Tensor, int64, (D, K)
        Support of q at each depth; contains the draft.
    q_rows : Tensor, float64, (D, K)
        Law the draft was drawn from.
    p_rows : Tensor, (D + 1, V)
        The target's probabilities after the root and after each draft, as it would sample them (temperature
        and top-p applied).

    Returns
    -------
    Tensor, float64, (D,)
    """
    depth = draft_ids.shape[0]
    if candidate_ids.shape != q_rows.shape or candidate_ids.shape[0] != depth or p_rows.shape[0] != depth + 1:
        raise ValueError(
            f"verify: {depth} drafts with candidate_ids {tuple(candidate_ids.shape)}, q_rows "
            f"{tuple(q_rows.shape)}, p_rows {tuple(p_rows.shape)}; expected (D, K), (D, K), (D + 1, V)"
        )
    is_draft = candidate_ids == draft_ids[:, None]
    q = (q_rows.double() * is_draft).sum(-1)
    if not bool((q > 0).all()):
        raise ValueError(
            "verify: a draft has probability 0 under q_rows; it cannot have been drawn from them"
        )
    p = p_rows[:depth].gather(1, draft_ids[:, None])[:, 0].double()
    return (p / q).clamp_max(1.0)


def bonus_law(num_correct_drafts: int, candidate_ids: Tensor, q_rows: Tensor, p_rows: Tensor) -> Tensor:
    """Law of the bonus token once ``num_correct_drafts`` drafts are accepted and the next one, if any, is
    rejected.

    After a rejection it is max(p - q, 0), normalised, which makes up exactly for the drafts accepted at that
    position; after a whole accepted chain it is the target's own law.

    Returns
    -------
    Tensor, float64, (V,)
        Sums to 1.
    """
    p = p_rows[num_correct_drafts].double()
    if num_correct_drafts == candidate_ids.shape[0]:
        return p / p.sum()
    residual = p.scatter_add(
        0, candidate_ids[num_correct_drafts], -q_rows[num_correct_drafts].double()
    ).clamp_min(0.0)
    mass = residual.sum()
    # p = q up to rounding: a rejection then has probability 0 up to rounding, and any law keeps the
    # distribution.
    return residual / mass if float(mass) > 0.0 else p / p.sum()


def verify_sampled(
    draft_ids: Tensor, candidate_ids: Tensor, q_rows: Tensor, p_rows: Tensor, generator: torch.Generator
) -> VerifyResult:
    """Accept or reject a sampled chain so that the committed tokens have exactly the target's distribution.

    Parameters are those of :func:`acceptance_probs`; ``generator`` is advanced by D + V float64 draws,
    whatever happens.
    """
    accept = acceptance_probs(draft_ids, candidate_ids, q_rows, p_rows)
    uniforms = torch.rand(accept.shape, dtype=torch.float64, device=accept.device, generator=generator)
    refusals = (uniforms >= accept).tolist()
    count = refusals.index(True) if True in refusals else len(refusals)
    return VerifyResult(count, draw_token(bonus_law(count, candidate_ids, q_rows, p_rows), generator))


def draw_token(law: Tensor, generator: torch.Generator) -> int:
    """A token drawn from ``law`` (V,) float64, which need not be normalised; ``generator`` is advanced by V draws."""
    # Exponential race: argmax(law / exponential) has law ``law``.
    return int((law / torch.empty_like(law).exponential_(generator=generator)).argmax())
