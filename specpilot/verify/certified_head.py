"""The certified LM head: a greedy token from an INT8 screen of the head, provably the full head's.

**Bound.** Let W_n be a row of the head, s_n q_n its INT8 copy, x a hidden row, y_n the number the full head computes,
a_n = s_n d_n the screen's and d_n the computed product of q_n and x. Both products add K terms in blocks of 64 (see
``specpilot_kernels/skinny_gemm/cpu_tile.py``), so a term is rounded at most m = 64 + ceil(K / 64) times, and with
u = 2^-24, gamma = m u / (1 - m u) (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1)

    |y_n - W_n x| <= gamma ||W_n|| ||x|| + K 2^-149
    |d_n - q_n x| <= gamma ||q_n|| ||x|| + K 2^-149
    |W_n x - s_n q_n x| <= ||W_n - s_n q_n|| ||x||                       Cauchy-Schwarz, the quantisation residual

where K 2^-149 stands for what denormal results lose. Together |a_n - y_n| <= e_n with

    e_n = (||W_n - s_n q_n|| + gamma (s_n ||q_n|| + ||W_n||)) ||x|| + (1 + s_n) K 2^-149

Norms are float64 and rounded up. Row n cannot be the argmax, nor equal it, if a_n + e_n < max_m (a_m - e_m). The rows
that are left, the *survivors*, are rescored by the full head's own product restricted to them, whose sums do not depend
on which columns stand beside each other: the same bits. So the largest and the lowest id among equals are the full
head's. Where too many survive, or a number is not finite, the full head runs.

**BF16 logits.** An engine that rounds logits to BF16 before it compares them has more ties. With
``rounding="bfloat16"`` both sides of the comparison are rounded to BF16 first, which keeps their order, and so are the
logits that come back.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.errors import ConfigError
from specpilot_kernels.q_weights import QWeight, dequantise, quantise
from specpilot_kernels.q_weights.ops import integer_product
from specpilot_kernels.skinny_gemm import GROUP_PANELS, PANEL_COLUMNS, PackedWeight, skinny_gemm_arrays

__all__ = ["CertifiedHead", "CertifiedRows", "HeadCounts", "Rounding"]

Rounding = Literal["float32", "bfloat16"]

_UP = 1 + 2.0**-30  # covers what float64 sums of squares lose, for any K below 2^22
_SMALLEST = 2.0**-149
_HUGE = 2.0**126
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class CertifiedRows:
    """Logits of R rows, complete as far as a greedy choice needs them.

    Attributes
    ----------
    logits : Tensor, float32, (R, V)
        Of the rows that may be the argmax, the full head's own; minus infinity elsewhere. The first largest one is the
        full head's.
    num_survivors : array, int64, (R,)
        Rows of the head the screen left.
    is_full : array, bool, (R,)
        The full head ran.
    """

    logits: Tensor
    num_survivors: NDArray[np.int64]
    is_full: NDArray[np.bool_]

    @property
    def argmax_ids(self) -> NDArray[np.int64]:
        """(R,): the lowest id among equals."""
        return np.asarray(self.logits.numpy().argmax(1), np.int64)


@dataclass
class HeadCounts:
    """What a head has done since it was made.

    Attributes
    ----------
    num_rows
        Hidden rows.
    num_survivors
        Rows of the head the screen left, of all of them together.
    num_full
        Hidden rows the full head ran for.
    """

    num_rows: int = 0
    num_survivors: int = 0
    num_full: int = 0


class CertifiedHead:
    """An LM head y = x W^T for greedy choices.

    Parameters
    ----------
    weight
        The full head's packed weight, (V, K), shared with it.
    rounding
        How the engine rounds logits before it compares them.
    max_survivors
        Of one hidden row; with more the full head runs. None: V / 64, at least 64.

    Attributes
    ----------
    counts : HeadCounts
    """

    def __init__(
        self, weight: PackedWeight, *, rounding: Rounding = "float32", max_survivors: int | None = None
    ) -> None:
        if rounding not in get_args(Rounding):
            raise ConfigError(f"rounding: got {rounding!r}, expected one of: {get_args(Rounding)}")
        if max_survivors is not None and max_survivors < 1:
            raise ConfigError(f"max_survivors: got {max_survivors}, expected 1 or more")
        self._weight, self.rounding = weight, rounding
        self.max_survivors = max(64, weight.num_columns // 64) if max_survivors is None else max_survivors
        exact = weight.unpack()
        self._copy: QWeight = quantise(exact, 8)
        num_inputs = weight.num_inputs
        roundings = (64 + -(-num_inputs // 64)) * 2.0**-24
        scales = self._copy.scales.astype(np.float64)
        residuals, exact_norms, copy_norms = _norms(exact.numpy(), dequantise(self._copy).numpy())
        self._scales = scales
        self._residuals = residuals
        self._slack = roundings / (1 - roundings) * (copy_norms + exact_norms) * _UP
        self._floor = (1 + scales) * num_inputs * _SMALLEST
        integer_norms = np.divide(copy_norms, scales, out=np.zeros_like(scales), where=scales > 0)
        self.counts, self._counting = HeadCounts(), threading.Lock()
        self._largest_norm = float(max(exact_norms.max(), copy_norms.max(), integer_norms.max()))

    @property
    def memory_bytes(self) -> int:
        """Bytes held beside the full head's: the copy and the bounds."""
        bounds = (self._scales, self._residuals, self._slack, self._floor)
        return self._copy.memory_bytes + sum(part.nbytes for part in bounds)

    def error_bounds(self, hidden: NDArray[np.float32]) -> NDArray[np.float64]:
        """e_n of hidden rows (R, K): (R, V)."""
        lengths = np.sqrt(np.square(hidden.astype(np.float64)).sum(1)) * _UP
        return np.asarray(lengths[:, None] * (self._residuals + self._slack) + self._floor, np.float64)

    def screen(self, hidden: NDArray[np.float32]) -> NDArray[np.float64]:
        """a_n of hidden rows (R, K): (R, V)."""
        # 24 bits times 24 bits: the product is exact in float64.
        return np.asarray(integer_product(hidden, self._copy).astype(np.float64) * self._scales, np.float64)

    def survivors(self, hidden: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which rows of the head may be the argmax of hidden rows (R, K): (R, V). All, where nothing can be said."""
        lengths = np.sqrt(np.square(hidden.astype(np.float64)).sum(1))
        # No number of a sum exceeds the product of the norms: nothing overflows below this.
        is_bounded = lengths * self._largest_norm < _HUGE
        with np.errstate(over="ignore", invalid="ignore"):
            scores, bounds = self.screen(hidden), self.error_bounds(hidden)
            upper, lower = scores + bounds, (scores - bounds).max(1)
            # Of a row with a number that is none, nothing is certain.
            is_bounded &= np.isfinite(lower)
            if self.rounding == "bfloat16":
                upper, lower = _to_bfloat16(upper, np.inf), _to_bfloat16(lower, -np.inf)
            kept: NDArray[np.bool_] = upper >= lower[:, None]
        kept[~is_bounded] = True
        return kept

    def rows(self, hidden: Tensor) -> CertifiedRows:
        """Logits of hidden rows (R, K), float32, R >= 1, with the argmax of the full head in every row."""
        x: NDArray[np.float32] = hidden.contiguous().numpy()
        kept = self.survivors(x)
        counts = kept.sum(1)
        is_full = counts > self.max_survivors
        with self._counting:  # steps run on several threads
            self.counts.num_rows += len(counts)
            self.counts.num_survivors += int(counts.sum())
            self.counts.num_full += int(is_full.sum())
        logits = np.full(kept.shape, -np.inf, np.float32)
        if is_full.any():
            logits[is_full] = skinny_gemm_arrays(np.ascontiguousarray(x[is_full]), self._weight)
        if not is_full.all():
            rest = ~is_full
            columns = np.flatnonzero(kept[rest].any(0))
            exact, columns = self._rescore(np.ascontiguousarray(x[rest]), columns)
            logits[np.ix_(rest, columns)] = exact
        result = torch.from_numpy(logits)
        if self.rounding == "bfloat16":
            result = result.bfloat16().float()
        return CertifiedRows(result, np.asarray(counts, np.int64), is_full)

    def _rescore(
        self, x: NDArray[np.float32], columns: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The full head's logits of the panels that hold ``columns``, and the columns they belong to.

        Whole panels are copied: a column's numbers lie strided in memory, so it costs no less to read it alone.
        """
        panels = np.unique(columns // PANEL_COLUMNS)
        padded = np.concatenate((panels, np.repeat(panels[-1:], -len(panels) % GROUP_PANELS)))
        part = PackedWeight(self._weight.panels[padded], len(padded) * PANEL_COLUMNS)
        exact = skinny_gemm_arrays(x, part)[:, : len(panels) * PANEL_COLUMNS]
        ids = (panels[:, None] * PANEL_COLUMNS + np.arange(PANEL_COLUMNS)).reshape(-1)
        is_column = ids < self._weight.num_columns
        return exact[:, is_column], ids[is_column]


def _norms(
    exact: NDArray[np.float32], approximate: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Upper bounds of ||W_n - s_n q_n||, ||W_n|| and s_n ||q_n||.

    ``approximate`` is s_n q_n rounded to float32 once; what that moves, at most 2^-24 of s_n ||q_n||, is added.
    """
    num_rows = len(exact)
    residuals, exact_norms, copy_norms = (np.empty(num_rows) for _ in range(3))
    for first in range(0, num_rows, _ROWS_AT_ONCE):
        here = slice(first, first + _ROWS_AT_ONCE)
        w, a = exact[here].astype(np.float64), approximate[here].astype(np.float64)
        exact_norms[here], copy_norms[here] = np.linalg.norm(w, axis=1), np.linalg.norm(a, axis=1)
        residuals[here] = np.linalg.norm(w - a, axis=1)
    copy_norms *= 1 + 2.0**-23
    residuals += 2.0**-24 * copy_norms
    return residuals * _UP, exact_norms * _UP, copy_norms * _UP


def _to_bfloat16(values: NDArray[np.float64], towards: float) -> NDArray[np.float64]:
    """To float32 towards one side, then to BF16 as logits are: keeps the order against logits on the other side."""
    narrow = values.astype(np.float32)
    is_short = narrow < values if towards > 0 else narrow > values
    narrow = np.where(is_short, np.nextafter(narrow, np.float32(towards)), narrow)
    rounded = torch.from_numpy(np.ascontiguousarray(narrow)).bfloat16().double().numpy()
    return np.asarray(rounded, np.float64)
