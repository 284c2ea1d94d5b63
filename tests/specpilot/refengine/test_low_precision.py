"""Low-precision copies: the numbers they are said to have, on the exact target's states, which they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot.engines.mechanisms import QWeights
from specpilot.refengine.dense import load_dense
from specpilot.refengine.low_precision import QProjection, low_precision_copy
from specpilot.refengine.model import TargetModel
from specpilot.refengine.target import Target
from specpilot_kernels.q_weights import dequantise, quantise
from specpilot_kernels.w12 import encode_w12, view_w12
from tests.specpilot.refengine.random_dense import save_muse_glimmer, save_random
from tests.specpilot.refengine.random_target import SMALL, UNTIED, random_tensors
from tests.specpilot.refengine.test_tree_rows import assert_same_memory, draw_ids, started

KINDS: tuple[QWeights, ...] = ("w12_view", "int8", "int6")
TAPS = (0, 2)


@pytest.fixture(scope="module", params=["tied", "untied", "llama", "gemma3", "muse glimmer"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    if request.param in ("tied", "untied"):
        config = SMALL if request.param == "tied" else UNTIED
        return TargetModel(config, random_tensors(config), "judge")
    folder = tmp_path_factory.mktemp("target")
    if request.param == "muse glimmer":
        save_muse_glimmer(folder)
    else:
        save_random(folder, request.param)
    return load_dense(folder, mode="judge")


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_over_a_copy_leaves_no_trace(target: Target, kind: QWeights) -> None:
    copy = low_precision_copy(target, kind)
    with_pass, without = started(target, 20), started(target, 20)
    ids = draw_ids(target, 12, 2)
    parents = np.array([-1, 0, 0, 1, 1, 2, 3, 3, 5, 6, 8, 9])
    with_pass.open_rows(12, parents=parents)
    rows = copy.target.forward_batch(ids, [with_pass], taps=TAPS)
    with_pass.commit(0)
    assert_same_memory(with_pass, without)
    # The exact target goes on bit for bit as if there had been none, over chains and trees.
    for state in (with_pass, without):
        state.open_rows(12, parents=parents)
    exact, expected = (target.forward_batch(ids, [state], taps=TAPS) for state in (with_pass, without))
    assert torch.equal(exact.hidden, expected.hidden) and torch.equal(exact.taps, expected.taps)
    assert not torch.equal(rows.hidden, exact.hidden)
    path = np.array([0, 1, 3, 6])
    for state in (with_pass, without):
        state.commit(path)
    assert_same_memory(with_pass, without)


@pytest.mark.parametrize(("kind", "limit"), [("w12_view", 0.2), ("int8", 0.1), ("int6", 0.35)])
def test_a_copy_is_near_its_target(target: Target, kind: QWeights, limit: float) -> None:
    """Relative error of the hidden rows, over layers whose random weights keep every error."""
    copy = low_precision_copy(target, kind)
    ids = draw_ids(target, 24, 3)
    exact, near = (model.forward(ids, model.new_state(24)).hidden for model in (target, copy.target))
    assert 1e-4 < float((near - exact).norm() / exact.norm()) < limit
    assert torch.equal(copy.target.embed(ids), target.embed(ids))


def _numbers(weight: Tensor, kind: QWeights) -> Tensor:
    if kind == "w12_view":
        return view_w12(encode_w12(weight.bfloat16())).float()
    return dequantise(quantise(weight, 8 if kind == "int8" else 6))


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_the_model_of_its_rounded_checkpoint(kind: QWeights) -> None:
    """Every matrix product is low-precision, row by row of the checkpoint, and nothing else is."""
    tensors = random_tensors(UNTIED)
    products = ("_proj", "in_proj", "out_proj", "lm_head")
    rounded = {
        name: _numbers(tensor, kind)
        if tensor.ndim == 2 and any(word in name for word in products)
        else tensor
        for name, tensor in tensors.items()
    }
    copy = low_precision_copy(TargetModel(UNTIED, tensors, "judge"), kind)
    model = TargetModel(UNTIED, rounded, "judge")
    ids = draw_ids(model, 15, 4)
    hidden, expected = (one.forward(ids, one.new_state(15)).hidden for one in (copy.target, model))
    if kind == "w12_view":
        assert torch.equal(hidden, expected)
        assert torch.equal(copy.target.logits(hidden), model.logits(hidden))
    else:
        # The scale is applied behind the sum here and inside it there.
        torch.testing.assert_close(hidden, expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(copy.target.logits(hidden), model.logits(hidden), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_may_stay_exact(target: Target, kind: QWeights) -> None:
    hidden = torch.randn(5, target.config.hidden_size, generator=torch.Generator().manual_seed(5))
    whole, without = low_precision_copy(target, kind), low_precision_copy(target, kind, has_head=False)
    assert torch.equal(without.target.logits(hidden), target.logits(hidden))
    assert not torch.equal(whole.target.logits(hidden), target.logits(hidden))
    assert without.memory_bytes < whole.memory_bytes and without.exact_bytes < whole.exact_bytes


def test_the_target_is_not_changed(target: Target) -> None:
    ids = draw_ids(target, 9, 6)
    before = target.forward(ids, target.new_state(9)).hidden
    for kind in KINDS:
        low_precision_copy(target, kind)
    assert torch.equal(target.forward(ids, target.new_state(9)).hidden, before)


def test_bytes() -> None:
    target = TargetModel(SMALL, random_tensors(SMALL), "judge")
    copies = {kind: low_precision_copy(target, kind) for kind in KINDS}
    for copy in copies.values():
        assert copy.exact_bytes == copies["int8"].exact_bytes
    # BF16 numbers, and bytes with a scale a row.
    assert copies["w12_view"].memory_bytes == copies["w12_view"].exact_bytes
    assert 0.5 < copies["int8"].memory_bytes / copies["int8"].exact_bytes < 0.55
    assert copies["int6"].format_bytes < 0.8 * copies["int8"].format_bytes
    assert isinstance(copies["int8"].target._head, QProjection)
    assert copies["int8"].target._head.memory_bytes == copies["int8"].target._head.weight.memory_bytes
