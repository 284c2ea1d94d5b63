"""A sequence's state: what a commit leaves, how memory grows, what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.errors import ConfigError, EngineError, RequestError
from specpilot.refengine.model import TargetModel
from specpilot_kernels.chain_attention.memory import KV_BLOCK_TOKENS
from tests.specpilot.refengine.random_target import SMALL, random_tensors


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["serve", "judge"])
def model(request: pytest.FixtureRequest) -> TargetModel:
    mode: NumericMode = request.param
    return TargetModel(SMALL, random_tensors(SMALL), mode)


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(SMALL.vocab_size, (200,), generator=torch.Generator().manual_seed(1))


def next_hidden(model: TargetModel, ids: Tensor, num_run: int, num_kept: int) -> Tensor:
    """Run ``num_run`` rows after 5 committed ones, keep the first ``num_kept``, then show the next row's
    hidden."""
    state = model.new_state(250)
    model.forward(ids[:5], state)
    state.commit(5)
    model.forward(ids[5 : 5 + num_run], state)
    assert state.num_pending == num_run
    state.commit(num_kept)
    assert (state.num_tokens, state.num_pending) == (5 + num_kept, 0)
    return model.forward(torch.tensor([7]), state).hidden


@pytest.mark.parametrize(
    ("num_run", "num_kept"),
    [(1, 1), (1, 0), (8, 3), (8, 8), (8, 0), (16, 16), (17, 16), (100, 1), (100, 64), (130, 65), (130, 129)],
)
def test_a_commit_leaves_what_the_kept_rows_alone_leave(
    model: TargetModel, ids: Tensor, num_run: int, num_kept: int
) -> None:
    state = model.new_state(250)
    for token in ids[: 5 + num_kept]:
        model.forward(token[None], state)
        state.commit(1)
    expected = model.forward(torch.tensor([7]), state).hidden
    got = next_hidden(model, ids, num_run, num_kept)
    assert torch.equal(got, expected)


def test_one_row_more_or_less_would_show(model: TargetModel, ids: Tensor) -> None:
    kept = [next_hidden(model, ids, 100, num_kept) for num_kept in (63, 64, 65)]
    assert (kept[0] - kept[1]).abs().max() > 1e-2
    assert (kept[2] - kept[1]).abs().max() > 1e-2


def test_earlier_outputs_survive_later_steps(model: TargetModel, ids: Tensor) -> None:
    state = model.new_state(50)
    out = model.forward(ids[:8], state, taps=(0, 3))
    hidden, taps = out.hidden.clone(), out.taps.clone()
    state.commit(8)
    model.forward(ids[8:16], state, taps=(0, 3))
    assert torch.equal(out.hidden, hidden) and torch.equal(out.taps, taps)


def test_two_sequences_do_not_meet(model: TargetModel, ids: Tensor) -> None:
    one, other = model.new_state(50), model.new_state(50)
    for state, rows in ((one, ids[:9]), (other, ids[20:30])):
        model.forward(rows, state)
        state.commit(len(rows))
    mixed = model.forward(ids[9:10], one).hidden
    alone = model.new_state(50)
    model.forward(ids[:9], alone)
    alone.commit(9)
    assert torch.equal(model.forward(ids[9:10], alone).hidden, mixed)


def test_memory_grows_in_blocks_up_to_the_limit(model: TargetModel) -> None:
    state = model.new_state(1000)
    fixed = state.memory_bytes - KV_BLOCK_TOKENS * token_bytes()
    recurrent = 3 * 128 * 256 * 4
    conv = 3 * 3 * 512 * 4
    assert fixed == recurrent + conv
    seen = []
    while state.num_tokens < 1000:
        rows = min(64, 1000 - state.num_tokens)
        state.open_rows(rows, is_decided=True)  # keeps nothing pending
        model.forward_batch(torch.zeros(rows, dtype=torch.int64), [state])
        state.commit(rows)
        seen.append((state.memory_bytes - fixed) // token_bytes())
    assert sorted(set(seen)) == [256, 512, 1000]
    assert all(capacity >= 64 * (step + 1) for step, capacity in enumerate(seen[:-1]))


def token_bytes() -> int:
    """Keys and values of one token in the one attention layer."""
    return 2 * SMALL.num_kv_heads * SMALL.head_dim * 4


def test_a_small_sequence_takes_a_small_buffer(model: TargetModel) -> None:
    difference = model.new_state(100).memory_bytes - model.new_state(10).memory_bytes
    assert difference == 90 * token_bytes()


def test_limits_are_refused(model: TargetModel, ids: Tensor) -> None:
    for max_tokens in (0, SMALL.context_length + 1):
        with pytest.raises(RequestError, match=f"got {max_tokens}, expected 1 to 1024"):
            model.new_state(max_tokens)
    state = model.new_state(10)
    model.forward(ids[:8], state)
    state.commit(8)
    with pytest.raises(RequestError, match="got 3 after 8 tokens, expected 1 to 2") as caught:
        model.forward(ids[:3], state)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(RequestError, match="got 0 after 8 tokens"):
        model.forward(ids[:0], state)
    model.forward(ids[8:10], state)
    state.commit(2)
    assert state.num_tokens == 10


def test_misuse_is_refused(model: TargetModel, ids: Tensor) -> None:
    state = model.new_state(20)
    model.forward(ids[:4], state)
    with pytest.raises(EngineError, match="4 rows are pending"):
        model.forward(ids[4:5], state)
    for num_rows in (-1, 5):
        with pytest.raises(EngineError, match=f"got {num_rows} rows, expected 0 to 4"):
            state.commit(num_rows)
    state.commit(4)
    with pytest.raises(EngineError, match="got layer 4, expected 0 to 3"):
        model.forward(ids[4:5], state, taps=(4,))
    assert state.num_pending == 0
    state.open_rows(3, is_decided=True)
    with pytest.raises(EngineError, match="got 2 rows, expected 3 to 3"):
        state.commit(2)
    with pytest.raises(EngineError, match="got 2, expected 3, the opened rows"):
        model.forward_batch(ids[:2], [state])
    with pytest.raises(EngineError, match="opened rows of all sequences"):
        model.forward_batch(ids[:3], [state, model.new_state(5)])


@pytest.mark.parametrize("bad_id", [-1, SMALL.vocab_size])
def test_ids_outside_the_vocabulary_leave_the_state_as_it_was(
    model: TargetModel, ids: Tensor, bad_id: int
) -> None:
    state = model.new_state(200)
    model.forward(ids[:4], state)
    state.commit(4)
    rows = ids[:40].clone()
    rows[30] = bad_id
    with pytest.raises(RequestError, match=rf"token ids: .*{bad_id}.*expected 0 to 299"):
        model.forward(rows, state)
    assert (state.num_tokens, state.num_pending) == (4, 0)
    model.forward(ids[4:8], state)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 'fast', expected 'judge' or 'serve'"):
        TargetModel(SMALL, random_tensors(SMALL), "fast")  # type: ignore[arg-type]
