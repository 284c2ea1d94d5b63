"""Drafts of several requests in one call have the bits of drafts alone, for every bundled drafter."""

from __future__ import annotations

import pytest
import torch

from specpilot.draft import Draft, Drafter, DrafterState
from specpilot.draft.proposals import BatchDrafter, ProposeRequest, propose_all
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

BATCHED = ("dflash2", "dspark", "eagle3")
LENGTHS, ANCHORS = (5, 300, 41, 90), (17, 4, 900, 17)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="serve", num_threads=1)


@torch.inference_mode()
def states_of(engine: ReferenceEngine, drafter: Drafter) -> list[DrafterState]:
    states = list[DrafterState]()
    for length in LENGTHS:
        ids = torch.arange(length) * 7 % 4000 + length
        taps = engine.target.forward(ids, engine.target.new_state(length), taps=drafter.target_taps).taps
        state = drafter.new_state(length)
        drafter.append_context(state, ids, taps)
        states.append(state)
    return states


def same(one: Draft, other: Draft) -> bool:
    pairs = [
        (one.token_ids, other.token_ids),
        (one.lattice.candidate_ids, other.lattice.candidate_ids),
        (one.lattice.edge_scores, other.lattice.edge_scores),
        (one.q_rows, other.q_rows),
        (one.support_ids, other.support_ids),
        (one.survival, other.survival),
    ]
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs
    )


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("positions", [(None,) * 4, (7, 1, 15, 3)])
@pytest.mark.parametrize("temperatures", [(0.0,) * 4, (0.7, 0.0, 1.0, 0.7)])
def test_together_is_alone(
    engine: ReferenceEngine,
    name: str,
    positions: tuple[int | None, ...],
    temperatures: tuple[float, ...],
) -> None:
    drafter = engine.drafters[name]
    assert isinstance(drafter, BatchDrafter)
    states = states_of(engine, drafter)

    def requests() -> list[ProposeRequest]:
        return [
            ProposeRequest(state, anchor, temperature, torch.Generator().manual_seed(index), count)
            for index, (state, anchor, temperature, count) in enumerate(
                zip(states, ANCHORS, temperatures, positions, strict=True)
            )
        ]

    together = propose_all(drafter, requests())
    for draft, request in zip(together, requests(), strict=True):
        alone = drafter.propose(
            request.state,
            request.anchor_id,
            temperature=request.temperature,
            generator=request.generator,
            num_positions=request.num_positions,
        )
        assert same(draft, alone)
    assert not same(together[0], together[3])


def test_a_drafter_without_batches_is_asked_one_by_one(engine: ReferenceEngine) -> None:
    drafter = engine.drafters["suffix"]
    assert not isinstance(drafter, BatchDrafter)
    states = [drafter.new_state(64) for _ in range(3)]
    for state in states:
        ids = torch.tensor([5, 6, 7, 8] * 4)
        drafter.append_context(state, ids, torch.empty(16, 0))
    drafts = propose_all(drafter, [ProposeRequest(state, 5) for state in states])
    assert [draft.token_ids.tolist()[:3] for draft in drafts] == [[6, 7, 8]] * 3
