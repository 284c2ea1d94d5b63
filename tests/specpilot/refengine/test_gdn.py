"""The gated delta rule: chunk form, gradients and prefix commit against the token-by-token definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specpilot.refengine.gdn import (
    DeltaRuleOutput,
    chunk_gated_delta_rule,
    normalise_queries_and_keys,
    recurrent_gated_delta_rule,
    state_after,
)

Rule = Callable[..., DeltaRuleOutput]
recurrent: Rule = recurrent_gated_delta_rule
chunked: Rule = chunk_gated_delta_rule

BATCH, HEADS, KEY_DIM, VALUE_DIM = 2, 3, 16, 24


def draw(num_tokens: int, dtype: torch.dtype, *, decay: float = 1.0, seed: int = 0) -> list[Tensor]:
    """q, k, v, g, beta, state of a random run; ``decay`` scales the log decay."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=dtype)

    q, k = normalise_queries_and_keys(
        normal(BATCH, HEADS, num_tokens, KEY_DIM), normal(BATCH, HEADS, num_tokens, KEY_DIM)
    )
    v = normal(BATCH, HEADS, num_tokens, VALUE_DIM)
    g = -decay * torch.rand(BATCH, HEADS, num_tokens, generator=rng, dtype=dtype)
    beta = torch.sigmoid(2 * normal(BATCH, HEADS, num_tokens))
    return [q, k, v, g, beta, normal(BATCH, HEADS, KEY_DIM, VALUE_DIM)]


def relative_error(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("num_tokens", [1, 2, 7, 63, 64, 65, 130, 200])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("decay", [0.02, 1.0, 8.0])
def test_chunk_form_equals_recurrent_form(
    num_tokens: int, dtype: torch.dtype, limit: float, decay: float
) -> None:
    inputs = draw(num_tokens, dtype, decay=decay)
    expected = recurrent(*inputs)
    got = chunked(*inputs)
    assert got.output.dtype == dtype
    assert relative_error(got.output, expected.output) < limit
    assert relative_error(got.state, expected.state) < limit
    assert relative_error(got.pseudo_values, expected.pseudo_values) < limit


@pytest.mark.parametrize("chunk_size", [1, 16, 33])
def test_chunk_size_does_not_matter(chunk_size: int) -> None:
    inputs = draw(50, torch.float64)
    expected = recurrent(*inputs)
    got = chunked(*inputs, chunk_size=chunk_size)
    assert relative_error(got.output, expected.output) < 1e-12
    assert relative_error(got.state, expected.state) < 1e-12


def test_no_state_means_zero_state() -> None:
    inputs = draw(70, torch.float64)
    zero = torch.zeros_like(inputs[5])
    for rule in (recurrent, chunked):
        assert torch.equal(rule(*inputs[:5]).output, rule(*inputs[:5], zero).output)


def test_extreme_decay_gives_no_nan() -> None:
    """Log decays of -200 a token: a ratio of cumulative decays would be 0/0, a difference of logarithms is
    not.

    The sums reach -12,000, where float32 steps are 1e-3, hence the wide limit.
    """
    inputs = draw(64, torch.float32, decay=400.0)
    for x in inputs[:5]:
        x.requires_grad_()
    got = chunked(*inputs)
    expected = recurrent(*inputs)
    assert relative_error(got.output.detach(), expected.output.detach()) < 1e-3
    (got.output.sum() + got.state.sum()).backward()
    for x in inputs[:5]:
        assert x.grad is not None and torch.isfinite(x.grad).all()


@pytest.mark.parametrize("num_tokens", [5, 64, 100])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_gradients_equal_those_of_the_recurrent_form(
    num_tokens: int, dtype: torch.dtype, limit: float
) -> None:
    rng = torch.Generator().manual_seed(1)
    weights = [
        torch.randn(BATCH, HEADS, num_tokens, VALUE_DIM, generator=rng, dtype=dtype),
        torch.randn(BATCH, HEADS, KEY_DIM, VALUE_DIM, generator=rng, dtype=dtype),
    ]
    gradients = []
    for rule in (recurrent, chunked):
        inputs = [x.requires_grad_() for x in draw(num_tokens, dtype)]
        result = rule(*inputs)
        ((result.output * weights[0]).sum() + (result.state * weights[1]).sum()).backward()
        gradients.append([x.grad for x in inputs])
    for expected, got in zip(*gradients, strict=True):
        assert expected is not None and got is not None
        assert relative_error(got, expected) < limit


def test_gradcheck_of_the_chunk_form() -> None:
    inputs = [
        x[:1, :1, ..., :3].clone().requires_grad_() if x.dim() == 4 else x[:1, :1].clone().requires_grad_()
        for x in draw(5, torch.float64)
    ]
    inputs[5] = inputs[5].detach()[:, :, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda *x: chunked(*x, chunk_size=2)[:2], inputs)


@pytest.mark.parametrize("num_accepted", [1, 2, 8, 13])
def test_state_after_a_prefix_equals_a_run_of_the_prefix(num_accepted: int) -> None:
    inputs = draw(13, torch.float64)
    got = chunked(*inputs)
    rebuilt = state_after(inputs[5], inputs[1], got.pseudo_values, got.log_decay, num_accepted)
    prefix = [x[:, :, :num_accepted] for x in inputs[:5]]
    assert relative_error(rebuilt, recurrent(*prefix, inputs[5]).state) < 1e-12


def test_autocast_does_not_lower_the_precision() -> None:
    inputs = draw(64, torch.float32)
    expected = chunked(*inputs).output
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = chunked(*inputs).output
    assert torch.equal(got, expected)
