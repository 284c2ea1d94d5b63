"""The certified head of a GPU: its bound on the CPU, the table of choices, and on a GPU equality with the full head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specpilot_kernels.certified_head import (
    DeviceHead,
    build_head,
    certified_argmax,
    choice,
    choose_head,
    full_argmax,
)
from specpilot_kernels.certified_head.reference import (
    argmax_reference,
    bounds_reference,
    survivors_reference,
)
from specpilot_kernels.w12.cuda import DeviceW12
from specpilot_kernels.w12_gemm import w12_gemm
from tests.kernels.w12_cases import ABOVE, draw, needs_gpu, one_hot


def draw_head(shape: tuple[int, int], device: str = "cpu") -> tuple[Tensor, DeviceHead]:
    """Rows of several sizes, two of them equal, one of zeros."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(shape, generator=generator) * torch.rand(shape[0], 1, generator=generator) * 0.02
    weight[7], weight[9] = weight[3], 0.0
    dense = weight.bfloat16().to(device)
    return dense, build_head(dense)


def without_bounds(head: DeviceHead) -> DeviceHead:
    return replace(head, bounds=torch.zeros_like(head.bounds), floors=torch.zeros_like(head.floors))


def draw_rows(weight: Tensor, rows: int, seed: int) -> Tensor:
    """Random rows, and one that makes the two equal rows of the head lead."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, weight.shape[1], generator=generator)
    x[0] = weight[3].float().cpu() * 50
    return x.bfloat16().to(weight.device)


def test_screen_and_full_head_lie_within_the_bound() -> None:
    weight, head = draw_head((400, 136))
    x = draw_rows(weight, 20, 0)
    screen, bound = bounds_reference(x, head)
    exact = x.double() @ weight.double().T
    # Both products in float32, whose sums lose less than the tensor cores' may.
    float32 = (x.float() @ weight.float().T).double()
    assert ((screen - exact).abs() <= bound).all() and ((screen - float32).abs() <= bound).all()
    assert ((screen - exact).abs() > 0.1 * bound).any()


def test_the_argmax_survives_and_needs_the_bound() -> None:
    weight, head = draw_head((600, 72))
    lost = 0
    for seed in range(40):
        x = draw_rows(weight, 8, seed)
        best = argmax_reference(x, weight)
        kept = survivors_reference(x, head)
        assert kept[torch.arange(8), best].all()
        assert kept[0, 3] and kept[0, 7] and best[0] == 3
        assert kept.sum() < 0.2 * kept.numel()
        lost += int((~survivors_reference(x, without_bounds(head))[torch.arange(8), best]).sum())
    assert lost > 0


def test_wrong_heads_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got torch\.float32"):
        build_head(torch.zeros(8, 8))
    with pytest.raises(ValueError, match="not finite"):
        build_head(torch.full((8, 8), torch.inf, dtype=torch.bfloat16))


def test_a_cpu_is_refused_and_a_fake_tensor_is_not() -> None:
    _, head = draw_head((130, 72))
    x = torch.zeros(2, 72, dtype=torch.bfloat16)
    for call in (lambda: certified_argmax(x, head), lambda: full_argmax(x, head.exact)):
        with pytest.raises(RuntimeError, match="cpu is no CUDA device"):
            call()
    exact = DeviceW12((130, 72), *(part.to("meta") for part in head.exact.parts))
    found = full_argmax(x.to("meta"), exact)
    assert found.ids.shape == (2,) and found.counts.shape == (2,)
    with pytest.raises(ValueError, match="max_survivors: got 0"):
        certified_argmax(x, head, max_survivors=0)


def test_choice_is_the_faster_of_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tmp_path / "choices.csv"
    table.write_text("gpu,rows,certified_us,w12_us\nA,8,5,4\nA,1,3,4\n", encoding="utf-8")
    monkeypatch.setattr(choice, "_FILE", table)
    choice._choices.cache_clear()
    try:
        assert [choose_head("A", rows) for rows in (1, 2, 8)] == ["certified", "w12", "w12"]
        with pytest.raises(KeyError, match="9 rows on A"):
            choose_head("A", 9)
        with pytest.raises(KeyError, match="1 rows on B"):
            choose_head("B", 1)
    finally:
        choice._choices.cache_clear()


def test_the_table_in_the_package_has_a_choice_for_one_gpu() -> None:
    assert choose_head("NVIDIA H200", 1) in ("certified", "w12")
    assert choose_head("NVIDIA H200", 32) in ("certified", "w12")


@needs_gpu
@pytest.mark.parametrize("shape", [(1000, 64), (5000, 640), (4096, 1032), (20000, 5120)])
def test_ids_are_the_full_heads(shape: tuple[int, int]) -> None:
    weight, head = draw_head(shape, "cuda")
    lost = 0
    for seed, rows in enumerate((1, 3, 8, 9, 16, 32) * 3):
        x = draw_rows(weight, rows, seed)
        full = full_argmax(x, head.exact)
        found = certified_argmax(x, head, max_survivors=shape[0])
        assert torch.equal(found.ids, full.ids) and found.counts[1] == 0 and full.ids[0] == 3
        assert int(found.counts[0]) <= shape[0] // 4
        lost += int((certified_argmax(x, without_bounds(head)).ids != full.ids).sum())
    assert lost > 0


@needs_gpu
@pytest.mark.parametrize("share_escaped", [0.001, 0.01])
@pytest.mark.parametrize("shape", [(5000, 648), (20000, 648), (ABOVE, 136)])
def test_escapes_lead(shape: tuple[int, int], share_escaped: float) -> None:
    """Unit rows of x, whose largest logits are escapes; both orders of records, escapes in slots and in lists."""
    weight, generator = draw(shape, share_escaped=0.0), torch.Generator().manual_seed(2)
    is_escape = torch.rand(shape, generator=generator) < share_escaped
    weight[is_escape] = (torch.rand(shape, generator=generator) * 1e6).bfloat16()[is_escape]
    head = build_head(weight.cuda())
    x, _ = one_hot(32, shape[1])
    expected = argmax_reference(x, weight)
    assert is_escape[expected, x.argmax(1)].all()
    assert torch.equal(full_argmax(x.cuda(), head.exact).ids.cpu(), expected)
    for rows in (3, 12, 32):
        found = certified_argmax(x[:rows].cuda(), head, max_survivors=shape[0])
        assert torch.equal(found.ids.cpu(), expected[:rows]) and found.counts[1] == 0


@needs_gpu
def test_the_full_head_runs_where_nothing_is_certain() -> None:
    weight, head = draw_head((5000, 640), "cuda")
    x = draw_rows(weight, 8, 0)
    few = certified_argmax(x, head, max_survivors=2)
    assert few.counts[1] == 1 and torch.equal(few.ids, full_argmax(x, head.exact).ids)
    for value in (torch.nan, torch.inf, 3e38):
        strange = x.clone()
        strange[3, 5] = value
        found, full = certified_argmax(strange, head), full_argmax(strange, head.exact)
        assert found.counts[1] == 1 and torch.equal(found.ids, full.ids)
    strange[3, 5] = torch.nan
    assert torch.equal(full_argmax(strange, head.exact).ids, w12_gemm(strange, head.exact).argmax(1))


@needs_gpu
def test_a_graph_holds_it() -> None:
    weight, head = draw_head((5000, 640), "cuda")
    x = draw_rows(weight, 8, 0)
    certified_argmax(x, head)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = certified_argmax(x, head)
    for seed in range(1, 6):
        x.copy_(draw_rows(weight, 8, seed))
        graph.replay()
        assert torch.equal(found.ids, full_argmax(x, head.exact).ids)
