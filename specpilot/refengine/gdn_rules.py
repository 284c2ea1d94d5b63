"""The gated delta rule at inference: one sequence, grouped heads, prefixes that can be committed.

All rules keep, for every run of rows, what was written instead of the states it led to: keys, written
vectors and decays rebuild the state after any prefix. Shapes use G key heads, each with R value heads side
by side; a state is (G, d_k, R * d_v), so one product reads it for all value heads of a group. See
:mod:`specpilot.refengine.gdn` for the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specpilot_kernels import gdn_rows

__all__ = ["ChunkRule", "DeltaRule", "KernelRule", "PrefixRule", "RecurrentRule", "Written", "stack_layers"]


@dataclass(frozen=True)
class Written:
    """What a run of at most ``DeltaRule.max_rows`` rows wrote; axes for layers may stand in front.

    Attributes
    ----------
    start : Tensor, (G, d_k, R * d_v)
        State before the run.
    keys : Tensor, (G, T, d_k)
    values : Tensor, (G, T, R * d_v)
        Written vectors w_t.
    decay : Tensor, (G, T, R)
        As the rule that wrote it wants it: summed log decays (chunk) or factors (recurrent).
    """

    start: Tensor
    keys: Tensor
    values: Tensor
    decay: Tensor


def stack_layers(runs: list[Written], start: Tensor) -> Written:
    """Put the runs of several layers behind a new leading axis; ``start`` is their states, stacked."""
    return Written(
        start,
        torch.stack([run.keys for run in runs]),
        torch.stack([run.values for run in runs]),
        torch.stack([run.decay for run in runs]),
    )


class PrefixRule(Protocol):
    """How the state after a prefix of a run's rows is rebuilt."""

    max_rows: int

    def advance_(self, state: Tensor, run: Written, num_rows: int) -> None:
        """Turn ``state``, equal to ``run.start``, into the state after the first ``num_rows`` rows, in place."""
        ...


class DeltaRule(PrefixRule, Protocol):
    """How the recurrence is run in torch."""

    def run(
        self, queries_keys: Tensor, values: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        """Read out and write for T <= max_rows rows.

        Parameters
        ----------
        queries_keys : Tensor, (T, G, 2, d_k)
            Normalised query and key of every group.
        values : Tensor, (T, G, R, d_v)
        g, beta : Tensor, (T, G, R)
            Log decay and write strength.
        start : Tensor, (G, d_k, R * d_v)
            State before the run, left as it is.

        Returns
        -------
        read : Tensor, (T, G, R, d_v)
        run : Written
        """
        ...


class ChunkRule:
    """Serve mode: all rows of a run at once, one triangular solve."""

    max_rows = 64

    def run(
        self, queries_keys: Tensor, values: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        if values.shape[0] == 1:
            return self._run_one(queries_keys[0], values[0], g[0], beta[0], start)
        num_rows, num_groups, num_heads, value_dim = values.shape
        qk = queries_keys.permute(1, 2, 0, 3).reshape(num_groups, 2 * num_rows, -1)
        keys = qk[:, num_rows:]
        read = torch.bmm(qk, start).view(num_groups, 2, num_rows, num_heads, value_dim)
        queried, known = read.transpose(2, 3).unbind(1)  # (G, R, T, d_v) each
        products = torch.bmm(qk, keys.transpose(1, 2)).view(num_groups, 2, 1, num_rows, num_rows)
        query_key, key_key = products.unbind(1)
        log_decay = g.cumsum(0).permute(1, 2, 0)  # (G, R, T)
        beta = beta.permute(1, 2, 0).unsqueeze(-1)
        from_start = log_decay.exp().unsqueeze(-1)
        # Future exponents are masked before exp: they are positive and may overflow.
        decay = log_decay.unsqueeze(-1) - log_decay.unsqueeze(-2)
        decay.masked_fill_(torch.ones(num_rows, num_rows, dtype=torch.bool).triu_(1), -torch.inf).exp_()
        right = values.permute(1, 2, 0, 3).addcmul(from_start, known, value=-1).mul_(beta)
        # The solve reads the strict lower triangle only and takes the diagonal as ones.
        written = torch.linalg.solve_triangular(
            (decay * key_key).mul_(beta), right, upper=False, unitriangular=True
        )
        output = (queried * from_start).add_(torch.matmul(decay.mul_(query_key), written))
        flat = written.transpose(1, 2).reshape(num_groups, num_rows, -1)
        return output.permute(2, 0, 1, 3).contiguous(), Written(start, keys, flat, log_decay.transpose(1, 2))

    def _run_one(
        self, qk: Tensor, values: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        """One row: the solve is the identity."""
        num_groups, num_heads, value_dim = values.shape
        query, key = qk.split(1, 1)
        queried, known = torch.bmm(qk, start).view(num_groups, 2, num_heads, value_dim).unbind(1)
        query_key = torch.bmm(query, key.transpose(1, 2))
        factor = g.exp().unsqueeze(-1)
        written = values.addcmul(factor, known, value=-1).mul_(beta.unsqueeze(-1))
        output = (queried * factor).addcmul_(query_key, written)
        run = Written(start, key, written.view(num_groups, 1, -1), g.unsqueeze(1))
        return output.unsqueeze(0), run

    def advance_(self, state: Tensor, run: Written, num_rows: int) -> None:
        last = run.decay[..., num_rows - 1 : num_rows, :]
        by_head = state.unflatten(-1, (last.shape[-1], -1))
        by_head.mul_(last.exp().unsqueeze(-1))
        values = run.values[..., :num_rows, :]
        if num_rows > 1:
            to_end = (last - run.decay[..., :num_rows, :]).exp_().unsqueeze(-1)
            values = (values.unflatten(-1, (last.shape[-1], -1)) * to_end).flatten(-2)
        keys = run.keys[..., :num_rows, :].transpose(-1, -2)
        state.view(-1, *state.shape[-2:]).baddbmm_(keys.flatten(0, -3), values.flatten(0, -3))


class KernelRule:
    """Float32 rows in order, compiled: :mod:`specpilot_kernels.gdn_rows` runs the whole layer, here is its prefix."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows

    def advance_(self, state: Tensor, run: Written, num_rows: int) -> None:
        parts = (run.keys, run.values, run.decay)
        written = gdn_rows.Written(*(part.view(-1, *part.shape[-2:]) for part in parts))
        gdn_rows.gdn_replay_(state.view(-1, *state.shape[-2:]), written, num_rows)


class RecurrentRule:
    """Float64, for checking: row after row, every operation of a fixed shape.

    ``advance_`` replays the rows with the very multiplications and additions of ``run``: these round the same
    way in any shape, so a committed prefix is bit for bit the state that a run of the prefix alone would have
    reached.
    """

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows

    def run(
        self, queries_keys: Tensor, values: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        factor = g.exp()
        state = start.clone()
        reads, written = [], []
        for t in range(values.shape[0]):
            query, key = queries_keys[t, :, :1], queries_keys[t, :, 1:]
            self._decay_(state, factor[t])
            w = (values[t] - torch.bmm(key, state).view_as(values[t])) * beta[t].unsqueeze(-1)
            self._write_(state, key, w.flatten(1))
            reads.append(torch.bmm(query, state).view_as(values[t]))
            written.append(w.flatten(1))
        keys = queries_keys[:, :, 1].transpose(0, 1)
        return torch.stack(reads), Written(start, keys, torch.stack(written, 1), factor.transpose(0, 1))

    def advance_(self, state: Tensor, run: Written, num_rows: int) -> None:
        for t in range(num_rows):
            self._decay_(state, run.decay[..., t, :])
            self._write_(state, run.keys[..., t, :].unsqueeze(-2), run.values[..., t, :])

    @staticmethod
    def _decay_(state: Tensor, factor: Tensor) -> None:
        state.unflatten(-1, (factor.shape[-1], -1)).mul_(factor[..., None, :, None])

    @staticmethod
    def _write_(state: Tensor, key: Tensor, written: Tensor) -> None:
        # Two operations on purpose: a fused multiply-add would round differently from shape to shape.
        state.add_(key.transpose(-1, -2) * written.unsqueeze(-2))
