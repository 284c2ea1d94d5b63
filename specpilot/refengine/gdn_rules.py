"""The gated delta rule at inference: one sequence, value heads grouped by key head, prefixes that can be
committed.

Both rules keep, for every run of rows, what was written instead of the states it led to: keys, written
vectors and decays rebuild the state after any prefix. Shapes use G key heads, each with R value heads side by
side; a state is (G, d_k, R * d_v), so one product reads it for all value heads of a group. See
:mod:`specpilot.refengine.gdn` for the mathematics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["ChunkRule", "DeltaRule", "RecurrentRule", "Written", "stack_layers"]


@dataclass(frozen=True)
class Written:
    """What a run of at most ``DeltaRule.max_rows`` rows wrote. Leading axes (layers) are allowed in front of
    G.

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


def stack_layers(runs: list[Written], start: Tensor | None = None) -> Written:
    """Put the runs of several layers behind a new leading axis; ``start`` saves stacking when it exists
    stacked."""
    return Written(
        torch.stack([run.start for run in runs]) if start is None else start,
        torch.stack([run.keys for run in runs]),
        torch.stack([run.values for run in runs]),
        torch.stack([run.decay for run in runs]),
    )


class DeltaRule(Protocol):
    """How one numeric mode runs the recurrence."""

    max_rows: int

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        """Read-outs and what was written.

        q, k : (G, T, d_k); v : (G, T, R, d_v); g, beta : (G, T, R); result (G, T, R, d_v). ``start`` stays as
        it is.
        """
        ...

    def state_after(self, run: Written, num_rows: int) -> Tensor:
        """State after the first ``num_rows`` rows of a run, new memory."""
        ...


class ChunkRule:
    """Serve mode: all rows of a run at once, one triangular solve."""

    max_rows = 64

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        num_groups, num_rows, num_heads, value_dim = v.shape
        kq = torch.cat((k, q), 1)
        read = torch.bmm(kq, start).view(num_groups, 2, num_rows, num_heads, value_dim)
        products = torch.bmm(kq, k.transpose(1, 2)).view(num_groups, 2, 1, num_rows, num_rows)
        log_decay = g if num_rows == 1 else g.cumsum(1)
        from_start = log_decay.exp().unsqueeze(-1)
        right = v.addcmul(from_start, read[:, 0], value=-1).mul_(beta.unsqueeze(-1))
        output = read[:, 1] * from_start
        if num_rows == 1:
            written = right
            output.addcmul_(products[:, 1].unsqueeze(-1).view(num_groups, 1, 1, 1), written)
        else:
            by_head = log_decay.transpose(1, 2)
            decay = (
                (by_head.unsqueeze(-1) - by_head.unsqueeze(-2))
                .masked_fill_(_future(num_rows), -torch.inf)
                .exp_()
            )
            # The solve reads the strict lower triangle only and takes the diagonal as ones.
            system = decay * products[:, 0] * beta.transpose(1, 2).unsqueeze(-1)
            solved = torch.linalg.solve_triangular(
                system, right.transpose(1, 2), upper=False, unitriangular=True
            )
            output += torch.matmul(decay.mul_(products[:, 1]), solved).transpose(1, 2)
            written = solved.transpose(1, 2)
        return output, Written(start, k, written.reshape(num_groups, num_rows, -1), log_decay)

    def state_after(self, run: Written, num_rows: int) -> Tensor:
        last = run.decay[..., num_rows - 1 : num_rows, :]
        whole = last.exp()
        value_dim = run.values.shape[-1] // whole.shape[-1]
        values = run.values[..., :num_rows, :]
        if num_rows > 1:
            to_end = (last - run.decay[..., :num_rows, :]).exp_().unsqueeze(-1)
            values = (values.unflatten(-1, (-1, value_dim)) * to_end).flatten(-2)
        state = run.start * whole.repeat_interleave(value_dim, -1)
        return state.add_(torch.matmul(run.keys[..., :num_rows, :].transpose(-1, -2), values))


class RecurrentRule:
    """Judge mode: row after row, every operation of a fixed shape.

    ``state_after`` replays the rows with the very multiplications and additions of ``run``: these round the
    same way in any shape, so a committed prefix is bit for bit the state that a run of the prefix alone would
    have reached.
    """

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, start: Tensor
    ) -> tuple[Tensor, Written]:
        num_groups, num_rows, num_heads, value_dim = v.shape
        factor = g.exp()
        state = start
        outputs, written = [], []
        for t in range(num_rows):
            state = state * factor[:, t : t + 1].repeat_interleave(value_dim, -1)
            known = torch.bmm(k[:, t : t + 1], state).view(num_groups, num_heads, value_dim)
            w = ((v[:, t] - known) * beta[:, t].unsqueeze(-1)).view(num_groups, 1, -1)
            state = state + k[:, t].unsqueeze(-1) * w
            outputs.append(torch.bmm(q[:, t : t + 1], state))
            written.append(w)
        output = torch.cat(outputs, 1).view(num_groups, num_rows, num_heads, value_dim)
        return output, Written(start, k, torch.cat(written, 1), factor)

    def state_after(self, run: Written, num_rows: int) -> Tensor:
        state = run.start
        value_dim = run.values.shape[-1] // run.decay.shape[-1]
        for t in range(num_rows):
            state = state * run.decay[..., t : t + 1, :].repeat_interleave(value_dim, -1)
            state = state + run.keys[..., t, :].unsqueeze(-1) * run.values[..., t : t + 1, :]
        return state


def _future(num_rows: int) -> Tensor:
    return torch.ones(num_rows, num_rows, dtype=torch.bool).triu_(1)
