"""Drafters learn what the target would answer; a stopped run goes on; losses that are no numbers stop it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.draft import Drafter
from specpilot.errors import SpecPilotError
from specpilot.models.drafters import load_drafter
from specpilot.models.train.answers import Answers
from specpilot.models.train.dflash2 import DFlash2Shape, TrainDFlash2
from specpilot.models.train.draft_training import accept_length, make_batch, train_drafter
from specpilot.models.train.drafter import DraftBatch, TrainableDrafter, labels
from specpilot.models.train.dspark import DSparkShape, TrainDSpark
from specpilot.models.train.eagle3 import Eagle3Shape, TrainEagle3
from specpilot.models.train.export import export_checkpoint
from specpilot.models.train.objectives import (
    dflash2_losses,
    dspark_losses,
    eagle3_losses,
    row_weights,
    weighted_mean,
)
from specpilot.models.train.schedule import Progress
from specpilot.models.train.target import TrainTarget
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.model import TargetModel, load_target
from specpilot.sampling import argmax_ids
from specpilot.verify import verify_greedy

CONFIG = TargetConfig(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_layers=4, full_attention_interval=4, num_heads=2,
    num_kv_heads=1, head_dim=32, rotary_dim=8, rope_theta=10_000.0, gdn_num_key_heads=1, gdn_num_value_heads=2,
    gdn_key_dim=16, gdn_value_dim=16, gdn_conv_size=4, norm_eps=1e-6, context_length=256, tie_word_embeddings=True,
    eos_ids=(2, 0),
)  # fmt: skip
BLOCK: dict[str, Any] = dict(
    hidden_size=64, vocab_size=96, num_target_layers=4, mask_token_id=3, tap_outputs=(0, 2), num_layers=2, num_heads=2,
    num_kv_heads=1, head_dim=32, intermediate_size=64, context_length=256,
)  # fmt: skip
CHAIN = {name: value for name, value in BLOCK.items() if name not in ("mask_token_id", "num_layers")}


@dataclass(frozen=True)
class Kind:
    make: Callable[[], TrainableDrafter]
    losses_of: Callable[[Any, DraftBatch], dict[str, Tensor]]


KINDS = {
    "dflash2": Kind(lambda: TrainDFlash2(DFlash2Shape(**BLOCK, selector_rank=8)), dflash2_losses),
    "dspark": Kind(lambda: TrainDSpark(DSparkShape(**BLOCK, markov_rank=8)), dspark_losses),
    "eagle3": Kind(lambda: TrainEagle3(Eagle3Shape(**CHAIN)), eagle3_losses),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def counting_answers() -> Answers:
    """After n comes n + 1: a language that a few steps of training show."""
    ids = (torch.arange(24) + torch.arange(40)[:, None]) % 80 + 10
    return Answers(ids, torch.full((40,), 4), torch.full((40,), 24))


@pytest.fixture(scope="module")
def counting_target() -> TrainTarget:
    """A target that speaks the language: DSpark learns the target's law, not only its answers."""
    model = TrainTarget(CONFIG)
    model.initialise(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    draw, ids = torch.Generator().manual_seed(0), counting_answers().ids
    starts = torch.zeros(8, 24, dtype=torch.bool)
    starts[:, 0] = True
    for _ in range(80):
        rows = ids[torch.randperm(40, generator=draw)[:8]]
        logits = model.logits(model(rows, starts)[0])[:, :-1]
        torch.autograd.backward(F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
        optimizer.step()
        optimizer.zero_grad()
    assert (logits.argmax(-1) == rows[:, 1:]).float().mean() > 0.95
    return model


@pytest.fixture
def target(counting_target: TrainTarget) -> TrainTarget:
    return copy.deepcopy(counting_target).requires_grad_(False)


def batch_of(drafter: TrainableDrafter, target: TrainTarget, anchors: int = 5) -> DraftBatch:
    draw = torch.Generator().manual_seed(3)
    return make_batch(drafter.tap_outputs, target, counting_answers().by_length(), 4, anchors, draw)


def train(kind: Kind, target: TrainTarget, folder: Path, steps: int, peak_lr: float = 5e-3) -> Any:
    return train_drafter(
        kind.make(), kind.losses_of, target, counting_answers(), folder / "drafter.jsonl", steps=steps, sequences=8,
        anchors=4, peak_lr=peak_lr, seed=0, time_limit_s=600.0, is_fitted=False, device="cpu",
    )  # fmt: skip


def test_answers_come_back_from_their_file(tmp_path: Path) -> None:
    answers = counting_answers()
    answers.save(tmp_path / "answers.npz")
    loaded = Answers.load(tmp_path / "answers.npz", "cpu")
    for name in ("ids", "begins", "ends"):
        assert torch.equal(getattr(loaded, name), getattr(answers, name))


def test_a_drafter_learns_the_counting_language(kind: Kind, target: TrainTarget, tmp_path: Path) -> None:
    untrained = kind.make()
    untrained.initialise(0)
    before = accept_length(untrained, target, counting_answers(), 0)
    trained = train(kind, target, tmp_path, steps=60)
    assert accept_length(trained, target, counting_answers(), 0) > before + 1.0
    rows = [json.loads(line) for line in (tmp_path / "drafter.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 50, 59]
    assert rows[-1]["row_loss"] < rows[0]["row_loss"] and rows[-1]["tau"] > rows[0]["tau"]


def test_a_stopped_run_goes_on_where_it_was(
    kind: Kind, target: TrainTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(kind, target, tmp_path, steps=6)
    (tmp_path / "parts").mkdir()
    asked = iter([False] * 3 + [True])
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "is_out_of_time", property(lambda self: next(asked)))
        assert train(kind, target, tmp_path / "parts", steps=6) is None
    resumed = train(kind, target, tmp_path / "parts", steps=6)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_a_batch_without_rows_costs_nothing_and_moves_nothing(kind: Kind, target: TrainTarget) -> None:
    drafter = kind.make()
    drafter.initialise(0)
    batch = batch_of(drafter, target)
    empty = replace(batch, ends=torch.zeros_like(batch.ends))
    losses = kind.losses_of(drafter, empty)
    assert all(loss.item() == 0.0 for loss in losses.values())
    torch.stack([*losses.values()]).sum().backward()
    assert all(not parameter.grad.any() for parameter in drafter.parameters() if parameter.grad is not None)
    assert all(loss.item() > 0.0 for loss in kind.losses_of(drafter, batch).values())


def test_a_loss_that_is_no_number_stops_the_run(kind: Kind, target: TrainTarget, tmp_path: Path) -> None:
    target.model.embed_tokens.weight.data[50] = float("nan")
    with pytest.raises(
        SpecPilotError, match=r"training step 0: the gradient's norm is nan, expected a finite"
    ):
        train(kind, target, tmp_path, steps=2)
    assert not (tmp_path / "drafter.state").exists()


def test_greedy_chains_stop_counting_at_the_first_wrong_token(kind: Kind, target: TrainTarget) -> None:
    """tau against a loop over anchors."""
    drafter, answers = train_briefly(kind, target), counting_answers()
    draw, total, count = torch.Generator().manual_seed(7), 0, 0
    for _ in range(4):
        batch = make_batch(drafter.tap_outputs, target, answers, 64, 32, draw)
        chains = drafter.greedy_chains(batch)
        for row, column in torch.cartesian_prod(*map(torch.arange, batch.anchors.shape)).tolist():
            anchor, length = int(batch.anchors[row, column]), 0
            for depth, token in enumerate(chains[row, column].tolist()):
                place = anchor + 1 + depth
                if place >= int(batch.ends[row]) or token != int(batch.ids[row, place]):
                    break
                length += 1
            total, count = total + length, count + 1
    assert 0 < total < count * drafter.num_drafts
    assert accept_length(drafter, target, answers, 7) == pytest.approx(total / count + 1)


def train_briefly(kind: Kind, target: TrainTarget) -> TrainableDrafter:
    drafter = kind.make()
    drafter.initialise(0)
    optimizer = torch.optim.Adam(drafter.parameters(), lr=5e-3)
    for _ in range(25):
        torch.stack([*kind.losses_of(drafter, batch_of(drafter, target)).values()]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return drafter


def decode(target: TargetModel, drafter: Drafter, prompt: list[int], width: int) -> tuple[list[int], int]:
    """Greedy answer of 20 tokens, as long as training saw, drafting ``width`` tokens a step -> tokens, steps."""
    state, draft_state = target.new_state(128), drafter.new_state(128)
    ids, tokens, steps = torch.tensor(prompt), list[int](), 0
    num_kept = len(prompt) - 1
    with torch.inference_mode():
        while len(tokens) < 20:
            out = target.forward(ids, state, taps=drafter.target_taps)
            if steps:
                verified = verify_greedy(ids[1:], torch.tensor(argmax_ids(target.logits(out.hidden))))
                num_kept = verified.num_correct_drafts
            bonus = argmax_ids(target.logits(out.hidden[num_kept : num_kept + 1]))[0]
            state.commit(num_kept + 1)
            drafter.append_context(draft_state, ids[: num_kept + 1], out.taps[: num_kept + 1])
            tokens += [*ids[1 : num_kept + 1].tolist(), bonus] if steps else [bonus]
            ids, steps = torch.tensor([bonus]), steps + 1
            if width:
                ids = torch.cat((ids, drafter.propose(draft_state, bonus, num_positions=width).token_ids))
    return tokens[:20], steps


def test_a_trained_drafter_is_fast_and_changes_no_token(
    kind: Kind, target: TrainTarget, tmp_path: Path
) -> None:
    """Train, export, load, decode in judge mode."""
    export_checkpoint(tmp_path / "target", CONFIG.to_json_dict(), target.state_dict(), None)
    served = load_target(tmp_path / "target", mode="judge")
    (tmp_path / "run").mkdir()
    trained = train(kind, target, tmp_path / "run", steps=150)
    export_checkpoint(tmp_path / "drafter", trained.config_dict(), trained.state_dict(), None)
    drafter = load_drafter(tmp_path / "drafter", target=served)
    for prompt, is_familiar in (([20, 21, 22, 23], True), ([35, 36, 37, 38], True), ([70, 71, 30, 9], False)):
        (plain, num_plain), (drafted, num_drafted) = (
            decode(served, drafter, prompt, width) for width in (0, 7)
        )
        assert drafted == plain
        assert num_drafted < num_plain / 2 or not is_familiar


def test_dspark_losses_are_their_definition(target: TrainTarget) -> None:
    """Against a loop over the rows that exist, in float64."""
    drafter = train_briefly(KINDS["dspark"], target)
    assert isinstance(drafter, TrainDSpark)
    batch = batch_of(drafter, target)
    batch = replace(batch, anchors=torch.tensor([[4, 22], [9, 20], [18, 19], [5, 21]]))
    with torch.no_grad():
        hidden, base = drafter(batch.ids, batch.taps, batch.anchors, batch.table)
        found = dspark_losses(drafter, batch)
    drafter.requires_grad_(False)
    w1, w2 = drafter.markov_head.markov_w1.weight.double(), drafter.markov_head.markov_w2.weight.double()
    proj = drafter.confidence_head.proj
    sums, mass = dict.fromkeys(found, 0.0), 0.0
    for row in range(4):
        for column in range(2):
            for depth in range(7):
                place = int(batch.anchors[row, column]) + depth
                if place + 1 >= int(batch.ends[row]):
                    continue
                weight = float(torch.tensor(-depth / 4.0).exp())
                before = w1[batch.ids[row, place]]
                draft = (base[row, column, depth].double() + w2 @ before).softmax(-1)
                truth = (batch.table.double() @ batch.hidden[row, place].double()).softmax(-1)
                features = torch.cat((hidden[row, column, depth].double(), before))
                confidence = (proj.weight[0].double() @ features + proj.bias[0].double()).sigmoid()
                distance = (draft - truth).abs().sum()
                accept = torch.minimum(draft, truth).sum()
                mass += weight
                sums["row"] -= 1.0 * weight * float(draft[batch.ids[row, place + 1]].log())
                sums["distance"] += 0.5 * weight * float(distance)
                sums["confidence"] -= (
                    0.5 * weight * float(accept * confidence.log() + (1 - accept) * (1 - confidence).log())
                )
    for name, loss in found.items():
        assert loss.item() == pytest.approx(sums[name] / mass, rel=1e-4), name


def test_row_weights_and_means() -> None:
    weights = row_weights(torch.tensor([[True, True, False]]))
    assert weights[0].tolist() == pytest.approx([1.0, 0.7788008, 0.0])
    assert float(weighted_mean(torch.tensor([[2.0, 4.0, 9.0]]), weights)) == pytest.approx(
        5.1152032 / 1.7788008
    )


def test_labels_stop_at_the_end() -> None:
    tokens, exists = labels(torch.arange(10)[None], torch.tensor([[2, 7]]), torch.tensor([9]), 3)
    assert tokens.tolist() == [[[2, 3, 4, 5], [7, 8, 9, 9]]]
    assert exists.tolist() == [[[True, True, True], [True, False, False]]]
