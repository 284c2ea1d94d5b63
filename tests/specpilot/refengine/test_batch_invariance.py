"""Several sequences in one forward: every row keeps, bit for bit, what it has alone, whoever joins and leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specpilot.engines.base import NumericMode
from specpilot.refengine.dense import load_dense
from specpilot.refengine.model import TargetModel
from specpilot.refengine.state import SequenceState, commit_rows
from specpilot.refengine.target import Target
from specpilot_kernels import cpu_jit, cpu_pool
from tests.specpilot.refengine.random_dense import save_random
from tests.specpilot.refengine.random_target import SMALL, UNTIED, random_tensors

CONFIGS = {"tied": SMALL, "untied": UNTIED}
MAX_TOKENS = 200
TAPS = (0, 2)


@pytest.fixture(scope="module", params=[1, 2], ids="{} threads".format)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Kernels share their work between so many threads, however little it is."""
    if request.param > cpu_jit.max_threads():
        pytest.skip(f"{cpu_jit.max_threads()} CPUs run no {request.param} threads")
    before, limit = cpu_jit.num_threads(), cpu_pool.SHARE_FROM
    cpu_jit.set_num_threads(request.param)
    cpu_pool.SHARE_FROM = 0
    yield request.param
    cpu_jit.set_num_threads(before)
    cpu_pool.SHARE_FROM = limit


@pytest.fixture(scope="module", params=["tied-judge", "tied-serve", "untied-judge", "gemma3-judge"])
def model(request: pytest.FixtureRequest, threads: int, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """Gated DeltaNet and attention in two proportions, and a dense target with windows."""
    name, chosen = request.param.split("-")
    mode: NumericMode = chosen
    if name == "gemma3":
        folder = tmp_path_factory.mktemp(name)
        save_random(folder, name)
        return load_dense(folder, mode=mode)
    return TargetModel(CONFIGS[name], random_tensors(CONFIGS[name]), mode)


@dataclass
class Stream:
    """A sequence that is fed alone, one token at a time, and in batches."""

    ids: Tensor
    alone: tuple[Tensor, Tensor, Tensor]
    state: SequenceState
    rows: list[tuple[Tensor, Tensor, Tensor]]

    @property
    def left(self) -> int:
        return len(self.ids) - self.state.num_tokens


def run_alone(model: Target, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    state, parts = model.new_state(MAX_TOKENS), []
    for token in ids:
        out = model.forward(token[None], state, taps=TAPS)
        state.commit(1)
        parts.append((out.hidden, out.taps, model.logits(out.hidden)))
    hidden, taps, logits = (torch.cat(part) for part in zip(*parts, strict=True))
    return hidden, taps, logits


def make_streams(model: Target, lengths: list[int]) -> list[Stream]:
    streams = []
    for seed, length in enumerate(lengths):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(model.config.vocab_size, (length,), generator=generator)
        streams.append(Stream(ids, run_alone(model, ids), model.new_state(MAX_TOKENS), []))
    return streams


def step(model: Target, parts: list[tuple[Stream, int, int, bool]]) -> None:
    """One batch: of every stream so many rows, of which a prefix is right and committed."""
    ids = []
    for stream, num_rows, num_kept, is_decided in parts:
        begin = stream.state.num_tokens
        block = stream.ids[begin : begin + num_rows].clone()
        block[num_kept:] = (block[num_kept:] + 1) % model.config.vocab_size
        stream.state.open_rows(num_rows, is_decided=is_decided)
        ids.append(block)
    out = model.forward_batch(torch.cat(ids), [stream.state for stream, *_ in parts], taps=TAPS)
    logits = model.logits(out.hidden)
    sizes = [num_rows for _, num_rows, _, _ in parts]
    split = zip(out.hidden.split(sizes), out.taps.split(sizes), logits.split(sizes), strict=True)
    for (stream, _, num_kept, _), results in zip(parts, split, strict=True):
        stream.rows.append(tuple(result[:num_kept] for result in results))
    commit_rows([stream.state for stream, *_ in parts], [num_kept for _, _, num_kept, _ in parts])


def assert_bits_of_alone(streams: list[Stream]) -> None:
    for stream in streams:
        for got, expected in zip(zip(*stream.rows, strict=True), stream.alone, strict=True):
            joined = torch.cat(got)
            assert torch.equal(joined, expected[: len(joined)])


def test_plain_and_verify_rows_and_prompts_in_one_batch(model: Target) -> None:
    """Eight streams: prompts of different lengths while others decode plainly or verify 2 to 8 rows."""
    streams = make_streams(model, [40, 60, 30, 90, 45, 70, 25, 50])
    generator = torch.Generator().manual_seed(0)
    while any(stream.left for stream in streams):
        parts = []
        for index, stream in enumerate(streams):
            if not stream.left:
                continue
            if stream.state.num_tokens < len(stream.ids) // 2:  # a piece of the prompt
                num_rows = min(5 + 4 * index, stream.left)
                parts.append((stream, num_rows, num_rows, True))
            elif index % 2:
                parts.append((stream, 1, 1, True))
            else:
                num_rows = min(1 + index, stream.left)
                num_kept = int(torch.randint(0, num_rows + 1, (), generator=generator))
                parts.append((stream, num_rows, num_kept, False))
        step(model, parts)
    assert all(sum(len(rows[0]) for rows in stream.rows) == len(stream.ids) for stream in streams)
    assert_bits_of_alone(streams)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_company_changes_no_bit(model: Target, data: st.DataObject) -> None:
    streams = make_streams(model, data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=5)))
    for _ in range(data.draw(st.integers(1, 8))):
        parts = []
        for stream in data.draw(st.permutations([stream for stream in streams if stream.left])):
            if data.draw(st.booleans()):
                num_rows = data.draw(st.integers(1, min(9, stream.left)))
                is_decided = data.draw(st.booleans())
                num_kept = num_rows if is_decided else data.draw(st.integers(0, num_rows))
                parts.append((stream, num_rows, num_kept, is_decided))
        if parts:
            step(model, parts)
    assert_bits_of_alone([stream for stream in streams if stream.rows])


def test_another_sequences_state_would_show(model: Target) -> None:
    """The comparison can fail: rows that are run on the state of their neighbour."""
    one, other = make_streams(model, [12, 12])
    step(model, [(one, 6, 6, True), (other, 6, 6, True)])
    one.state, other.state = other.state, one.state
    step(model, [(one, 6, 6, True), (other, 6, 6, True)])
    with pytest.raises(AssertionError):
        assert_bits_of_alone([one, other])
