"""The DSpark drafter against the oracle: chain, law, lattice, survival, and what its state promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specpilot.draft import Draft, Drafter, Lattice
from specpilot.errors import EngineError
from specpilot.refengine.dspark import NUM_CANDIDATES, DSparkDrafter, _Walk, load_dspark
from specpilot.verify import verify_sampled
from tests.oracles import sglang_dflash2, sglang_dspark
from tests.oracles.random_dflash2 import TinyTarget, write_checkpoint
from tests.oracles.random_dspark import make_config, make_tensors
from tests.oracles.statistics import chi_square_p_value
from tests.specpilot.verify.test_chain import DEPTH, VOCAB, World, total_variation

MASK = 7


class Case:
    """A random checkpoint on disk, its loaded drafter, and random taps."""

    def __init__(self, folder, *, seed=0, **changes) -> None:
        self.config = make_config(**changes)
        self.tensors = make_tensors(self.config, seed)
        self.target = TinyTarget(self.config, seed + 1)
        path = write_checkpoint(folder, self.config, self.tensors)
        self.drafter: DSparkDrafter = load_dspark(path, target=self.target)
        self.generator = torch.Generator().manual_seed(seed + 2)

    def taps(self, length: int) -> Tensor:
        width = len(self.drafter.target_taps) * self.config["hidden_size"]
        return torch.randn(length, width, generator=self.generator) * 3.0

    def state(self, taps: Tensor, chunks: list[int]):
        state = self.drafter.new_state(taps.shape[0])
        for chunk in taps.split(chunks):
            self.drafter.append_context(state, torch.zeros(chunk.shape[0], dtype=torch.int64), chunk)
        assert state.num_tokens == taps.shape[0]
        return state

    def draft(self, taps: Tensor, anchor: int, chunks: list[int], **options) -> Draft:
        return self.drafter.propose(self.state(taps, chunks), anchor, **options)

    def hidden(self, taps: Tensor, anchor: int, rows: int) -> Tensor:
        block = torch.tensor([[anchor] + [MASK] * (rows - 1)])
        return sglang_dflash2.block_hidden(self.config, self.tensors, self.target.table, taps[None], block)[0]

    def check(self, draft: Draft, taps: Tensor, anchor: int, rows: int, temperature: float = 0.0) -> None:
        """Every part of a draft is what the oracle computes for its chain; a greedy chain is the oracle's."""
        hidden, tokens = self.hidden(taps, anchor, rows), draft.token_ids.tolist()
        greedy = lambda scores, depth: int(scores.argmax())  # noqa: E731
        forced = lambda scores, depth: tokens[depth]  # noqa: E731
        chain, scores = sglang_dspark.chain(
            self.tensors, self.target.table, hidden, anchor, forced if temperature else greedy
        )
        assert chain == tokens
        if temperature:
            assert draft.q_rows is not None
            assert (draft.q_rows - (scores / temperature).softmax(-1)).abs().max() < 1e-4
            assert torch.equal(draft.support_ids, torch.arange(211).expand(rows, -1))
        else:
            assert draft.q_rows is None
        best = scores.topk(NUM_CANDIDATES, dim=-1).indices
        for depth, ids in enumerate(draft.lattice.candidate_ids.tolist()):
            expected = set(best[depth].tolist())
            if tokens[depth] not in expected:
                expected = set(best[depth, :-1].tolist()) | {tokens[depth]}
            assert set(ids) == expected
        for depth in range(rows):
            before = (
                [anchor] * NUM_CANDIDATES if depth == 0 else draft.lattice.candidate_ids[depth - 1].tolist()
            )
            for row, token in enumerate(before):
                all_scores = sglang_dspark.scores_after(self.tensors, self.target.table, hidden[depth], token)
                expected_edges = all_scores[draft.lattice.candidate_ids[depth]]
                assert (draft.lattice.edge_scores[depth, row] - expected_edges).abs().max() < 2e-4
        if self.drafter.config.has_confidence:
            expected_survival = sglang_dspark.survival(self.config, self.tensors, hidden, anchor, tokens)
            assert draft.survival is not None and draft.survival.shape == (rows,)
            assert (draft.survival - expected_survival).abs().max() < 1e-5
        else:
            assert draft.survival is None


@pytest.mark.parametrize("gamma", [7, 15])
@pytest.mark.parametrize(
    ("length", "chunks"), [(0, []), (1, [1]), (9, [4, 5]), (70, [31, 1, 38]), (131, [131])]
)
def test_drafter_agrees_with_oracle(tmp_path, gamma, length, chunks):
    case = Case(tmp_path, seed=length, block_size=gamma)
    taps, anchor = case.taps(length), 100 + length % 100
    draft = case.draft(taps, anchor, chunks)
    case.check(draft, taps, anchor, gamma)
    assert torch.equal(draft.lattice.greedy_chain(), draft.token_ids)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 30.0])
def test_sampled_drafts_agree_with_oracle(tmp_path, temperature):
    """At the highest temperature chains leave the 16 best tokens, so the lattice has to make room for them."""
    case = Case(tmp_path)
    taps = case.taps(23)
    for seed in range(4):
        options = {"temperature": temperature, "generator": torch.Generator().manual_seed(seed)}
        case.check(case.draft(taps, 9, [23], **options), taps, 9, 7, temperature)


@pytest.mark.parametrize(
    "changes",
    [
        {"enable_confidence_head": False},
        {"confidence_head_with_markov": False},
        {"markov_rank": 16},
        {"num_hidden_layers": 1},
    ],
)
def test_other_forms_agree_with_oracle(tmp_path, changes):
    case = Case(tmp_path, **changes)
    taps = case.taps(12)
    case.check(case.draft(taps, 5, [12]), taps, 5, 7)


def test_oracle_agreement_is_not_vacuous(tmp_path):
    """Turning any one tensor upside down moves what it should move by far more than the tolerance."""
    case = Case(tmp_path, num_hidden_layers=1, block_size=3)
    taps, original = case.taps(5), dict(case.tensors)

    def numbers() -> Tensor:
        hidden = case.hidden(taps, 3, 3)
        tokens, scores = sglang_dspark.chain(
            case.tensors, case.target.table, hidden, 3, lambda row, depth: 40 + depth
        )
        return torch.cat(
            (scores.flatten(), sglang_dspark.survival(case.config, case.tensors, hidden, 3, tokens))
        )

    before = numbers()
    for name, tensor in original.items():
        case.tensors = original | {name: -tensor if tensor.numel() == 1 else tensor.flip(-1)}
        assert (numbers() - before).abs().max() > 1e-2, name


@pytest.mark.parametrize("num_positions", [1, 2, 15, 32])
def test_num_positions_runs_a_block_of_that_many_rows(tmp_path, num_positions):
    case = Case(tmp_path)
    taps = case.taps(17)
    case.check(case.draft(taps, 5, [17], num_positions=num_positions), taps, 5, num_positions)


def test_proposing_leaves_the_context_as_it_was_and_chunks_do_not_matter(tmp_path):
    case = Case(tmp_path)
    taps = case.taps(67)
    whole = case.draft(taps, 11, [67])
    for chunks in ([1] * 67, [33, 34], [0, 67, 0]):
        draft = case.draft(taps, 11, chunks)
        assert torch.equal(draft.lattice.edge_scores, whole.lattice.edge_scores)
        assert draft.survival is not None and whole.survival is not None
        assert torch.equal(draft.survival, whole.survival)
    ids, state = torch.zeros(67, dtype=torch.int64), case.drafter.new_state(67)
    case.drafter.append_context(state, ids[:20], taps[:20])
    case.drafter.propose(state, 8, temperature=0.5, generator=torch.Generator().manual_seed(0))
    case.drafter.propose(state, 9, num_positions=20)
    case.drafter.append_context(state, ids[20:], taps[20:])
    assert torch.equal(case.drafter.propose(state, 11).lattice.edge_scores, whole.lattice.edge_scores)


def test_equal_scores_go_to_the_lowest_id(tmp_path):
    """Tokens with the same rows of head and W2 have the same scores, bit for bit."""
    case = Case(tmp_path)
    taps = case.taps(6)
    best = case.draft(taps, 3, [6]).token_ids.tolist()
    case.target.table[2] = case.target.table[best[0]]
    w2 = case.tensors["markov_head.markov_w2.weight"]
    w2[2] = w2[best[0]]
    assert best[0] > 2
    write_checkpoint(tmp_path, case.config, case.tensors)
    case.drafter = load_dspark(tmp_path, target=case.target)
    draft = case.draft(taps, 3, [6])
    assert int(draft.token_ids[0]) == 2 == int(draft.lattice.greedy_chain()[0])
    assert {2, best[0]} <= set(draft.lattice.candidate_ids[0].tolist())


def test_a_seed_repeats_its_chain(tmp_path):
    case = Case(tmp_path)
    taps = case.taps(6)
    chains = [
        case.draft(
            taps, 3, [6], temperature=20.0, generator=torch.Generator().manual_seed(seed)
        ).token_ids.tolist()
        for seed in (1, 1, 2, 3)
    ]
    assert chains[0] == chains[1] and len({tuple(chain) for chain in chains}) == 3


class SmallWorld(World):
    """The target of ``World`` with a DSpark drafter over the same six tokens, its laws taken from its own walk."""

    def __init__(self, folder, seed: int, temperature: float) -> None:
        super().__init__(seed, temperature=temperature)
        case = Case(folder, seed=seed, vocab_size=VOCAB, block_size=DEPTH, mask_token_id=5, markov_rank=8)
        # Small enough that every token keeps some probability.
        case.target.table *= 0.2
        self.drafter = case.drafter
        self.state = case.state(case.taps(11), [11])
        # The laws stand over the whole vocabulary; their edges are not asked for.
        self.lattice = Lattice(torch.arange(VOCAB).expand(DEPTH, -1), torch.zeros(DEPTH, VOCAB, VOCAB))

    def draft_law(self, temperature: float) -> list[tuple[tuple[int, ...], Tensor, float]]:
        """Every chain, found by turning the draws on until the walk has taken each branch."""
        laws: dict[tuple[int, ...], tuple[Tensor, float]] = {}
        base = self.drafter.block_hidden([self.state], [4], [DEPTH])
        base = self.drafter._target.logits(torch.from_numpy(base)).numpy()

        def walk(uniforms: list[float]) -> tuple[tuple[int, ...], Tensor]:
            one = _Walk(base, temperature, uniforms)
            self.drafter._walk([one], [4])
            assert one.q_rows is not None
            return tuple(one.chain.tolist()), torch.from_numpy(one.q_rows)

        def explore(uniforms: list[float]) -> None:
            depth = len(uniforms)
            chain, q_rows = walk(uniforms + [0.5] * (DEPTH - depth))
            if depth == DEPTH:
                laws[chain] = q_rows, float(q_rows[torch.arange(DEPTH), list(chain)].prod())
                return
            ends = q_rows[depth].cumsum(0)
            for token in range(VOCAB):
                explore([*uniforms, float(ends[token] - q_rows[depth, token] / 2)])

        explore([])
        assert len(laws) == VOCAB**DEPTH
        return [(chain, q_rows, probability) for chain, (q_rows, probability) in laws.items()]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_law_of_emitted_tokens_is_exactly_the_targets(tmp_path, temperature):
    world = SmallWorld(tmp_path, 3, temperature)
    assert sum(probability for *_, probability in world.draft_law(temperature)) == pytest.approx(
        1.0, abs=1e-12
    )
    assert total_variation(world.emitted_law(), world.target_law()) < 1e-12


def test_control_draws_scored_at_another_temperature_change_the_law(tmp_path):
    world = SmallWorld(tmp_path, 3, 1.0)
    assert total_variation(world.emitted_law(scored_at=0.5), world.target_law()) > 0.01


@pytest.mark.parametrize("is_honest", [True, False])
def test_first_token_of_a_sampled_step_follows_the_target(tmp_path, is_honest):
    """Chi-square over propose and verify; the control drafts at another temperature than it reports."""
    case = Case(tmp_path, vocab_size=40)
    case.target.table *= 0.2
    state = case.state(case.taps(11), [11])
    law = torch.softmax(torch.randn(40, generator=torch.Generator().manual_seed(5)) * 1.5, -1)
    p_rows = law.expand(3, -1)
    draw, counts = torch.Generator().manual_seed(11), torch.zeros(40)
    for _ in range(3000):
        draft = case.drafter.propose(state, 4, temperature=1.0, generator=draw, num_positions=2)
        assert draft.q_rows is not None
        q_rows = (
            draft.q_rows if is_honest else draft.q_rows.pow(2) / draft.q_rows.pow(2).sum(-1, keepdim=True)
        )
        result = verify_sampled(draft.token_ids, draft.support_ids, q_rows, p_rows, draw)
        counts[[*draft.token_ids[: result.num_correct_drafts].tolist(), result.bonus_id][0]] += 1
    assert (chi_square_p_value(counts, law) > 1e-3) == is_honest


def test_contract_and_memory(tmp_path):
    case = Case(tmp_path)
    assert isinstance(case.drafter, Drafter)
    assert case.drafter.name == "dspark"
    assert case.drafter.block_size == 8  # rows of a verify step: gamma drafts and the root
    assert case.drafter.target_taps == (0, 2, 4)
    assert case.drafter.memory_bytes == sum(4 * tensor.numel() for tensor in case.tensors.values())


def test_misuse_is_refused(tmp_path):
    case = Case(tmp_path)
    state = case.drafter.new_state(4)
    for anchor in (-1, 211):
        with pytest.raises(ValueError, match="anchor_id"):
            case.drafter.propose(state, anchor)
    for count in (0, 33):
        with pytest.raises(ValueError, match="num_positions"):
            case.drafter.propose(state, 1, num_positions=count)
    with pytest.raises(ValueError, match="generator"):
        case.drafter.propose(state, 1, temperature=1.0)
    with pytest.raises(EngineError, match="drafter state: got object, expected BlockState"):
        case.drafter.propose(object(), 1)  # type: ignore[arg-type]
    assert state.num_tokens == 0
