"""The drafter against the oracle, and what its state promises."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from specpilot.draft import Draft, Drafter
from specpilot.errors import EngineError
from specpilot.refengine import block_backbone
from specpilot.refengine.dflash2 import DFlash2Drafter, load_dflash2
from specpilot.refengine.numerics import Projection
from tests.oracles import sglang_dflash2 as oracle
from tests.oracles.random_dflash2 import TinyTarget, make_config, make_tensors, write_checkpoint

MASK = 7


class Case:
    """A random checkpoint on disk, its loaded drafter, and random taps."""

    def __init__(self, folder, *, seed=0, dflash=None, **changes) -> None:
        self.config = make_config(dflash, **changes)
        self.tensors = make_tensors(self.config, seed)
        self.target = TinyTarget(self.config, seed + 1)
        path = write_checkpoint(folder, self.config, self.tensors)
        self.drafter: DFlash2Drafter = load_dflash2(path, target=self.target)
        self.generator = torch.Generator().manual_seed(seed + 2)

    def taps(self, length: int) -> Tensor:
        width = len(self.drafter.target_taps) * self.config["hidden_size"]
        return torch.randn(length, width, generator=self.generator) * 3.0

    def draft(self, taps: Tensor, anchor: int, chunks: list[int], **options) -> Draft:
        state = self.drafter.new_state(taps.shape[0])
        for chunk in taps.split(chunks):
            self.drafter.append_context(state, torch.zeros(chunk.shape[0], dtype=torch.int64), chunk)
        assert state.num_tokens == taps.shape[0]
        return self.drafter.propose(state, anchor, **options)

    def expected(self, taps: Tensor, anchor: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        block = torch.tensor([[anchor] + [MASK] * (rows - 1)])
        hidden = oracle.block_hidden(self.config, self.tensors, self.target.table, taps[None], block)
        candidates, scores = oracle.build_lattice(
            self.config, self.tensors, self.target.table, hidden[:, 1:], torch.tensor([anchor])
        )
        return candidates[0], scores[0], oracle.greedy_path(candidates, scores)[0]


@pytest.mark.parametrize("block_size", [8, 16])
@pytest.mark.parametrize(
    ("length", "chunks"), [(0, []), (1, [1]), (9, [4, 5]), (70, [31, 1, 38]), (131, [131])]
)
def test_drafter_agrees_with_oracle(tmp_path, block_size, length, chunks):
    case = Case(tmp_path, seed=length, block_size=block_size)
    taps, anchor = case.taps(length), 100 + length % 100
    draft = case.draft(taps, anchor, chunks)
    candidates, scores, path = case.expected(taps, anchor, block_size)
    assert draft.lattice.depth == block_size - 1
    assert torch.equal(draft.lattice.candidate_ids, candidates)
    assert (draft.lattice.edge_scores - scores).abs().max() < 1e-4
    assert torch.equal(draft.token_ids, path)
    assert draft.q_rows is None


def test_oracle_agreement_is_not_vacuous(tmp_path):
    """Turning any one tensor upside down moves the scores by far more than the tolerance."""
    case = Case(tmp_path, num_hidden_layers=1, block_size=3)
    taps = case.taps(5)
    scores = case.expected(taps, 3, 3)[1]
    original = dict(case.tensors)
    for name, tensor in original.items():
        case.tensors = original | {name: tensor.flip(0)}
        moved = (case.expected(taps, 3, 3)[1] - scores).abs().max()
        assert moved > 1e-2, name


@pytest.mark.parametrize("kernel_size", [1, 3])
def test_other_kernel_sizes_agree_with_oracle(tmp_path, kernel_size):
    case = Case(tmp_path, dflash={"conv_kernel_size": kernel_size})
    taps = case.taps(12)
    draft = case.draft(taps, 5, [12])
    candidates, scores, _ = case.expected(taps, 5, 8)
    assert torch.equal(draft.lattice.candidate_ids, candidates)
    assert (draft.lattice.edge_scores - scores).abs().max() < 1e-4


@pytest.mark.parametrize("num_positions", [1, 2, 15])
def test_num_positions_runs_a_block_of_that_many_rows_and_the_anchor(tmp_path, num_positions):
    case = Case(tmp_path)
    taps = case.taps(17)
    draft = case.draft(taps, 5, [17], num_positions=num_positions)
    candidates, scores, path = case.expected(taps, 5, num_positions + 1)
    assert torch.equal(draft.lattice.candidate_ids, candidates)
    assert torch.equal(draft.token_ids, path)
    assert (draft.lattice.edge_scores - scores).abs().max() < 1e-4


def test_proposing_leaves_the_context_as_it_was(tmp_path):
    """Two rounds on one state, drafting in between, equal a fresh state with all tokens."""
    case = Case(tmp_path)
    taps = case.taps(30)
    ids = torch.zeros(30, dtype=torch.int64)
    state = case.drafter.new_state(30)
    case.drafter.append_context(state, ids[:10], taps[:10])
    case.drafter.propose(state, 8)
    case.drafter.propose(state, 9, num_positions=20)
    case.drafter.append_context(state, ids[10:], taps[10:])
    again = case.drafter.propose(state, 4).lattice.edge_scores
    assert torch.equal(again, case.draft(taps, 4, [30]).lattice.edge_scores)


def test_proposals_do_not_depend_on_the_chunks(tmp_path):
    case = Case(tmp_path)
    taps = case.taps(67)
    whole = case.draft(taps, 11, [67]).lattice
    for chunks in ([1] * 67, [33, 34], [8, 59], [0, 67, 0]):
        assert torch.equal(case.draft(taps, 11, chunks).lattice.edge_scores, whole.edge_scores)


def test_chunks_do_change_bits_of_plain_products(tmp_path, monkeypatch):
    """The comparison can fail: with torch's products the chunks show."""

    class PlainProjection(Projection):
        def __init__(self, weight):
            super().__init__(weight)
            self.plain = partial(F.linear, weight=weight)

        def arrays(self, x):
            return self.plain(torch.from_numpy(x)).numpy()

    monkeypatch.setattr(block_backbone, "Projection", PlainProjection)
    case = Case(tmp_path)
    taps = case.taps(67)
    whole = case.draft(taps, 11, [67]).lattice.edge_scores
    parts = [case.draft(taps, 11, chunks).lattice.edge_scores for chunks in ([1] * 67, [33, 34], [8, 59])]
    assert any(not torch.equal(scores, whole) for scores in parts)
    assert all((scores - whole).abs().max() < 1e-4 for scores in parts)


def test_sampled_proposal_reports_its_law_and_repeats_with_its_seed(tmp_path):
    case = Case(tmp_path)
    taps = case.taps(6)
    drafts = [
        case.draft(taps, 3, [6], temperature=0.8, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2, 3, 4)
    ]
    assert torch.equal(drafts[0].token_ids, drafts[1].token_ids)
    assert len({tuple(draft.token_ids.tolist()) for draft in drafts}) > 1
    for draft in drafts:
        assert draft.q_rows is not None
        assert torch.allclose(draft.q_rows.sum(-1), torch.ones(7, dtype=torch.float64))
        taken = (draft.lattice.candidate_ids == draft.token_ids[:, None]).double()
        assert (taken.sum(-1) == 1).all()
        assert ((draft.q_rows * taken).sum(-1) > 0).all()


def test_contract_and_memory(tmp_path):
    case = Case(tmp_path)
    assert isinstance(case.drafter, Drafter)
    assert case.drafter.name == "dflash2"
    assert case.drafter.block_size == 8
    assert case.drafter.target_taps == (0, 2, 4)
    assert case.drafter.memory_bytes == sum(4 * tensor.numel() for tensor in case.tensors.values())
    small, large = case.drafter.new_state(10), case.drafter.new_state(110)
    per_token = 4 * 2 * 2 * 2 * 16  # float32, keys and values, layers, heads, dimension
    assert large.memory_bytes - small.memory_bytes == 100 * per_token


def test_misuse_is_refused(tmp_path):
    case = Case(tmp_path)
    state, ids = case.drafter.new_state(4), torch.zeros(5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"taps: got shape \(2, 64\), expected \(2, 192\)"):
        case.drafter.append_context(state, ids[:2], torch.zeros(2, 64))
    with pytest.raises(ValueError, match=r"0 \+ 5 tokens, expected at most 4"):
        case.drafter.append_context(state, ids, case.taps(5))
    for anchor in (-1, 211):
        with pytest.raises(ValueError, match="anchor_id"):
            case.drafter.propose(state, anchor)
    for count in (0, 32):
        with pytest.raises(ValueError, match="num_positions"):
            case.drafter.propose(state, 1, num_positions=count)
    with pytest.raises(ValueError, match="generator"):
        case.drafter.propose(state, 1, temperature=1.0)
    with pytest.raises(EngineError, match="drafter state: got object, expected BlockState"):
        case.drafter.propose(object(), 1)  # type: ignore[arg-type]
    assert state.num_tokens == 0
