"""With the EAGLE-3 drafter the engine says what the target says: equal ids, and the target's law when sampling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from specpilot.draft import Draft
from specpilot.models.train.answers import Answers
from specpilot.models.train.draft_training import train_drafter
from specpilot.models.train.eagle3 import Eagle3Shape, TrainEagle3
from specpilot.models.train.export import export_checkpoint
from specpilot.models.train.objectives import eagle3_losses
from specpilot.models.train.target import TrainTarget
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.eagle3 import Eagle3Drafter, load_eagle3
from specpilot.refengine.eagle3_config import Eagle3Config
from specpilot.refengine.model import TargetModel, load_target
from specpilot.verify import acceptance_probs, bonus_law
from tests.oracles.random_dflash2 import TinyTarget
from tests.oracles.random_eagle3 import make_config, make_tensors
from tests.oracles.statistics import chi_square_p_value
from tests.specpilot.refengine.decoding import decode
from tests.specpilot.refengine.random_target import SMALL, save_target

COUNTING = TargetConfig(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_layers=4, full_attention_interval=4, num_heads=2,
    num_kv_heads=1, head_dim=32, rotary_dim=8, rope_theta=10_000.0, gdn_num_key_heads=1, gdn_num_value_heads=2,
    gdn_key_dim=16, gdn_value_dim=16, gdn_conv_size=4, norm_eps=1e-6, context_length=256, tie_word_embeddings=True,
    eos_ids=(2, 0),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[TargetModel, Eagle3Drafter]:
    """A target that counts, with noise in it, and a drafter that has learned it well enough to be right at times."""
    folder = tmp_path_factory.mktemp("learned")
    model, draw = TrainTarget(COUNTING), torch.Generator().manual_seed(0)
    model.initialise(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    ids = (torch.arange(24) + torch.arange(40)[:, None]) % 80 + 10
    starts = torch.zeros(8, 24, dtype=torch.bool)
    starts[:, 0] = True
    for _ in range(60):
        rows = ids[torch.randperm(40, generator=draw)[:8]]
        logits = model.logits(model(rows, starts)[0])[:, :-1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.bfloat16())
    shape = Eagle3Shape(
        hidden_size=64,
        vocab_size=96,
        num_target_layers=4,
        tap_outputs=(0, 2),
        head_dim=16,
        intermediate_size=64,
    )
    answers = Answers(ids, torch.full((40,), 4), torch.full((40,), 24))
    drafter = train_drafter(
        TrainEagle3(shape), eagle3_losses, model.requires_grad_(False), answers, folder / "history.jsonl", steps=40,
        sequences=8, anchors=4, peak_lr=5e-3, seed=0, time_limit_s=600.0, is_fitted=False, device="cpu",
    )  # fmt: skip
    assert drafter is not None
    export_checkpoint(folder / "target", COUNTING.to_json_dict(), model.state_dict(), None)
    export_checkpoint(folder / "eagle3", drafter.config_dict(), drafter.state_dict(), None)
    target = load_target(folder / "target", mode="judge")
    return target, load_eagle3(folder / "eagle3", target=target)


@pytest.fixture(scope="module")
def unlearned(tmp_path_factory: pytest.TempPathFactory) -> tuple[TargetModel, Eagle3Drafter]:
    """Random weights in both."""
    folder = tmp_path_factory.mktemp("unlearned")
    save_target(folder, SMALL)
    target = load_target(folder, mode="judge")
    config = make_config(
        {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, hidden_size=96, vocab_size=300, num_target_layers=4
    )
    return target, Eagle3Drafter(Eagle3Config.parse(config), make_tensors(config, 2), target)


@pytest.mark.parametrize("seed", range(6))
def test_ids_are_equal_with_and_without_the_drafter(
    learned: tuple[TargetModel, Eagle3Drafter], seed: int
) -> None:
    target, drafter = learned
    prompt = torch.randint(10, 90, (3 + 5 * seed,), generator=torch.Generator().manual_seed(seed)).tolist()
    plain, _ = decode(target, None, prompt, 60)
    for parts in (1, 2):
        drafted, steps = decode(target, drafter, prompt, 60, parts)
        assert drafted == plain
        # Neither everything nor nothing was accepted, so both kinds of step are in it.
        assert 60 / 8 < steps < 55


@pytest.mark.parametrize("seed", range(4))
def test_ids_are_equal_with_random_weights(unlearned: tuple[TargetModel, Eagle3Drafter], seed: int) -> None:
    target, drafter = unlearned
    prompt = torch.randint(300, (1 + 9 * seed,), generator=torch.Generator().manual_seed(seed)).tolist()
    assert decode(target, drafter, prompt, 40)[0] == decode(target, None, prompt, 40)[0]


VOCAB, DEPTH = 6, 2


class SmallWorld:
    """A real drafter over six tokens and a target whose law depends on the whole prefix."""

    def __init__(self, num_candidates: int, temperature: float) -> None:
        self.temperature = temperature
        config = make_config(vocab_size=VOCAB)
        table = TinyTarget(config, 3)
        table.table *= 0.2  # keeps all tokens in play
        self.drafter = Eagle3Drafter(
            Eagle3Config.parse(config), make_tensors(config, 1), table, num_candidates=num_candidates
        )
        generator = torch.Generator().manual_seed(4)
        self.state = self.drafter.new_state(4)
        taps = torch.randn(4, 192, generator=generator)
        self.drafter.append_context(self.state, torch.tensor([1, 5, 0, 2]), taps)
        self.laws = {
            prefix: torch.softmax(torch.randn(VOCAB, generator=generator, dtype=torch.float64) * 1.2, -1)
            for length in range(DEPTH + 1)
            for prefix in itertools.product(range(VOCAB), repeat=length)
        }

    def draw(self, generator: torch.Generator, temperature: float | None = None) -> Draft:
        return self.drafter.propose(
            self.state,
            3,
            temperature=temperature or self.temperature,
            generator=generator,
            num_positions=DEPTH,
        )

    def all_drafts(self, temperature: float) -> dict[tuple[int, ...], Draft]:
        """A draft for every chain that can be drawn."""
        generator, found = torch.Generator().manual_seed(0), dict[tuple[int, ...], Draft]()
        width = self.drafter.num_candidates
        for _ in range(6000):
            draft = self.draw(generator, temperature)
            found.setdefault(tuple(draft.token_ids.tolist()), draft)
            if len(found) == width**DEPTH:
                return found
        raise AssertionError(f"only {len(found)} of {width**DEPTH} chains were drawn")

    def chain_probability(self, draft: Draft) -> float:
        assert draft.q_rows is not None
        taken = draft.lattice.candidate_ids == draft.token_ids[:, None]
        return float((draft.q_rows * taken).sum(-1).prod())

    def emitted_law(self, claimed_at: float) -> Tensor:
        """Law of DEPTH + 1 tokens, enumerated: one verify step, then the target alone."""
        claims, law = self.all_drafts(claimed_at), torch.zeros((VOCAB,) * (DEPTH + 1), dtype=torch.float64)
        for chain, draft in self.all_drafts(self.temperature).items():
            q_rows, ids = claims[chain].q_rows, draft.lattice.candidate_ids
            assert q_rows is not None and torch.equal(claims[chain].lattice.candidate_ids, ids)
            p_rows = torch.stack([self.laws[chain[:length]] for length in range(DEPTH + 1)])
            accept = acceptance_probs(draft.token_ids, ids, q_rows, p_rows)
            reached = self.chain_probability(draft)
            for count in range(DEPTH + 1):
                stops = reached * (1.0 - float(accept[count])) if count < DEPTH else reached
                for token, p in enumerate(bonus_law(count, ids, q_rows, p_rows).tolist()):
                    self._go_on(law, (*chain[:count], token), stops * p)
                reached -= stops
        return law

    def _go_on(self, law: Tensor, tokens: tuple[int, ...], weight: float) -> None:
        if len(tokens) == DEPTH + 1:
            law[tokens] += weight
        else:
            for token, p in enumerate(self.laws[tokens].tolist()):
                self._go_on(law, (*tokens, token), weight * p)

    def target_law(self) -> Tensor:
        law = torch.zeros((VOCAB,) * (DEPTH + 1), dtype=torch.float64)
        self._go_on(law, (), 1.0)
        return law


@pytest.mark.parametrize("num_candidates", [4, 6])
@pytest.mark.parametrize("temperature", [0.8, 1.5])
def test_emitted_law_is_the_targets_exactly(num_candidates: int, temperature: float) -> None:
    world = SmallWorld(num_candidates, temperature)
    assert sum(map(world.chain_probability, world.all_drafts(temperature).values())) == pytest.approx(1.0)
    torch.testing.assert_close(world.emitted_law(temperature), world.target_law(), atol=1e-12, rtol=0)


def test_control_a_law_claimed_at_another_temperature_is_found_out() -> None:
    world = SmallWorld(4, 0.8)
    assert (world.emitted_law(1.5) - world.target_law()).abs().sum() > 0.01


def test_chains_are_drawn_from_the_law_they_state() -> None:
    """Chi-square over all 16 chains, 4,000 draws, fixed seed, level 0.001; a control at another temperature fails."""
    world, generator = SmallWorld(4, 1.5), torch.Generator().manual_seed(9)
    chains = {chain: index for index, chain in enumerate(world.all_drafts(1.5))}
    counts = torch.zeros(len(chains))
    for _ in range(4000):
        counts[chains[tuple(world.draw(generator).token_ids.tolist())]] += 1
    laws = [
        torch.tensor([world.chain_probability(drafts[chain]) for chain in chains])
        for drafts in (world.all_drafts(1.5), world.all_drafts(0.8))
    ]
    assert chi_square_p_value(counts, laws[0]) > 1e-3
    assert chi_square_p_value(counts, laws[1]) < 1e-6
