"""The EAGLE-3 drafter against a plain oracle, and what its state promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specpilot.draft import Draft, Drafter
from specpilot.errors import EngineError
from specpilot.refengine.eagle3 import Eagle3Drafter, load_eagle3
from tests.oracles.eagle3_plain import draft_chain
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_eagle3 import make_config, make_tensors


class Case:
    """A random checkpoint on disk, its loaded drafter, and random tokens with their taps."""

    def __init__(self, folder: Path, seed: int = 0, **changes: Any) -> None:
        self.config = make_config(**changes)
        self.tensors = make_tensors(self.config, seed)
        self.target = TinyTarget(self.config, seed + 1)
        self.path = write_checkpoint(folder, self.config, self.tensors)
        self.drafter: Eagle3Drafter = load_eagle3(self.path, target=self.target)
        self.generator = torch.Generator().manual_seed(seed + 2)

    def text(self, length: int) -> tuple[Tensor, Tensor]:
        """``length`` committed tokens and the anchor behind them; taps of the committed ones."""
        ids = torch.randint(self.config["vocab_size"], (length + 1,), generator=self.generator)
        width = len(self.drafter.target_taps) * self.config["hidden_size"]
        return ids, torch.randn(length, width, generator=self.generator) * 3.0

    def draft(self, ids: Tensor, taps: Tensor, chunks: list[int], **options: Any) -> Draft:
        state = self.drafter.new_state(taps.shape[0])
        for part, tapped in zip(ids[:-1].split(chunks), taps.split(chunks), strict=True):
            self.drafter.append_context(state, part, tapped)
        assert state.num_tokens == taps.shape[0]
        return self.drafter.propose(state, int(ids[-1]), **options)

    def expected(self, ids: Tensor, taps: Tensor, depth: int, **options: Any) -> tuple[list[int], Tensor]:
        return draft_chain(self.config, self.tensors, self.target.table, ids.tolist(), taps, depth, **options)


def chain_rows(draft: Draft) -> Tensor:
    """Scores of the candidates along the chain, (D, K)."""
    rows, row = [], 0
    for depth, token in enumerate(draft.token_ids.tolist()):
        rows.append(draft.lattice.edge_scores[depth, row])
        row = draft.lattice.candidate_ids[depth].tolist().index(token)
    return torch.stack(rows)


@pytest.mark.parametrize(
    "changes", [{}, {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32}]
)
@pytest.mark.parametrize(
    ("length", "chunks"), [(1, [1]), (2, [2]), (2, [1, 1]), (9, [4, 5]), (70, [31, 1, 38]), (300, [300])]
)
def test_drafter_agrees_with_oracle(
    tmp_path: Path, changes: dict[str, Any], length: int, chunks: list[int]
) -> None:
    case = Case(tmp_path, seed=length, **changes)
    ids, taps = case.text(length)
    draft = case.draft(ids, taps, chunks)
    chain, logits = case.expected(ids, taps, 7)
    assert draft.token_ids.tolist() == chain
    assert draft.token_ids.dtype == torch.int64 and draft.q_rows is None
    assert torch.equal(draft.lattice.greedy_chain(), draft.token_ids)
    top, candidates = logits.topk(16, dim=-1)
    assert torch.equal(draft.lattice.candidate_ids, candidates)
    torch.testing.assert_close(chain_rows(draft).double(), top, atol=1e-4, rtol=1e-5)


def test_oracle_agreement_is_not_vacuous(tmp_path: Path) -> None:
    """Turning any one tensor upside down moves the logits by far more than the tolerance."""
    case = Case(tmp_path)
    ids, taps = case.text(5)
    chain, logits = case.expected(ids, taps, 3)
    original = dict(case.tensors)
    for name, tensor in original.items():
        case.tensors = original | {name: tensor.flip(0)}
        assert (case.expected(ids, taps, 3, forced=chain)[1] - logits).abs().max() > 1e-1, name


def test_positions_pairs_and_own_rows_matter(tmp_path: Path) -> None:
    """What could be off by one is not: each of these changes the oracle's first or later row."""
    case = Case(tmp_path)
    ids, taps = case.text(6)
    chain, logits = case.expected(ids, taps, 3)
    shifted = case.expected(ids, taps.roll(1, 0), 3, forced=chain)[1]
    shorter = case.expected(ids[1:], taps[1:], 3, forced=chain)[1]
    assert (shifted - logits).abs().amax(-1).min() > 1e-1
    assert (shorter - logits).abs().amax(-1).min() > 1e-2
    other = [(chain[0] + 1) % 211, *chain[1:]]
    changed = (case.expected(ids, taps, 3, forced=other)[1] - logits).abs().amax(-1)
    assert changed[0] == 0 and changed[1:].min() > 1e-1


def test_a_shorter_chain_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    case = Case(tmp_path)
    ids, taps = case.text(17)
    longest = case.draft(ids, taps, [17], num_positions=31)
    assert longest.token_ids.tolist() == case.expected(ids, taps, 31)[0]
    for count in (1, 2, 7):
        draft = case.draft(ids, taps, [17], num_positions=count)
        assert torch.equal(draft.token_ids, longest.token_ids[:count])
        assert torch.equal(draft.lattice.edge_scores, longest.lattice.edge_scores[:count])


def test_bits_do_not_depend_on_chunks_or_on_drafts_in_between(tmp_path: Path) -> None:
    case = Case(tmp_path)
    ids, taps = case.text(67)
    whole = case.draft(ids, taps, [67]).lattice
    for chunks in ([1] * 67, [33, 34], [8, 59]):
        assert torch.equal(case.draft(ids, taps, chunks).lattice.edge_scores, whole.edge_scores)
    state = case.drafter.new_state(67)
    for start in range(0, 67, 8):
        end = min(start + 8, 67)
        case.drafter.append_context(state, ids[start:end], taps[start:end])
        draft = case.drafter.propose(state, int(ids[end]), num_positions=9)
    assert torch.equal(draft.lattice.edge_scores[:7], whole.edge_scores)


def test_an_empty_chunk_changes_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    ids, taps = case.text(9)
    scores = case.draft(ids, taps, [0, 4, 0, 5, 0]).lattice.edge_scores
    assert torch.equal(scores, case.draft(ids, taps, [9]).lattice.edge_scores)


def test_what_follows_other_candidates_is_not_known(tmp_path: Path) -> None:
    case = Case(tmp_path)
    ids, taps = case.text(6)
    generator = torch.Generator().manual_seed(3)
    draft = case.draft(ids, taps, [6], temperature=1.5, generator=generator)
    is_known = draft.lattice.edge_logprobs.isfinite()
    row = 0
    for depth, token in enumerate(draft.token_ids.tolist()):
        assert is_known[depth].all(-1).nonzero().flatten().tolist() == [row]
        assert not is_known[depth, torch.arange(16) != row].any()
        row = draft.lattice.candidate_ids[depth].tolist().index(token)
    torch.testing.assert_close(draft.lattice.edge_logprobs[is_known].exp().view(7, 16).sum(-1), torch.ones(7))


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_sampled_chain_states_its_law_and_follows_its_own_tokens(tmp_path: Path, temperature: float) -> None:
    case = Case(tmp_path)
    ids, taps = case.text(6)
    drafts = [
        case.draft(ids, taps, [6], temperature=temperature, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2, 3)
    ]
    assert torch.equal(drafts[0].token_ids, drafts[1].token_ids)
    assert len({tuple(draft.token_ids.tolist()) for draft in drafts}) > 1
    for draft in drafts:
        logits = case.expected(ids, taps, 7, forced=draft.token_ids.tolist())[1]
        top, candidates = logits.topk(16, dim=-1)
        assert torch.equal(draft.lattice.candidate_ids, candidates)
        assert draft.q_rows is not None
        torch.testing.assert_close(draft.q_rows, (top / temperature).softmax(-1), atol=1e-4, rtol=0)
        torch.testing.assert_close(chain_rows(draft).double(), top, atol=1e-4, rtol=1e-5)


def test_a_tiny_temperature_is_greedy(tmp_path: Path) -> None:
    case = Case(tmp_path)
    ids, taps = case.text(6)
    draft = case.draft(ids, taps, [6], temperature=1e-300, generator=torch.Generator().manual_seed(1))
    assert torch.equal(draft.token_ids, case.draft(ids, taps, [6]).token_ids)
    assert draft.q_rows is not None and bool(draft.q_rows.isfinite().all())


def test_contract_and_memory(tmp_path: Path) -> None:
    case = Case(tmp_path)
    assert isinstance(case.drafter, Drafter)
    assert (case.drafter.name, case.drafter.block_size, case.drafter.target_taps) == ("eagle3", 8, (0, 2, 4))
    assert case.drafter.memory_bytes == sum(4 * tensor.numel() for tensor in case.tensors.values())
    state = case.drafter.new_state(2000)
    before, (ids, taps) = state.memory_bytes, case.text(1000)
    case.drafter.append_context(state, ids[:-1], taps)
    per_token = 4 * 2 * 2 * 16  # float32, keys and values, heads, dimension
    assert before <= 256 * per_token and 1000 * per_token <= state.memory_bytes <= 2031 * per_token


def test_misuse_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path)
    state, ids = case.drafter.new_state(4), torch.zeros(5, dtype=torch.int64)
    with pytest.raises(ValueError, match="got no committed token"):
        case.drafter.propose(state, 1)
    with pytest.raises(ValueError, match=r"taps: got shape \(2, 64\), expected \(2, 192\)"):
        case.drafter.append_context(state, ids[:2], torch.zeros(2, 64))
    with pytest.raises(ValueError, match=r"0 \+ 5 tokens, expected at most 4"):
        case.drafter.append_context(state, ids, torch.zeros(5, 192))
    assert state.num_tokens == 0
    case.drafter.append_context(state, ids[:1], torch.zeros(1, 192))
    for anchor in (-1, 211):
        with pytest.raises(ValueError, match="anchor_id"):
            case.drafter.propose(state, anchor)
    for count in (0, 32):
        with pytest.raises(ValueError, match="num_positions"):
            case.drafter.propose(state, 1, num_positions=count)
    with pytest.raises(ValueError, match="generator"):
        case.drafter.propose(state, 1, temperature=1.0)
    with pytest.raises(EngineError, match="drafter state: got object, expected Eagle3State"):
        case.drafter.propose(object(), 1)  # type: ignore[arg-type]
    assert state.num_tokens == 1
