"""Drafter and oracle against the model code of SGLang 0.5.20 itself, where an unpacked wheel is at hand."""

from __future__ import annotations

import ast

import pytest
import torch

from specpilot.refengine.dspark import load_dspark
from tests.oracles import sglang_dflash2, sglang_dspark
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_dspark import make_config, make_tensors
from tests.oracles.sglang_wheel import find_class, methods, parse, wheel_root

ANCHOR = 42


@pytest.fixture
def root():
    """The wheel's sources; its compiled functions run as plain Python."""
    sources = wheel_root()
    pytest.importorskip("transformers")
    with torch.compiler.set_stance("force_eager"):
        yield sources


def make_wheel(root, config, tensors, target, taps):
    from tests.oracles.sglang_dspark_drafter import WheelDSpark

    wheel = WheelDSpark(root, config, tensors, target.table)
    wheel.append_context(taps)
    return wheel


@pytest.mark.parametrize(("gamma", "length"), [(7, 0), (7, 37), (15, 70), (7, 131)])
def test_wheel_oracle_and_drafter_agree(tmp_path, root, gamma, length):
    config = make_config(block_size=gamma)
    tensors, target = make_tensors(config, length), TinyTarget(config, 1)
    taps = torch.randn(length, 192, generator=torch.Generator().manual_seed(2)) * 3.0

    wheel = make_wheel(root, config, tensors, target, taps)
    assert wheel.model.gamma == gamma and wheel.model.sample_from_anchor
    chain, scores, confidence = wheel.draft(ANCHOR)
    assert wheel.attention_kinds == {("encoder_only", -1)}
    survival = confidence.cumprod(0)

    block = torch.tensor([[ANCHOR] + [config["mask_token_id"]] * (gamma - 1)])
    hidden = sglang_dflash2.block_hidden(config, tensors, target.table, taps[None], block)[0]
    oracle_chain, oracle_scores = sglang_dspark.chain(
        tensors, target.table, hidden, ANCHOR, lambda row, depth: int(row.argmax())
    )
    assert oracle_chain == chain.tolist()
    assert (oracle_scores - scores).abs().max() < 2e-4
    oracle_survival = sglang_dspark.survival(config, tensors, hidden, ANCHOR, oracle_chain)
    assert (oracle_survival - survival).abs().max() < 1e-5

    drafter = load_dspark(write_checkpoint(tmp_path, config, tensors), target=target)
    state = drafter.new_state(length)
    drafter.append_context(state, torch.zeros(length, dtype=torch.int64), taps)
    draft = drafter.propose(state, ANCHOR)
    assert torch.equal(draft.token_ids, chain)
    assert (draft.survival - survival).abs().max() < 1e-5
    candidates = draft.lattice.candidate_ids
    assert [set(row) for row in candidates.tolist()] == [set(row) for row in scores.topk(16).indices.tolist()]


def test_sampling_law_is_the_wheels(tmp_path, root):
    """q of a chain: the wheel, made to take our chain, has the same scores, and its sampler divides by temperature."""
    config = make_config()
    tensors, target = make_tensors(config, 0), TinyTarget(config, 1)
    taps = torch.randn(20, 192, generator=torch.Generator().manual_seed(2)) * 3.0
    drafter = load_dspark(write_checkpoint(tmp_path, config, tensors), target=target)
    state = drafter.new_state(20)
    drafter.append_context(state, torch.zeros(20, dtype=torch.int64), taps)
    draw = torch.Generator().manual_seed(4)
    draft = drafter.propose(state, ANCHOR, temperature=5.0, generator=draw)
    assert draft.q_rows is not None

    wheel = make_wheel(root, config, tensors, target, taps)
    chain, scores, confidence = wheel.draft(ANCHOR, lambda rows, depth: draft.token_ids[depth : depth + 1])
    assert torch.equal(chain, draft.token_ids)
    assert ((scores / 5.0).softmax(-1) - draft.q_rows).abs().max() < 1e-5
    assert (confidence.cumprod(0) - draft.survival).abs().max() < 1e-5
    source = ast.unparse(parse(root / "speculative/dspark_components/dspark_draft.py"))
    assert "torch.softmax(step_logits.float() / temperatures[:, None], dim=-1)" in source


def test_wheel_builds_the_block_and_its_positions_as_the_drafter_does(root):
    file = root / "speculative/dspark_components/dspark_draft.py"
    proposer = find_class(parse(file), "DraftBlockProposer")
    text = "\n".join(
        ast.unparse(methods(proposer, name)[0]) for name in ("__init__", "propose", "_run_forward")
    )
    for statement in (
        "self.query_token_num = self.gamma if self.sample_from_anchor else self.gamma + 1",
        "prefix_lens = batch.seq_lens",
        "draft_block_ids[:, 0].copy_(draft_input.bonus_tokens.view(-1))",
        "draft_positions = positions_2d[:, :query_token_num].reshape(-1)",
        "model_hidden = raw_hidden",
        "anchor_tokens=draft_block_ids[:, 0]",
    ):
        assert statement in text, statement


def test_a_checkpoint_without_confidence_is_one_the_wheel_serves_without_it(tmp_path, root):
    """In its static mode; in the others the wheel wants the head."""
    config = make_config(enable_confidence_head=False)
    tensors, target = make_tensors(config, 0), TinyTarget(config, 1)
    assert (
        load_dspark(write_checkpoint(tmp_path, config, tensors), target=target).config.has_confidence is False
    )
    with pytest.raises(ValueError, match="confidence head is enabled but the checkpoint is missing"):
        make_wheel(root, config, tensors, target, torch.zeros(0, 192))
