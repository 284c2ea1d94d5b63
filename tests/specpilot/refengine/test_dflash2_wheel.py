"""Drafter and oracle against the model code of SGLang 0.5.20 itself, where an unpacked wheel is at hand."""

from __future__ import annotations

import pytest
import torch

from specpilot.refengine.dflash2 import load_dflash2
from tests.oracles import sglang_dflash2 as oracle
from tests.oracles.random_dflash2 import TinyTarget, make_config, make_tensors, write_checkpoint
from tests.oracles.sglang_wheel import wheel_root


@pytest.fixture
def root():
    """The wheel's sources; its compiled functions run as plain Python."""
    sources = wheel_root()
    pytest.importorskip("transformers")
    with torch.compiler.set_stance("force_eager"):
        yield sources


@pytest.mark.parametrize(("block_size", "length"), [(8, 0), (8, 37), (16, 70), (8, 131)])
def test_wheel_oracle_and_drafter_agree(tmp_path, root, block_size, length):
    from tests.oracles.sglang_drafter import WheelDrafter

    config = make_config(block_size=block_size)
    tensors, target = make_tensors(config, length), TinyTarget(config, 1)
    taps = torch.randn(length, 192, generator=torch.Generator().manual_seed(2)) * 3.0
    anchor = 42

    wheel = WheelDrafter(root, config, tensors, target.table)
    wheel.append_context(taps)
    candidates, scores, chain = wheel.propose(anchor, block_size)
    assert wheel.attention_kinds == {("encoder_only", -1)}

    block = torch.tensor([[anchor] + [config["dflash_config"]["mask_token_id"]] * (block_size - 1)])
    hidden = oracle.block_hidden(config, tensors, target.table, taps[None], block)
    oracle_candidates, oracle_scores = oracle.build_lattice(
        config, tensors, target.table, hidden[:, 1:], torch.tensor([anchor])
    )
    assert torch.equal(oracle_candidates[0], candidates)
    assert (oracle_scores[0] - scores).abs().max() < 1e-4
    assert torch.equal(oracle.greedy_path(oracle_candidates, oracle_scores)[0], chain)

    drafter = load_dflash2(write_checkpoint(tmp_path, config, tensors), target=target)
    state = drafter.new_state(length)
    drafter.append_context(state, torch.zeros(length, dtype=torch.int64), taps)
    draft = drafter.propose(state, anchor)
    assert torch.equal(draft.lattice.candidate_ids, candidates)
    assert (draft.lattice.edge_scores - scores).abs().max() < 1e-4
    assert torch.equal(draft.token_ids, chain)


def test_sampling_law_is_the_wheels(root):
    """q of a chain: the wheel's walk and ours give the same rows for the same chain."""
    from specpilot.draft import Lattice
    from tests.oracles.sglang_drafter import WheelDrafter

    config = make_config()
    wheel = WheelDrafter(root, config, make_tensors(config, 0), TinyTarget(config, 1).table)
    generator = torch.Generator().manual_seed(5)
    ids = torch.stack([torch.randperm(211, generator=generator)[:16] for _ in range(7)])
    lattice = Lattice(ids, torch.randn(7, 16, 16, generator=generator) * 2)
    same_root = lattice.edge_scores.clone()
    same_root[0] = same_root[0, :1]
    ours, q_rows = lattice.sample_chain(0.7, generator)
    # Uniforms at the middle of each drawn token's interval make the wheel draw the same chain.
    uniforms, row = torch.empty(1, 7), 0
    for depth in range(7):
        cumulative = torch.softmax(same_root[depth, row] / 0.7, -1).cumsum(-1)
        row = ids[depth].tolist().index(int(ours[depth]))
        below = cumulative[row - 1] if row else torch.tensor(0.0)
        uniforms[0, depth] = (below + cumulative[row]) / 2
    chain, wheel_rows = wheel.model.candidate_selector.sample_path(
        candidate_ids=ids[None],
        scores=same_root[None],
        uniforms=uniforms,
        temperatures=torch.tensor([0.7]),
        greedy_mask=torch.tensor([False]),
    )
    assert torch.equal(chain[0], ours)
    assert torch.allclose(wheel_rows[0].double(), q_rows, atol=1e-5)
