"""The convolution of a draft block against its reference, and what a row depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot_kernels.block_conv import block_conv
from specpilot_kernels.block_conv.reference import block_conv_reference


def draw(num_rows: int, num_taps: int, num_groups: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    return (
        torch.randn(num_rows, num_groups * size, generator=generator),
        torch.randn(num_taps, num_groups, size, generator=generator),
        torch.randn(num_rows, num_taps, num_groups, generator=generator),
    )


def run(*arguments: Tensor) -> Tensor:
    return torch.from_numpy(block_conv(*(argument.numpy() for argument in arguments)))


@pytest.mark.parametrize("num_taps", [1, 2, 3, 5])
@pytest.mark.parametrize("num_rows", [1, 2, 8, 17])
@pytest.mark.parametrize(("num_groups", "size"), [(16, 16), (3, 7), (1, 1)])
def test_agrees_with_its_reference(num_taps: int, num_rows: int, num_groups: int, size: int) -> None:
    arguments = draw(num_rows, num_taps, num_groups, size)
    truth = block_conv_reference(*(argument.double() for argument in arguments))
    torch.testing.assert_close(run(*arguments).double(), truth, atol=1e-5, rtol=1e-5)


def test_a_row_depends_on_itself_and_the_taps_before_it_alone() -> None:
    x, base, delta = draw(8, 2, 4, 16)
    out = run(x, base, delta)
    assert torch.equal(run(x[:5].contiguous(), base, delta[:5].contiguous()), out[:5])
    x[3] += 1
    assert (run(x, base, delta) != out).any(-1).tolist() == [False] * 3 + [True] * 2 + [False] * 3


def test_blocks_side_by_side_are_blocks_alone() -> None:
    x, base, delta = draw(11, 3, 4, 16)
    sizes = (5, 1, 2, 3)
    places = torch.cat([torch.arange(size) for size in sizes])
    alone = [run(part, base, own) for part, own in zip(x.split(sizes), delta.split(sizes), strict=True)]
    assert torch.equal(run(x, base, delta, places), torch.cat(alone))
    assert not torch.equal(run(x, base, delta), torch.cat(alone))


@pytest.mark.parametrize("places", [[0, 1], [0, 1, -1], [1, 0, 1], [0, 1, 3]])
def test_places_outside_a_block_are_refused(places: list[int]) -> None:
    with pytest.raises(ValueError, match=r"places.*expected 3 places"):
        run(*draw(3, 2, 4, 16), torch.tensor(places))


def test_wrong_arguments_are_refused() -> None:
    x, base, delta = (argument.numpy() for argument in draw(4, 2, 4, 16))
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((x[:, 1:], base, delta), r"x \(4, 63\)"),
        ((x, base[1:], delta), r"base \(1, 4, 16\)"),
        ((x, base, delta[1:]), r"delta \(3, 2, 4\)"),
        ((x[:0], base, delta[:0]), r"x \(0, 64\)"),
        ((x.astype(np.float64), base, delta), "float64"),
        ((x, base, np.asfortranarray(delta)), "contiguous"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            block_conv(*arguments)
