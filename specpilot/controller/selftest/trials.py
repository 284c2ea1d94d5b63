"""Runs one candidate through a whole round on a simulated box."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specpilot.controller.controller import Controller
from specpilot.controller.forcing_audit import ForcingAudit
from specpilot.controller.ledger import Ledger
from specpilot.controller.measure import NUM_WARM_UP_TOKENS, warm_up_prompts
from specpilot.controller.measures import Measures
from specpilot.controller.selftest.cheats import patched
from specpilot.controller.selftest.truth import Truth
from specpilot.controller.selftest.world import Stock, World, WorldSlot
from specpilot.controller.slots.base import System
from specpilot.controller.spending import AlphaPlan
from specpilot.controller.trial import TrialPlan
from specpilot.errors import RequestError
from specpilot.forcing import Rules
from specpilot.requests.sets import build_set
from specpilot.requests.sources import bundled_requests

__all__ = ["Outcome", "Sets", "make_controller", "make_sets", "mine_noise", "run_candidate"]

_RULES = Rules(min_requests=8, min_tokens=250)


@dataclass(frozen=True)
class Sets:
    """Prompts of a round. ``end_of_thinking_id`` is a token that ends the first line, in place of thinking."""

    development: TrialPlan
    hidden: TrialPlan
    sealed: TrialPlan
    end_of_thinking_id: int


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate; ``reasons`` of the refusal that came first, ``stage`` where."""

    is_promoted: bool
    is_final_accepted: bool | None
    stage: str
    reasons: tuple[str, ...]


def make_sets(truth: Truth, *, development_tokens: int = 40, sealed_tokens: int = 512) -> Sets:
    """The repository's requests: development ones, and half of the sealed ones each for hidden and sealed.

    Answers stop early so that the test is short: what matters is that sealed ones may be longer.
    """
    render = truth.engine.apply_chat_template
    development, sealed = (
        build_set(bundled_requests(), split, render, tokenizer_sha256="").prompts
        for split in ("development", "sealed")
    )
    plans = [
        (development, development_tokens, 8),
        (sealed[0::2], development_tokens, 0),
        (sealed[1::2], sealed_tokens, 0),
    ]
    made: list[TrialPlan] = []
    for prompts, max_new_tokens, num_repeats in plans:
        # Decoded here, several at once: the systems of the test ask for one at a time.
        asked = [one.prompt_ids for one in prompts]
        truth.prepare(asked, max_new_tokens)
        truth.prepare([one.prompt_ids for one in warm_up_prompts(prompts, 2)], NUM_WARM_UP_TOKENS)
        truth.prepare_biased(
            asked, max_new_tokens, after=0 if max_new_tokens == development_tokens else development_tokens
        )
        made.append(TrialPlan(tuple(prompts), max_new_tokens, num_repeats=num_repeats))
    [newline] = truth.engine.tokenize("\n")
    return Sets(made[0], made[1], made[2], newline)


def run_candidate(
    truth: Truth,
    sets: Sets,
    behaviour: Stock,
    folder: Path,
    *,
    is_sealed: bool = False,
    rules: Rules = _RULES,
) -> Outcome:
    """Open, pair, check, promote, and with ``is_sealed`` the sealed final of what was promoted."""
    world = World(truth)
    controller = make_controller(
        truth, sets, world, {"stock": Stock(), "candidate": behaviour}, folder / "ledger", rules
    )
    try:
        controller.open("operator", System("stock"))
        return _run(controller, behaviour, is_sealed)
    finally:
        controller.ledger.close()


def _run(controller: Controller, behaviour: Stock, is_sealed: bool) -> Outcome:
    candidate = System("candidate", ("candidate",))
    with patched(behaviour):
        paired = controller.pair("agent", "direction", candidate)
        checked = controller.check("agent", paired["attempt_id"])
        decided = controller.promote("agent", paired["attempt_id"])
        if not decided["is_promoted"]:
            stage = "pair" if paired["reasons"] else "check" if checked["passed"] is not True else "promote"
            return Outcome(False, None, stage, tuple(decided["reasons"]))
        if not is_sealed:
            return Outcome(True, None, "promote", ())
        final = controller.seal("operator")
        return Outcome(True, final["is_accepted"], "seal", tuple(final["reasons"]))


def mine_noise(truth: Truth, sets: Sets, folder: Path, *, run_sd: float = 0.01) -> tuple[int, list[str]]:
    """A change that does nothing, in every direction and attempt a round has and one more of both.

    Returns how often it was promoted, and the refusals of what was beyond the plan.
    """
    world = World(truth, generator=np.random.default_rng(23), run_sd=run_sd)
    controller = make_controller(truth, sets, world, {"stock": Stock(), "null": Stock()}, folder / "ledger")
    controller.open("operator", System("stock"), AlphaPlan())
    plan, num_promoted, refusals = AlphaPlan(), 0, []
    for direction in range(plan.num_directions + 1):
        for attempt in range(plan.num_attempts + 1):
            try:
                paired = controller.pair(
                    "agent", f"direction {direction}", System("null", (f"{direction} {attempt}",))
                )
            except RequestError as error:
                refusals.append(str(error))
                continue
            if not paired["reasons"]:
                controller.check("agent", paired["attempt_id"])
                num_promoted += controller.promote("agent", paired["attempt_id"])["is_promoted"]
    controller.ledger.close()
    return num_promoted, refusals


def make_controller(
    truth: Truth,
    sets: Sets,
    world: World,
    behaviours: dict[str, Stock],
    ledger: Path,
    rules: Rules = _RULES,
) -> Controller:
    """The real controller on a simulated box."""
    measures = Measures(
        slots=(WorldSlot(world, behaviours),),
        development=sets.development,
        hidden=sets.hidden,
        sealed=sets.sealed,
        audit=ForcingAudit(truth.scorer, rules),
        clock=world.clock,
        environment=lambda: {"box": "simulated"},
        end_of_thinking_id=sets.end_of_thinking_id,
        num_null_trials=8,
    )
    return Controller(Ledger(ledger), measures)
