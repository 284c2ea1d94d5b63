"""The chains that EAGLE-3 training unrolls are the chains that are drafted, and its loss is what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from specpilot.models.train.drafter import DraftBatch
from specpilot.models.train.eagle3 import Eagle3Shape, TrainEagle3
from specpilot.models.train.export import export_checkpoint
from specpilot.models.train.objectives import eagle3_losses
from specpilot.models.train.target import TrainTarget
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.eagle3 import load_eagle3
from specpilot.refengine.model import load_target
from tests.oracles.eagle3_plain import draft_chain

CONFIG = TargetConfig(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_layers=4, full_attention_interval=4, num_heads=2,
    num_kv_heads=1, head_dim=32, rotary_dim=8, rope_theta=10_000.0, gdn_num_key_heads=1, gdn_num_value_heads=2,
    gdn_key_dim=16, gdn_value_dim=16, gdn_conv_size=4, norm_eps=1e-6, context_length=256, tie_word_embeddings=True,
    eos_ids=(2, 0),
)  # fmt: skip
SHAPE = Eagle3Shape(
    hidden_size=64, vocab_size=96, num_target_layers=4, tap_outputs=(0, 2), num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=96, block_size=5, context_length=256,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def target() -> TrainTarget:
    """Random, with embeddings far enough apart to be told from one another; numbers fit BF16."""
    model = TrainTarget(CONFIG)
    model.initialise(5)
    for name, parameter in model.named_parameters():
        parameter.data.mul_(20.0 if "embed" in name else 1.0)
        parameter.data.copy_(parameter.data.bfloat16())
    return model.requires_grad_(False)


@pytest.fixture
def drafter() -> TrainEagle3:
    drafter = TrainEagle3(SHAPE)
    drafter.initialise(3)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in drafter.named_parameters():
        if "norm" in name:  # start values are ones, which would compare nothing
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
        parameter.data.copy_(parameter.data.bfloat16())
    return drafter.requires_grad_(False)


@pytest.fixture(scope="module")
def batch(target: TrainTarget) -> DraftBatch:
    ids = torch.randint(0, 96, (2, 26), generator=torch.Generator().manual_seed(4))
    starts = torch.zeros_like(ids, dtype=torch.bool)
    starts[:, 0] = True
    hidden, taps = target(ids, starts, SHAPE.tap_outputs)
    assert taps is not None
    anchors, table = torch.tensor([[1, 9, 17], [21, 5, 5]]), target.model.embed_tokens.weight.detach()
    return DraftBatch(ids, taps, hidden, anchors, torch.tensor([26, 24]), table)


def test_unrolled_chains_are_chains_drafted_row_by_row(drafter: TrainEagle3, batch: DraftBatch) -> None:
    logits = drafter(batch.ids, batch.taps, batch.anchors, batch.table)
    for row in range(2):
        ids = batch.ids[row].tolist()
        for index, anchor in enumerate(batch.anchors[row].tolist()):
            expected = draft_chain(
                SHAPE.config_dict(), drafter.state_dict(), batch.table, ids[: anchor + 1], batch.taps[row, :anchor],
                drafter.num_drafts, forced=ids[anchor + 1 : anchor + SHAPE.block_size],
            )[1]  # fmt: skip
            torch.testing.assert_close(logits[row, index].double(), expected, atol=2e-4, rtol=1e-4)


def test_every_tensor_matters_to_every_chain(drafter: TrainEagle3, batch: DraftBatch) -> None:
    """The comparison above can fail: one tensor turned upside down moves the logits by far more than its tolerance."""
    logits = drafter(batch.ids, batch.taps, batch.anchors, batch.table)
    for name, parameter in drafter.named_parameters():
        before = parameter.clone()
        parameter.copy_(before.flip(0))
        moved = (drafter(batch.ids, batch.taps, batch.anchors, batch.table) - logits).abs().amax((2, 3))
        parameter.copy_(before)
        assert moved.min() > 1e-2, name


def test_what_comes_after_a_row_does_not_change_it(drafter: TrainEagle3, batch: DraftBatch) -> None:
    """Row k of a chain sees tokens up to anchor + k, and of the target's features those before the anchor."""
    anchors = torch.full((2, 1), 9)
    ids, taps = batch.ids.clone(), batch.taps.clone()
    ids[:, 12:] = (ids[:, 12:] + 7) % 96
    taps[:, 9:] += 1.0
    before = drafter(batch.ids, batch.taps, anchors, batch.table)
    after = drafter(ids, taps, anchors, batch.table)
    torch.testing.assert_close(after[:, :, :3], before[:, :, :3], atol=1e-5, rtol=0)
    assert (after[:, :, 3] - before[:, :, 3]).abs().amax(-1).min() > 1e-2


def test_trained_drafter_is_the_served_drafter(
    target: TrainTarget, drafter: TrainEagle3, batch: DraftBatch, tmp_path: Path
) -> None:
    export_checkpoint(tmp_path / "target", CONFIG.to_json_dict(), target.state_dict(), None)
    export_checkpoint(tmp_path / "eagle3", drafter.config_dict(), drafter.state_dict(), None)
    served = load_eagle3(tmp_path / "eagle3", target=load_target(tmp_path / "target", mode="serve"))
    assert served.target_taps == SHAPE.tap_outputs and served.block_size == SHAPE.block_size
    for anchor in (1, 9, 21):
        state = served.new_state(32)
        served.append_context(state, batch.ids[0, :anchor], batch.taps[0, :anchor])
        draft = served.propose(state, int(batch.ids[0, anchor]))
        ids = torch.cat((batch.ids[:1, : anchor + 1], draft.token_ids[None]), 1)
        logits = drafter(ids, batch.taps[:1, : anchor + 1 + 4], torch.tensor([[anchor]]), batch.table)[0, 0]
        assert torch.equal(draft.token_ids, logits.argmax(-1))
        scores = draft.lattice.edge_scores[:, 0]  # candidate 0 is the chain's at every depth
        torch.testing.assert_close(scores, logits.topk(16, dim=-1).values, atol=1e-3, rtol=1e-4)


def test_loss_is_the_weighted_mean_over_rows_that_exist(drafter: TrainEagle3, batch: DraftBatch) -> None:
    batch = replace(batch, anchors=torch.tensor([[1, 9, 17], [21, 22, 5]]))
    logits = drafter(batch.ids, batch.taps, batch.anchors, batch.table).double()
    wanted = F.linear(batch.hidden.double(), batch.table.double()).softmax(-1)
    total = mass = 0.0
    for row in range(2):
        for index, anchor in enumerate(batch.anchors[row].tolist()):
            for step in range(drafter.num_drafts):
                if anchor + step + 1 >= int(batch.ends[row]):
                    continue
                weight = float(torch.tensor(-step / 4.0).exp())
                total -= weight * float(
                    (wanted[row, anchor + step] * logits[row, index, step].log_softmax(-1)).sum()
                )
                mass += weight
    assert eagle3_losses(drafter, batch)["row"].item() == pytest.approx(total / mass, rel=1e-5)
