"""The trainable models are the models that are served, and a stopped training run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from specpilot.models.train import corpus
from specpilot.models.train.__main__ import corpus_arguments
from specpilot.models.train.answers import read_prompts, regenerate_answers
from specpilot.models.train.data import TokenStream
from specpilot.models.train.dflash2 import DFlash2Shape, TrainDFlash2
from specpilot.models.train.drafter import DraftBatch
from specpilot.models.train.dspark import DSparkShape, TrainDSpark
from specpilot.models.train.export import MAX_SHARD_BYTES, export_checkpoint
from specpilot.models.train.pretrain import pretrain
from specpilot.models.train.regenerate import regenerate
from specpilot.models.train.target import TrainTarget
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.dflash2 import load_dflash2
from specpilot.refengine.dspark import load_dspark
from specpilot.refengine.model import TargetModel, load_target
from specpilot.sampling import argmax_ids

CONFIG = TargetConfig(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_layers=4, full_attention_interval=4, num_heads=2,
    num_kv_heads=1, head_dim=32, rotary_dim=8, rope_theta=10_000.0, gdn_num_key_heads=1, gdn_num_value_heads=2,
    gdn_key_dim=16, gdn_value_dim=16, gdn_conv_size=4, norm_eps=1e-6, context_length=256, tie_word_embeddings=True,
    eos_ids=(2, 0),
)  # fmt: skip
SHAPE = DFlash2Shape(
    hidden_size=64, vocab_size=96, num_target_layers=4, mask_token_id=3, tap_outputs=(0, 2), num_layers=2, num_heads=2,
    num_kv_heads=1, head_dim=32, intermediate_size=64, block_size=8, top_k=16, selector_rank=8, context_length=256,
)  # fmt: skip

DSPARK_SHAPE = DSparkShape(
    hidden_size=64, vocab_size=96, num_target_layers=4, mask_token_id=3, tap_outputs=(0, 2), num_layers=2, num_heads=2,
    num_kv_heads=1, head_dim=32, intermediate_size=64, markov_rank=8, context_length=256,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_target() -> TrainTarget:
    """Random weights, spread far enough apart that the greedy choice is never close, BF16-exact as shipped ones are."""
    model = TrainTarget(CONFIG)
    model.initialise(5)
    for name, parameter in model.named_parameters():
        parameter.data.mul_(20.0 if "embed" in name else 1.0)
        parameter.data.copy_(parameter.data.bfloat16())
    return model


def first_row(length: int) -> torch.Tensor:
    starts = torch.zeros(1, length, dtype=torch.bool)
    starts[:, 0] = True
    return starts


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainTarget, TargetModel, Path]:
    folder = tmp_path_factory.mktemp("target")
    model = make_target()
    export_checkpoint(folder, CONFIG.to_json_dict(), model.state_dict(), None)
    return model, load_target(folder, mode="serve"), folder


def test_trained_target_is_the_served_target(exported: tuple[TrainTarget, TargetModel, Path]) -> None:
    model, served, _ = exported
    ids = torch.randint(0, 96, (1, 70), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        hidden, taps = model(ids, first_row(70), taps=(0, 2))
    out = served.forward(ids[0], served.new_state(128), taps=(0, 2))
    assert taps is not None
    torch.testing.assert_close(served.logits(out.hidden), model.logits(hidden)[0].detach(), atol=2e-4, rtol=0)
    torch.testing.assert_close(out.taps, taps[0], atol=2e-4, rtol=0)


def test_documents_in_a_row_do_not_see_each_other(exported: tuple[TrainTarget, TargetModel, Path]) -> None:
    model = exported[0]
    ids = torch.randint(0, 96, (1, 60), generator=torch.Generator().manual_seed(2))
    starts = first_row(60)
    starts[:, 23] = True
    with torch.no_grad():
        together, alone = model(ids, starts)[0][:, 23:], model(ids[:, 23:], first_row(37))[0]
        without_border = model(ids, first_row(60))[0][:, 23:]
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)
    assert (without_border - alone).abs().max() > 1e-2  # the border is what separates them


def test_regenerated_answers_are_the_greedy_answers(exported: tuple[TrainTarget, TargetModel, Path]) -> None:
    model, served, _ = exported
    prompts = [[5, 9, 30, 7, 7], [80, 11, 4, 33, 8, 60, 21, 6]]
    answers = regenerate(
        model,
        prompts,
        max_new_tokens=24,
        end_id=2,
        temperature=torch.zeros(2),
        generator=torch.Generator().manual_seed(0),
    )
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer is not None and answer[: len(prompt)] == prompt
        logits = served.logits(served.forward(torch.tensor(answer), served.new_state(128)).hidden)
        assert argmax_ids(logits)[len(prompt) - 1 : -1] == answer[len(prompt) :]
        assert len(answer) == len(prompt) + 24 or answer[-1] == 2


def test_trained_drafter_is_the_served_drafter(
    exported: tuple[TrainTarget, TargetModel, Path], tmp_path: Path
) -> None:
    model, served, _ = exported
    drafter = TrainDFlash2(SHAPE)
    drafter.initialise(3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            if (
                "kernel" in name or "successor" in name
            ):  # start values are no-ops, which would compare nothing
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
            parameter.copy_(parameter.bfloat16())
    export_checkpoint(tmp_path, SHAPE.config_dict(), drafter.state_dict(), None)
    loaded = load_dflash2(tmp_path, target=served)
    assert loaded.target_taps == SHAPE.tap_outputs
    ids = torch.randint(0, 96, (1, 40), generator=generator)
    anchors = torch.tensor([[9, 31]])
    with torch.no_grad():
        taps = model(ids, first_row(40), SHAPE.tap_outputs)[1]
        assert taps is not None
        out = drafter(ids, taps, anchors, model.model.embed_tokens.weight)
    for index, anchor in enumerate(anchors[0].tolist()):
        state = loaded.new_state(64)
        loaded.append_context(state, ids[0, :anchor], taps[0, :anchor])
        lattice = loaded.propose(state, int(ids[0, anchor])).lattice
        top, candidates = out.logits[0, index].topk(SHAPE.top_k, dim=-1)
        assert torch.equal(lattice.candidate_ids.sort(-1).values, candidates.sort(-1).values)
        pair = drafter.candidate_selector.pair_scores(out.hidden[0, index, 0], ids[0, anchor], candidates[0])
        expected = dict(zip(candidates[0].tolist(), (top[0] + pair).tolist(), strict=True))
        scores = dict(zip(lattice.candidate_ids[0].tolist(), lattice.edge_scores[0, 0].tolist(), strict=True))
        assert scores == pytest.approx(expected, abs=1e-3)


def test_trained_dspark_is_the_served_dspark(
    exported: tuple[TrainTarget, TargetModel, Path], tmp_path: Path
) -> None:
    model, served, _ = exported
    drafter = TrainDSpark(DSPARK_SHAPE)
    drafter.initialise(3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            if (
                "markov" in name or "confidence" in name
            ):  # start values are no-ops, which would compare nothing
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.5)
            parameter.copy_(parameter.bfloat16())
    export_checkpoint(tmp_path, drafter.config_dict(), drafter.state_dict(), None)
    loaded = load_dspark(tmp_path, target=served)
    assert loaded.target_taps == DSPARK_SHAPE.tap_outputs and loaded.block_size == drafter.num_drafts + 1
    ids = torch.randint(0, 96, (1, 40), generator=generator)
    anchors, ends = torch.tensor([[9, 31]]), torch.tensor([40])
    with torch.no_grad():
        hidden, taps = model(ids, first_row(40), DSPARK_SHAPE.tap_outputs)
        assert taps is not None
        table = model.model.embed_tokens.weight
        batch = DraftBatch(ids, taps, hidden, anchors, ends, table)
        chains, (rows, _) = drafter.greedy_chains(batch), drafter(ids, taps, anchors, table)
        before = torch.cat((ids.gather(1, anchors)[..., None], chains[..., :-1]), -1)
        features = drafter.markov_head.markov_w1(before)
        survival = drafter.confidence_head(rows, features).sigmoid().cumprod(-1)
    for index, anchor in enumerate(anchors[0].tolist()):
        state = loaded.new_state(64)
        loaded.append_context(state, ids[0, :anchor], taps[0, :anchor])
        draft = loaded.propose(state, int(ids[0, anchor]))
        assert torch.equal(draft.token_ids, chains[0, index])
        torch.testing.assert_close(draft.survival, survival[0, index], atol=1e-4, rtol=0)


def write_corpus(folder: Path) -> None:
    """A counting language: after n comes n + 1, so that a few steps of training show."""
    line = [*range(10, 90), 0]
    np.array(line * 60, dtype="<u2").tofile(folder / "train.bin")
    np.array(line * 10, dtype="<u2").tofile(folder / "valid.bin")


def run_pretraining(corpus: Path, out: Path, time_limit_s: float) -> TrainTarget | None:
    return pretrain(
        CONFIG,
        corpus,
        out,
        end_id=0,
        steps=6,
        rows=2,
        length=48,
        peak_lr=3e-3,
        seed=1,
        time_limit_s=time_limit_s,
        is_fitted=False,
        device="cpu",
    )


def test_pretraining_learns_and_goes_on_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path)
    whole = run_pretraining(tmp_path, tmp_path / "whole", 600.0)
    assert whole is not None
    losses = [
        json.loads(line)["valid_loss"]
        for line in (tmp_path / "whole" / "pretrain.jsonl").read_text().splitlines()
    ]
    assert losses[-1] < losses[0]
    # Stop after three steps: the clock jumps when the fourth asks whether there is time left.
    from specpilot.models.train.schedule import Progress

    asked = iter([False] * 3 + [True])
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "is_out_of_time", property(lambda self: next(asked)))
        assert run_pretraining(tmp_path, tmp_path / "parts", 600.0) is None
    resumed = run_pretraining(tmp_path, tmp_path / "parts", 600.0)
    assert resumed is not None
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_rows_begin_where_documents_begin() -> None:
    stream = TokenStream(np.array([5, 6, 7, 0] * 200, dtype=np.uint16), end_id=0)
    ids, labels, starts = stream.batch(8, 32, np.random.default_rng(0))
    assert (ids[:, 0] == 5).all() and starts[:, 0].all()
    assert torch.equal(ids[:, 1:], labels[:, :-1])
    assert torch.equal(starts[:, 1:], ids[:, :-1] == 0)


def test_export_keeps_shards_small(tmp_path: Path) -> None:
    tensors = {f"layer.{index}": torch.full((1024, 1024), float(index)) for index in range(14)}
    export_checkpoint(tmp_path, {}, tensors, None)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) == 3 and all(file.stat().st_size <= MAX_SHARD_BYTES + 4096 for file in files)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(tensors)


def test_prompts_round_trip_and_long_ones_are_left_out(tmp_path: Path) -> None:
    prompts = [[5, 6, 7], [9] * 60, [8, 8]]
    offsets = np.cumsum([0, *map(len, prompts)]).astype(np.uint32)
    np.savez(tmp_path / "p.npz", ids=np.concatenate(prompts).astype(np.uint16), offsets=offsets)
    assert read_prompts(tmp_path / "p.npz") == prompts

    def answer(passes: int) -> list[tuple[int, list[int]]]:
        answers = regenerate_answers(
            make_target(), prompts, tmp_path / "a.npz", end_id=2, length=40, max_new_tokens=20, greedy_share=1.0,
            temperature=1.0, passes=passes, rows=2, seed=0, time_limit_s=600.0, device="cpu",
        )  # fmt: skip
        return list(zip(answers.begins.tolist(), answers.ids.tolist(), strict=True))

    once, twice = answer(1), answer(2)
    assert once and len(twice) > len(once)
    for begin, ids in once + twice:
        assert ids[:begin] in ([5, 6, 7], [8, 8])
    # Of two answers to a prompt the first is greedy and the other one is not.
    assert all(found in twice for found in once) and any(found not in once for found in twice)


@pytest.mark.parametrize("empty", [0, 1])
def test_every_exclusion_file_reaches_the_corpus_builder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], empty: int
) -> None:
    """The builder refuses a file without text by its name, before it reads anything else."""
    files = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for index, file in enumerate(files):
        file.write_text(
            "" if index == empty else '{"prompt": "How many rivers are there?"}', encoding="utf-8"
        )
    (tmp_path / "docs").mkdir()
    arguments = corpus_arguments(tmp_path, None, files, tmp_path / "out")
    assert corpus.main([*arguments, "--docs", str(tmp_path / "docs")]) == 2
    assert f"{files[empty]} has no text" in capsys.readouterr().err
