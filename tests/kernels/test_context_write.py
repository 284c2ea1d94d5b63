"""Keys and values of committed tokens: against the reference, in any chunks, and nothing else touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from specpilot_kernels.context_write import context_write
from specpilot_kernels.context_write.reference import context_write_reference

EPS = 1e-6
LAYERS, GROUPS, CAPACITY, DIM = 3, 2, 20, 32


def draw(num_rows: int, pairs: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(num_rows)
    angles = torch.randn(CAPACITY, pairs, generator=generator)
    cache = torch.randn(2, LAYERS, GROUPS, CAPACITY, DIM, generator=generator)
    return {
        "projected": torch.randn(num_rows, 2 * LAYERS * GROUPS * DIM, generator=generator),
        "cache": cache.transpose(0, 1).contiguous(),
        "scales": torch.randn(LAYERS * GROUPS, DIM, generator=generator),
        "rotation": torch.stack((angles.cos(), angles.sin()), -1),
    }


def write(case: dict[str, Any], position: int, chunks: list[int]) -> torch.Tensor:
    cache = case["cache"].clone()
    for rows in case["projected"].split(chunks):
        tables = case["scales"].numpy(), case["rotation"].numpy()
        context_write(rows.numpy(), cache.numpy(), position, *tables, EPS)
        position += len(rows)
    return cache


@pytest.mark.parametrize("pairs", [0, 5, 16])
@pytest.mark.parametrize(("num_rows", "position"), [(1, 0), (7, 3), (20, 0)])
def test_agrees_with_its_reference(num_rows: int, position: int, pairs: int) -> None:
    case = draw(num_rows, pairs)
    exact = {name: value.double() for name, value in case.items()}
    truth = context_write_reference(**exact, position=position, eps=EPS)
    got = write(case, position, [num_rows])
    torch.testing.assert_close(got.double(), truth, atol=1e-5, rtol=1e-5)
    outside = [at for at in range(CAPACITY) if not position <= at < position + num_rows]
    assert torch.equal(got[:, :, :, outside], case["cache"][:, :, :, outside])


def test_chunks_do_not_show() -> None:
    case = draw(17, 16)
    whole = write(case, 2, [17])
    for chunks in ([1] * 17, [8, 9], [16, 1]):
        assert torch.equal(write(case, 2, chunks), whole)


def test_wrong_arguments_are_refused() -> None:
    case = {name: value.numpy() for name, value in draw(4, 16).items()}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"projected": case["projected"][:, 1:]}, r"projected \(4, 383\)"),
        ({"cache": case["cache"][:, :1]}, r"cache: got \(3, 1, 2, 20, 32\)"),
        ({"cache": case["cache"][1:]}, r"cache \(2, 2, 2, 20, 32\)"),
        ({"scales": case["scales"][1:]}, r"scales \(5, 32\)"),
        ({"rotation": case["rotation"][:, :, :1]}, r"rotation \(20, 16, 1\)"),
        ({"position": 17}, "got 4 rows at 17, expected rows from 0 to 20"),
        ({"position": -1}, "at -1"),
        ({"cache": case["cache"].astype(np.float64)}, "cache float64"),
    ]
    for change, message in changes:
        with pytest.raises(ValueError, match=message):
            context_write(**({"position": 0, "eps": EPS} | case | change))
