"""Gated delta rule: the recurrence of Gated DeltaNet, in token order and in chunks.

With row vectors q_t, k_t (d_k), v_t (d_v), log decay g_t <= 0 and write strength beta_t in (0, 1), a head
keeps a state h in R^{d_k x d_v} and does, for every token,

    h   <- exp(g_t) h                      decay
    w_t  = beta_t (v_t - k_t h)            what the state does not know yet
    h   <- h + k_t^T w_t                   rank-one write
    o_t  = q_t h                           read-out

(Gated Delta Networks, https://arxiv.org/abs/2412.06464, section 3). Every function here is pure,
differentiable, batched and works on any device; the model's inference path and the training code share them.
Queries and keys come in normalised (:func:`normalise_queries_and_keys`) and with key heads already repeated
to value heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "L2_EPS",
    "DeltaRuleOutput",
    "chunk_gated_delta_rule",
    "normalise_queries_and_keys",
    "recurrent_gated_delta_rule",
    "state_after",
]

L2_EPS = 1e-6
"""Added to the squared norm of queries and keys."""


class DeltaRuleOutput(NamedTuple):
    """Result of a run of the gated delta rule over T tokens.

    Attributes
    ----------
    output : Tensor, (B, H, T, d_v)
        Read-out o_t of every token.
    state : Tensor, (B, H, d_k, d_v)
        State after the last token.
    pseudo_values : Tensor, (B, H, T, d_v)
        The vectors w_t that were written.
    log_decay : Tensor, (B, H, T)
        Sum of g from the first token of the token's chunk up to and including the token itself (the recurrent
        form is one chunk). Within one chunk :func:`state_after` rebuilds the state after any token from
        these.
    """

    output: Tensor
    state: Tensor
    pseudo_values: Tensor
    log_decay: Tensor


def normalise_queries_and_keys(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Give q and k unit length over the last axis and scale q by 1/sqrt(d_k)."""
    q = q * (torch.rsqrt((q * q).sum(-1, keepdim=True) + L2_EPS) * q.shape[-1] ** -0.5)
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + L2_EPS)
    return q, k


def recurrent_gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
) -> DeltaRuleOutput:
    """Run the rule token by token: the definition that everything else is checked against.

    Parameters
    ----------
    q, k : Tensor, (B, H, T, d_k)
    v : Tensor, (B, H, T, d_v)
    g, beta : Tensor, (B, H, T)
    state : Tensor, (B, H, d_k, d_v), optional
        State before the first token; zero if left out. Never written to.

    Returns
    -------
    DeltaRuleOutput
        In float32, or float64 when ``q`` is float64.
    """
    dtype = _compute_dtype(q)
    q, k, v, g, beta = (x.to(dtype) for x in (q, k, v, g, beta))
    h = _initial_state(k, v, state)
    decay = g.exp()
    outputs, written = [], []
    for t in range(q.shape[2]):
        h = h * decay[:, :, t, None, None]
        w = beta[:, :, t, None] * (v[:, :, t] - (h * k[:, :, t, :, None]).sum(-2))
        h = h + k[:, :, t, :, None] * w[:, :, None, :]
        outputs.append((h * q[:, :, t, :, None]).sum(-2))
        written.append(w)
    return DeltaRuleOutput(torch.stack(outputs, 2), h, torch.stack(written, 2), g.cumsum(-1))


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor | None = None,
    chunk_size: int = 64,
) -> DeltaRuleOutput:
    """Run the rule chunk by chunk: the same numbers up to rounding, in matrix products.

    Inside a chunk with decay D_ij = exp(G_i - G_j) for j <= i, the written vectors solve the unit lower
    triangular system

        (I + tril(diag(beta) (D * K K^T), -1)) W = diag(beta) (V - diag(exp G) K h_0)

    The right-hand side is linear in h_0, so one batched solve over all chunks prepares W = U - Y h_0 and only
    two small products per chunk are sequential.

    Parameters and result are those of :func:`recurrent_gated_delta_rule`; any T >= 1 is allowed,
    ``chunk_size`` is the number of tokens in a chunk. Autocast is off inside: the state needs float32.
    """
    with torch.autocast(q.device.type, enabled=False):
        dtype = _compute_dtype(q)
        q, k, v, g, beta = (x.to(dtype) for x in (q, k, v, g, beta))
        h = _initial_state(k, v, state)
        num_tokens = q.shape[2]
        chunk_size = min(chunk_size, num_tokens)
        # A padding token has k = 0, beta = 0, g = 0: it neither decays nor writes.
        q, k, v = (_split(x, chunk_size) for x in (q, k, v))
        g, beta = (_split(x.unsqueeze(-1), chunk_size).squeeze(-1) for x in (g, beta))

        log_decay = g.cumsum(-1)
        decay = _pairwise_decay(log_decay)
        from_start = log_decay.exp().unsqueeze(-1)
        to_end = (log_decay[..., -1:] - log_decay).exp().unsqueeze(-1)
        system = (beta.unsqueeze(-1) * decay * (k @ k.transpose(-1, -2))).tril(-1)
        right = beta.unsqueeze(-1) * torch.cat((v, from_start * k), -1)
        # unitriangular: the diagonal counts as ones, so I is never added.
        solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        u, y = solved.split((v.shape[-1], k.shape[-1]), -1)
        scores = decay * (q @ k.transpose(-1, -2))
        q_decayed, k_to_end = q * from_start, (k * to_end).transpose(-1, -2)
        whole = from_start[..., -1:, :]

        # unbind, not indexing: its backward gathers all chunks once instead of adding each into a tensor of zeros.
        parts = (x.unbind(2) for x in (u, y, scores, q_decayed, k_to_end, whole))
        outputs, written = [], []
        for u_c, y_c, scores_c, q_c, k_c, whole_c in zip(*parts, strict=True):
            w = u_c - y_c @ h
            outputs.append(q_c @ h + scores_c @ w)
            h = whole_c * h + k_c @ w
            written.append(w)
        return DeltaRuleOutput(
            torch.cat(outputs, 2)[:, :, :num_tokens],
            h,
            torch.cat(written, 2)[:, :, :num_tokens],
            log_decay.flatten(2)[:, :, :num_tokens],
        )


def state_after(
    state: Tensor, k: Tensor, pseudo_values: Tensor, log_decay: Tensor, num_tokens: int
) -> Tensor:
    """Rebuild the state after the first ``num_tokens`` tokens of one chunk.

        h_n = exp(G_n) h_0 + sum_{j <= n} exp(G_n - G_j) k_j^T w_j

    Parameters
    ----------
    state : Tensor, (B, H, d_k, d_v)
        State before the chunk.
    k, pseudo_values, log_decay : Tensor, (B, H, T, d_k), (B, H, T, d_v), (B, H, T)
        Keys of the chunk and what the rule returned for it.
    num_tokens : int
        1 <= num_tokens <= T.
    """
    last = log_decay[..., num_tokens - 1 : num_tokens]
    to_end = (last - log_decay[..., :num_tokens]).exp().unsqueeze(-1)
    written = (k[..., :num_tokens, :] * to_end).transpose(-1, -2) @ pseudo_values[..., :num_tokens, :]
    return last.exp().unsqueeze(-1) * state + written


def _compute_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _initial_state(k: Tensor, v: Tensor, state: Tensor | None) -> Tensor:
    if state is None:
        return k.new_zeros(k.shape[0], k.shape[1], k.shape[-1], v.shape[-1])
    return state.to(k.dtype)


def _split(x: Tensor, chunk_size: int) -> Tensor:
    """(B, H, T, d) -> (B, H, num_chunks, chunk_size, d), zero padded at the end."""
    chunks: Tensor = F.pad(x, (0, 0, 0, -x.shape[2] % chunk_size)).unflatten(2, (-1, chunk_size))
    return chunks


def _pairwise_decay(log_decay: Tensor) -> Tensor:
    """D_ij = exp(G_i - G_j) for j <= i, else 0; (..., C) -> (..., C, C).

    Masked before the exponential: above the diagonal the exponent is positive and may overflow, and inf * 0
    is nan.
    """
    difference = log_decay.unsqueeze(-1) - log_decay.unsqueeze(-2)
    future = torch.ones(difference.shape[-2:], dtype=torch.bool, device=difference.device).triu(1)
    return difference.masked_fill(future, float("-inf")).exp()
