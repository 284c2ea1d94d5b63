"""Dense targets: a row's bits depend on its tokens alone, and speculation changes no token, in both modes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.refengine.dense import DenseModel, load_dense
from specpilot.refengine.layered import TargetOutput
from tests.oracles.noisy_drafter import NoisyDrafter
from tests.specpilot.refengine.decoding import decode
from tests.specpilot.refengine.random_dense import save_muse_glimmer, save_random

NAMES = ("llama", "qwen3 with a window", "gemma3", "muse_glimmer")
NUM_PROMPT, NUM_TOKENS = 40, 120


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dense")
    if request.param == "muse_glimmer":
        save_muse_glimmer(path)
    else:
        save_random(path, request.param)
    return path


@pytest.fixture(scope="module", params=["judge", "serve"])
def model(request: pytest.FixtureRequest, folder: Path) -> DenseModel:
    return load_dense(folder, mode=request.param)


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(300, (NUM_TOKENS,), generator=torch.Generator().manual_seed(5))


def run(model: DenseModel, ids: Tensor, sizes: list[int]) -> Tensor:
    """Logits, blocks of the given sizes, the head on each block's rows."""
    state = model.new_state(NUM_TOKENS)
    logits = []
    for block in ids.split(sizes):
        logits.append(model.logits(model.forward(block, state).hidden))
        state.commit(len(block))
    return torch.cat(logits)


@pytest.fixture(scope="module")
def one_by_one(model: DenseModel, ids: Tensor) -> Tensor:
    return run(model, ids, [1] * NUM_TOKENS)


@pytest.mark.parametrize("sizes", [[120], [40, 8, 8, 64], [7] * 17 + [1], [3, 100, 2, 15]])
def test_how_a_sequence_is_cut_changes_no_bit(
    model: DenseModel, ids: Tensor, one_by_one: Tensor, sizes: list[int]
) -> None:
    assert torch.equal(run(model, ids, sizes), one_by_one)


@pytest.mark.parametrize("seed", range(3))
def test_rejected_rows_leave_no_trace(model: DenseModel, ids: Tensor, one_by_one: Tensor, seed: int) -> None:
    """Verify steps of up to 8 rows, wrong tokens behind the accepted prefix."""
    generator = torch.Generator().manual_seed(seed)
    state = model.new_state(NUM_TOKENS)
    rows = [model.forward(ids[:NUM_PROMPT], state).hidden]
    state.commit(NUM_PROMPT)
    while state.num_tokens < NUM_TOKENS:
        num_rows = min(int(torch.randint(1, 9, (), generator=generator)), NUM_TOKENS - state.num_tokens)
        num_kept = int(torch.randint(0, num_rows + 1, (), generator=generator))
        block = ids[state.num_tokens :][:num_rows].clone()
        block[num_kept:] = (block[num_kept:] + 1) % 300
        rows.append(model.forward(block, state).hidden[:num_kept])
        state.commit(num_kept)
    assert torch.equal(model.logits(torch.cat(rows)), one_by_one)


def test_both_modes_have_the_same_bits(folder: Path, ids: Tensor) -> None:
    judge, serve = (run(load_dense(folder, mode=mode), ids, [50, 70]) for mode in modes())
    assert torch.equal(judge, serve)


def modes() -> tuple[NumericMode, NumericMode]:
    return "judge", "serve"


@pytest.mark.parametrize("share_right", [0.0, 0.7, 1.0])
def test_ids_are_equal_with_and_without_speculation(
    model: DenseModel, ids: Tensor, share_right: float
) -> None:
    """A drafter that is right by and large, wrong now and then: whatever it says, the tokens are the target's."""
    prompt = ids[:NUM_PROMPT].tolist()
    plain = decode(model, None, prompt, 60)[0]
    assert len(set(plain)) > 4  # a target that says one thing for ever proves little
    drafter = NoisyDrafter([*prompt, *plain], share_right)
    assert decode(model, drafter, prompt, 60)[0] == plain
    assert drafter.num_right > 0 or share_right == 0


def test_a_target_that_sees_its_company_is_caught(
    model: DenseModel, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of tokens can fail: rows that lean on the rows beside them decode otherwise in company."""
    prompt = ids[:NUM_PROMPT].tolist()
    plain = decode(model, None, prompt, 60)[0]
    forward = model.forward_batch

    def leaning(*arguments: object, **named: object) -> TargetOutput:
        out = forward(*arguments, **named)  # type: ignore[arg-type]
        return TargetOutput(out.hidden + 0.5 * (out.hidden.mean(0) - out.hidden), out.taps)

    monkeypatch.setattr(model, "forward_batch", leaning)
    assert decode(model, NoisyDrafter([*prompt, *plain], 0.7), prompt, 60)[0] != plain
