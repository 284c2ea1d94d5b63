"""Queries and keys that are scaled and turned but not normed: against the references, and unlike the normed ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot_kernels.chain_attention import chain_attention
from specpilot_kernels.chain_attention.reference import chain_attention_reference
from specpilot_kernels.context_write import context_write
from specpilot_kernels.context_write.reference import context_write_reference

HEADS, GROUPS, DIM, CAPACITY = 4, 2, 32, 90


def draw(num_rows: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    angles = torch.randn(CAPACITY, DIM // 2, generator=generator)
    cache = torch.randn(2, GROUPS, CAPACITY, DIM, generator=generator)
    scales = torch.rand(HEADS + GROUPS, DIM, generator=generator) + 0.5
    scales[:HEADS] *= DIM**-0.5
    return {
        "rows": torch.randn(num_rows, (HEADS + 2 * GROUPS) * DIM, generator=generator),
        "keys": cache[0],
        "values": cache[1],
        "scales": scales,
        "rotation": torch.stack((angles.cos(), angles.sin()), -1),
    }


def attend(case: dict[str, Tensor], position: int, eps: float | None) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = case["keys"].clone(), case["values"].clone()
    tables = case["scales"].numpy(), case["rotation"].numpy()
    out = chain_attention(case["rows"].numpy(), keys.numpy(), values.numpy(), position, *tables, eps)
    return torch.from_numpy(out), keys, values


@pytest.mark.parametrize(("num_rows", "position"), [(1, 0), (1, 70), (5, 64), (9, 3)])
def test_attention_agrees_with_its_reference(num_rows: int, position: int) -> None:
    case = draw(num_rows)
    exact = {name: tensor.double() for name, tensor in case.items()}
    truth = chain_attention_reference(
        exact["rows"],
        exact["keys"],
        exact["values"],
        position,
        exact["scales"],
        exact["rotation"],
        None,
        HEADS,
    )
    for got, expected in zip(attend(case, position, None), truth, strict=True):
        torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=1e-5)
    assert (attend(case, position, 1e-6)[1].double() - truth[1]).abs().max() > 1e-2  # a norm would show


def test_written_keys_are_those_that_the_attention_writes() -> None:
    case = draw(6)
    _, keys, values = attend(case, 11, None)
    written = torch.stack((case["keys"], case["values"]))[None]
    key_value = case["rows"][:, HEADS * DIM :].contiguous().numpy()
    tables = case["scales"][HEADS:].contiguous().numpy(), case["rotation"].numpy()
    cache = written.clone()
    context_write(key_value, cache.numpy(), 11, *tables, None)
    assert torch.equal(cache[0, 0], keys) and torch.equal(cache[0, 1], values)
    rows = case["rows"][:, HEADS * DIM :]
    scales, rotation = case["scales"][HEADS:].double(), case["rotation"].double()
    truth = context_write_reference(rows.double(), written.double(), 11, scales, rotation, None)
    torch.testing.assert_close(cache.double(), truth, atol=1e-5, rtol=1e-5)


def test_a_negative_epsilon_is_refused() -> None:
    case = draw(2)
    with pytest.raises(ValueError, match=r"eps: got -1.0, expected 0 or more, or None"):
        attend(case, 0, -1.0)
    cache = np.zeros((1, 2, GROUPS, CAPACITY, DIM), np.float32)
    key_value = np.zeros((2, 2 * GROUPS * DIM), np.float32)
    tables = case["scales"][HEADS:].contiguous().numpy(), case["rotation"].numpy()
    with pytest.raises(ValueError, match=r"eps: got -1.0, expected 0 or more, or None"):
        context_write(key_value, cache, 0, *tables, -1.0)
