"""The certified LM head against the whole head: on the bundled head with real rows, and on heads made to mislead it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from specpilot.conformance.bundled import bundled_engine, prompts
from specpilot.conformance.case import Case, expect_equal
from specpilot.verify.certified_head import CertifiedHead, CertifiedRows
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm

__all__ = ["cases"]

_Kind = type[CertifiedHead]


def cases() -> Iterator[Case[Any]]:
    yield Case("certified head", "survivors bound without residual", _check, CertifiedHead, _NoResidual)
    yield Case("certified head", "ties by the highest id", _check, CertifiedHead, _HighestId)


def _check(kind: _Kind) -> int:
    count = 0
    for name, weight, hidden in _heads():
        full = skinny_gemm(hidden, weight)
        best = [int((row == row.max()).nonzero()[0]) for row in full]
        for most in (None, weight.num_columns):
            got = kind(weight, max_survivors=most).rows(hidden)
            expect_equal(f"{name}, at most {most} survivors: argmax", got.argmax_ids.tolist(), best)
            count += len(best)
    return count


def _heads() -> Iterator[tuple[str, PackedWeight, Tensor]]:
    """(what, head, hidden rows)."""
    yield "bundled head", bundled_engine().target._head.packed, _real_rows()
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    yield "random", PackedWeight.pack(noise(700, 96).bfloat16().float()), noise(6, 96)
    for scale in (1e-1, 1e-2, 1e-3):
        row = noise(1, 96)
        head = (row + scale * noise(700, 96)).bfloat16().float()
        yield (
            f"rows within {scale} of each other",
            PackedWeight.pack(head),
            torch.cat((row, -row, noise(2, 96))),
        )
    head = noise(300, 64).bfloat16().float()
    head[[5, 150, 299]] = head[int(skinny_gemm(head[7:8], PackedWeight.pack(head)).argmax())].clone()
    yield "equal rows", PackedWeight.pack(head), head[[7, 8, 9]]
    yield "all rows zero", PackedWeight.pack(torch.zeros(99, 32)), noise(2, 32)
    head = noise(200, 32) * torch.logspace(-30, 5, 200)[:, None]
    yield "rows of all lengths", PackedWeight.pack(head), torch.cat((noise(3, 32), torch.zeros(1, 32)))


@torch.inference_mode()
def _real_rows() -> Tensor:
    """Hidden rows of the bundled target after every token of the prompts, (R, H)."""
    target = bundled_engine().target
    rows = []
    for ids in prompts():
        state = target.new_state(len(ids))
        rows.append(target.forward(torch.tensor(ids), state).hidden)
    return torch.cat(rows)


class _NoResidual(CertifiedHead):
    """What quantisation moved is not in the bound."""

    def __init__(self, weight: PackedWeight, *, max_survivors: int | None = None) -> None:
        super().__init__(weight, max_survivors=max_survivors)
        self._residuals = self._residuals * 0.0


class _HighestId(CertifiedHead):
    """The real head on a head that stands upside down."""

    def __init__(self, weight: PackedWeight, *, max_survivors: int | None = None) -> None:
        super().__init__(PackedWeight.pack(weight.unpack().flip(0)), max_survivors=max_survivors)

    def rows(self, hidden: Tensor) -> CertifiedRows:
        found = super().rows(hidden)
        return CertifiedRows(_mirrored(found.logits), found.num_survivors, found.is_full)


def _mirrored(logits: Tensor) -> Tensor:
    """One column a row: the last of the largest, counted from the other end."""
    best = logits.shape[1] - 1 - logits.argmax(1)
    result = torch.full_like(logits, -torch.inf)
    result[torch.arange(len(logits)), best] = 0.0
    return result
