"""A trial: candidate and control answer the same prompts in paired runs that swap slots, or turns if there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from specpilot.controller.clock import Clock
from specpilot.controller.measure import Measured, Pass, run_pass
from specpilot.controller.slots.base import Arm, Slot, System
from specpilot.controller.stats import RatePair
from specpilot.errors import ConfigError
from specpilot.requests.sets import Prompt

__all__ = ["PairedRun", "Trial", "TrialPlan", "run_trial"]


@dataclass(frozen=True)
class TrialPlan:
    """How a round's trials are run; the same for every trial that is compared with its noise.

    Attributes
    ----------
    num_runs
        Paired runs, an even number: with two slots the systems swap them, with one they swap turns (ABBA in time).
    num_repeats
        Prompts asked twice, which shows answers that are remembered.
    seed
        Orders the prompts of each run, equally in both arms.
    """

    prompts: tuple[Prompt, ...]
    max_new_tokens: int
    batch_sizes: tuple[int, ...] = (1,)
    num_runs: int = 2
    num_repeats: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_runs < 2 or self.num_runs % 2 or not self.batch_sizes:
            raise ConfigError(
                f"trial: got {self.num_runs} runs at batch sizes {self.batch_sizes}, expected an even number and some"
            )

    def order(self, run: int) -> list[Prompt]:
        order = np.random.default_rng([self.seed, run]).permutation(len(self.prompts))
        return [self.prompts[index] for index in order.tolist()]


@dataclass(frozen=True)
class PairedRun:
    """Both arms' passes at every batch size. ``slots`` names where each ran; ``notes`` the machine before and after."""

    candidate: tuple[Pass, ...]
    control: tuple[Pass, ...]
    slots: Mapping[Arm, str]
    notes: tuple[Mapping[str, float], ...]

    def passes(self, arm: Arm) -> tuple[Pass, ...]:
        return self.candidate if arm == "candidate" else self.control


@dataclass(frozen=True)
class Trial:
    """``faults`` are reasons why its times cannot be believed at all."""

    runs: tuple[PairedRun, ...]
    faults: tuple[str, ...]

    def answers(self, arm: Arm) -> list[Measured]:
        """All answers of an arm but repeats, run by run and batch size by batch size."""
        return [one for run in self.runs for part in run.passes(arm) for one in part.answers]

    @property
    def has_diverged(self) -> bool:
        """Whether any answer differs between the arms."""
        pairs = zip(self.answers("candidate"), self.answers("control"), strict=True)
        return any(one.output_ids != other.output_ids for one, other in pairs)

    def rate_pairs(self) -> list[RatePair]:
        """Rates of every request in every run.

        Raises
        ------
        ConfigError
            The arms did not answer the same requests.
        """
        pairs = []
        for index, run in enumerate(self.runs):
            for one, other in zip(run.candidate, run.control, strict=True):
                asked = [[(a.key, a.prompt_ids) for a in part.answers] for part in (one, other)]
                if asked[0] != asked[1]:
                    raise ConfigError("requests: candidate and control answered other requests")
                pairs += [
                    RatePair(a.benchmark, one.batch_size, a.key, index, a.tok_s, b.tok_s)
                    for a, b in zip(one.answers, other.answers, strict=True)
                ]
        return pairs


def run_trial(
    slots: Sequence[Slot], candidate: System, control: System, plan: TrialPlan, clock: Clock
) -> Trial:
    """Run all paired runs. Every pass starts its system afresh."""
    if len(slots) not in (1, 2):
        raise ConfigError(f"slots: got {len(slots)}, expected one or two")
    mark = clock.mark()
    runs = tuple(_run_pair(slots, candidate, control, plan, clock, run) for run in range(plan.num_runs))
    fault = clock.fault_since(mark)
    return Trial(runs, () if fault is None else (fault,))


def _run_pair(
    slots: Sequence[Slot], candidate: System, control: System, plan: TrialPlan, clock: Clock, run: int
) -> PairedRun:
    prompts = plan.order(run)

    def serve(slot: Slot, system: System, arm: Arm) -> tuple[Pass, ...]:
        passes = []
        for size in plan.batch_sizes:
            with slot.run(system, arm) as endpoint:
                passes.append(run_pass(endpoint, prompts, size, plan.max_new_tokens, clock, plan.num_repeats))
        return tuple(passes)

    systems: dict[Arm, System] = {"candidate": candidate, "control": control}
    order: list[Arm] = ["candidate", "control"] if run % 2 == 0 else ["control", "candidate"]
    before = [slot.notes() for slot in slots]
    if len(slots) == 1:
        places: dict[Arm, Slot] = dict.fromkeys(order, slots[0])
        done = {arm: serve(slots[0], systems[arm], arm) for arm in order}
    else:
        places = dict(zip(order, slots, strict=True))
        with ThreadPoolExecutor(2) as pool:
            jobs = {arm: pool.submit(serve, places[arm], systems[arm], arm) for arm in order}
            done = {arm: job.result() for arm, job in jobs.items()}
    names: dict[Arm, str] = {arm: slot.name for arm, slot in places.items()}
    return PairedRun(done["candidate"], done["control"], names, (*before, *(slot.notes() for slot in slots)))
