"""The controller's commands: open, time, pair, check, promote, seal, close. Transport and users are elsewhere.

One round at a time. A round opens with stock and the noise of this box in this mode. A *direction* is one idea; each
``pair`` spends one of its attempts (``spending.py``). ``promote`` needs the attempt's pair and its token forcing, then
measures twice more by itself: on hidden requests and, afresh, on development ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from specpilot.controller.checks import check_hidden, check_lengths, check_repeats, check_stock, control_rates
from specpilot.controller.history import Attempt, Round, read_round, system_json
from specpilot.controller.ledger import Entry, Ledger
from specpilot.controller.measure import Measured, run_pass
from specpilot.controller.measures import Judgement, Measures
from specpilot.controller.noise import Noise
from specpilot.controller.promotion import CONFIRM_ALPHA, SpeedVerdict, judge_speed
from specpilot.controller.slots.base import System
from specpilot.controller.spending import AlphaPlan
from specpilot.controller.stats import Gain, log_ratios, measure_gain
from specpilot.controller.trial import Trial, TrialPlan, run_trial
from specpilot.errors import RequestError

__all__ = ["Controller"]


class Controller:
    """Thread rule: one command at a time (the server holds a lock)."""

    def __init__(
        self, ledger: Ledger, measures: Measures, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.ledger, self.measures, self._now = ledger, measures, now
        # Answers of measured attempts: token forcing needs them, and they die with the process.
        self._answers: dict[int, Trial] = {}

    # Rounds.

    def open(self, actor: str, stock: System, plan: AlphaPlan | None = None) -> dict[str, Any]:
        """Begin a round and measure the noise of stock against itself."""
        current = read_round(self.ledger.entries())
        if current is not None and not current.is_closed:
            raise RequestError("open: a round is open, expected none; close it first")
        measures = self.measures
        plan = plan or AlphaPlan()
        self.ledger.append(
            actor,
            "round.opened",
            plan=asdict(plan),
            stock=system_json(stock),
            mode=measures.mode,
            is_isolated=measures.is_isolated,
            environment=dict(measures.environment()),
            requests={
                name: len(getattr(measures, name).prompts) for name in ("development", "hidden", "sealed")
            },
        )
        trials = [self._trial(stock, stock, measures.development) for _ in range(measures.num_null_trials)]
        faults = [fault for trial in trials for fault in trial.faults]
        if faults:
            raise RequestError(f"open: {faults[0]}")
        gains = [measure_gain(*log_ratios(trial.rate_pairs())) for trial in trials]
        noise = Noise.of_trials(gains)
        entry = self.ledger.append(
            actor,
            "noise.measured",
            null_gains=list(noise.null_gains),
            null_gaps=list(noise.null_gaps),
            control_rates=list(control_rates(trials)),
            sd=noise.sd,
        )
        return self._reply(entry, noise=noise.sd, mode=measures.mode, is_isolated=measures.is_isolated)

    def time(self, actor: str, system: System) -> dict[str, Any]:
        """One pass of one system: evidence for an agent, nothing that promotes."""
        self._round("time")
        plan = self.measures.development
        with self.measures.slots[0].run(system, "candidate") as endpoint:
            done = run_pass(
                endpoint, plan.order(0), plan.batch_sizes[0], plan.max_new_tokens, self.measures.clock
            )
        rates = {one.key: one.tok_s for one in done.answers}
        mean = sum(rates.values()) / len(rates)
        return self._reply(
            self.ledger.append(actor, "timed", system=system_json(system), mean_tok_s=mean), tok_s=rates
        )

    # Attempts.

    def pair(self, actor: str, direction: str, candidate: System) -> dict[str, Any]:
        """Spend an attempt of a direction: paired runs of the candidate against the current best."""
        current = self._round("pair")
        plan = current.plan
        if direction in current.closed_directions:
            raise RequestError(f"pair: direction {direction!r} is closed")
        if direction not in current.directions and len(current.directions) >= plan.num_directions:
            raise RequestError(
                f"retries: got direction {direction!r}, the round's {plan.num_directions} directions are used up"
            )
        number = current.num_attempts(direction) + 1
        if number > plan.num_attempts:
            raise RequestError(
                f"retries: direction {direction!r} has used its {plan.num_attempts} attempts of this round"
            )
        attempt_id = len(current.attempts) + 1
        self.ledger.append(
            actor,
            "attempt.begun",
            attempt_id=attempt_id,
            direction=direction,
            number=number,
            alpha=plan.level(number),
            candidate=system_json(candidate),
            baseline_id=current.best.system_id,
        )
        trial = self._trial(candidate, current.best, self.measures.development)
        verdict, gain = self._judge(current, trial, plan.level(number))
        reasons = [*verdict.reasons, *self._check_trial(current, trial)]
        self._answers[attempt_id] = trial
        entry = self.ledger.append(
            actor,
            "attempt.measured",
            attempt_id=attempt_id,
            speed=asdict(verdict),
            log_gain=gain.log_gain,
            se=gain.se,
            dof=gain.dof,
            has_diverged=trial.has_diverged,
            notes=[dict(note) for run in trial.runs for note in run.notes],
            reasons=reasons,
        )
        return self._reply(
            entry, attempt_id=attempt_id, gain=verdict.gain, lower_95=verdict.lower_95, reasons=reasons
        )

    def check(self, actor: str, attempt_id: int) -> dict[str, Any]:
        """Token forcing of an attempt's answers on development requests."""
        attempt = self._attempt("check", attempt_id)
        trial = self._answers.get(attempt_id)
        if attempt.measured is None or trial is None:
            raise RequestError(
                f"check: attempt {attempt_id} has no paired runs of this process; pair it again"
            )
        plan = self.measures.development
        judgement = self._audit(trial, plan.max_new_tokens)
        entry = self.ledger.append(
            actor,
            "attempt.checked",
            attempt_id=attempt_id,
            passed=judgement.passed,
            reasons=list(judgement.reasons),
            report=dict(judgement.report),
        )
        return self._reply(entry, passed=judgement.passed, reasons=list(judgement.reasons))

    def promote(self, actor: str, attempt_id: int) -> dict[str, Any]:
        """Decide an attempt; a promoted candidate is the current best from then on."""
        current = self._round("promote")
        attempt = self._attempt("promote", attempt_id)
        if attempt.decided is not None:
            raise RequestError(
                f"promote: attempt {attempt_id} is decided; pair again, which is another attempt"
            )
        reasons = self._standing_reasons(current, attempt)
        evidence: dict[str, Any] = {}
        if not reasons:
            reasons, evidence = self._measure_again(current, attempt)
        entry = self.ledger.append(
            actor,
            "attempt.decided",
            attempt_id=attempt_id,
            is_promoted=not reasons,
            reasons=reasons,
            **evidence,
        )
        return self._reply(entry, is_promoted=not reasons, reasons=reasons)

    def seal(self, actor: str) -> dict[str, Any]:
        """The sealed final, once a round: paired runs against stock and token forcing, both on unseen requests."""
        current = self._round("seal")
        if current.is_sealed:
            raise RequestError("seal: the sealed requests of this round are used, expected one final a round")
        self.ledger.append(
            actor, "seal.begun", system=system_json(current.best), baseline_id=current.stock.system_id
        )
        plan = self.measures.sealed
        trial = self._trial(current.best, current.stock, plan)
        verdict, _ = self._judge(current, trial, CONFIRM_ALPHA)
        judgement = self._audit(trial, plan.max_new_tokens)
        reasons = [*verdict.reasons, *self._check_trial(current, trial, has_record=False)]
        reasons += [f"token forcing: {reason}" for reason in judgement.reasons]
        is_accepted = not reasons and judgement.passed is True
        entry = self.ledger.append(
            actor,
            "seal.decided",
            is_accepted=is_accepted,
            speed=asdict(verdict),
            passed=judgement.passed,
            report=dict(judgement.report),
            reasons=reasons,
        )
        return self._reply(
            entry, is_accepted=is_accepted, gain=verdict.gain, lower_95=verdict.lower_95, reasons=reasons
        )

    def close(self, actor: str, direction: str | None = None) -> dict[str, Any]:
        """Close a direction, or the round without one.

        A round can be closed whatever became of it: stale, under another environment, or without a measured noise
        because its opening failed.
        """
        if direction is None:
            current = self._open_round("close")
            entry = self.ledger.append(
                actor, "round.closed", best=system_json(current.best), final=current.final
            )
            return self._reply(entry)
        current = self._round("close")
        if direction not in current.directions:
            raise RequestError(
                f"close: got direction {direction!r}, expected one that was measured: {current.directions}"
            )
        return self._reply(self.ledger.append(actor, "direction.closed", direction=direction))

    def status(self, actor: str) -> dict[str, Any]:
        """Where the round stands; what any caller may know."""
        entries = self.ledger.entries()
        current = read_round(entries)
        shown: dict[str, Any] = {
            "num_entries": len(entries),
            "head_hash": entries[-1].hash if entries else None,
        }
        if current is not None:
            shown |= {
                "is_open": not current.is_closed,
                "mode": current.opened["mode"],
                "is_isolated": current.opened["is_isolated"],
                "best": current.best.name,
                "noise": None if current.noise is None else current.noise.sd,
                "num_attempts": len(current.attempts),
                "directions": current.directions,
                "final": current.final,
            }
        return shown

    # Parts.

    def _open_round(self, command: str) -> Round:
        current = read_round(self.ledger.entries())
        if current is None or current.is_closed:
            raise RequestError(f"{command}: no round is open, expected one; open it")
        return current

    def _round(self, command: str) -> Round:
        """The open round, if nothing it was measured under has changed."""
        current = self._open_round(command)
        if current.noise is None:
            raise RequestError(
                f"{command}: the round has no measured noise, its opening failed; close it and open another"
            )
        now = dict(self.measures.environment())
        then = current.opened["environment"]
        if changed := sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key)):
            raise RequestError(
                f"environment: {', '.join(changed)} changed since the round opened; close it and open another"
            )
        age_s = (self._now() - datetime.fromisoformat(current.measured_at)).total_seconds()
        if not 0.0 <= age_s <= self.measures.max_noise_age_s:
            raise RequestError(
                f"stale: the baseline was measured {age_s:.0f} s ago, expected at most "
                f"{self.measures.max_noise_age_s:.0f} s; open a round anew"
            )
        return current

    def _attempt(self, command: str, attempt_id: int) -> Attempt:
        current = self._round(command)
        if attempt_id not in current.attempts:
            raise RequestError(
                f"{command}: got attempt {attempt_id}, expected one of {sorted(current.attempts)}"
            )
        return current.attempts[attempt_id]

    def _standing_reasons(self, current: Round, attempt: Attempt) -> list[str]:
        """What speaks against an attempt before anything else is measured."""
        if attempt.measured is None:
            return ["incomplete: the paired runs of this attempt did not end"]
        if attempt.baseline_id != current.best.system_id:
            return [
                f"stale: measured against {attempt.baseline_id}, the current best is {current.best.system_id}"
            ]
        if attempt.checked is None:
            return ["incomplete: token forcing of this attempt was not run"]
        reasons = list(attempt.measured["reasons"])
        if attempt.checked["passed"] is not True:
            reasons += [f"token forcing: {reason}" for reason in attempt.checked["reasons"]]
        return reasons

    def _measure_again(self, current: Round, attempt: Attempt) -> tuple[list[str], dict[str, Any]]:
        """The repetition of the trial, and hidden requests."""
        assert attempt.measured is not None and current.noise is not None
        measures = self.measures
        trial = self._trial(attempt.candidate, current.best, measures.development)
        verdict, _ = self._judge(current, trial, CONFIRM_ALPHA)
        reasons = [
            f"repetition: {reason}" for reason in (*verdict.reasons, *self._check_trial(current, trial))
        ]
        hidden = self._trial(attempt.candidate, current.best, measures.hidden)
        hidden_gain = measure_gain(*log_ratios(hidden.rate_pairs()))
        first = attempt.measured
        seen = Gain(first["log_gain"], first["se"], first["dof"], {}, ())
        reasons += check_hidden(seen, hidden_gain, current.noise)
        reasons += self._check_trial(current, hidden, has_record=False)
        judgement = self._audit(hidden, measures.hidden.max_new_tokens)
        if judgement.passed is not True:
            reasons += [f"token forcing on hidden requests: {reason}" for reason in judgement.reasons]
        # Only the outcome of hidden requests is told, and one number for the record.
        shift = measure_gain(*log_ratios(trial.rate_pairs())).log_gain
        return reasons, {"repetition": asdict(verdict), "hidden_gain": hidden_gain.ratio, "rate_shift": shift}

    def _trial(self, candidate: System, control: System, plan: TrialPlan) -> Trial:
        seeded = replace(plan, seed=secrets.randbits(63))
        return run_trial(self.measures.slots, candidate, control, seeded, self.measures.clock)

    def _judge(self, current: Round, trial: Trial, alpha: float) -> tuple[SpeedVerdict, Gain]:
        assert current.noise is not None
        ratios, sizes = log_ratios(trial.rate_pairs())
        verdict = judge_speed(ratios, sizes, current.noise, alpha=alpha, has_diverged=trial.has_diverged)
        return verdict, measure_gain(ratios, sizes)

    def _check_trial(self, current: Round, trial: Trial, has_record: bool = True) -> list[str]:
        reasons = [
            *trial.faults,
            *check_lengths(trial, self.measures.end_of_thinking_id),
            *check_repeats(trial),
        ]
        if has_record:
            reasons += check_stock(trial, current.control_rates)
        return reasons

    def _audit(self, trial: Trial, max_new_tokens: int) -> Judgement:
        """Token forcing on one answer to each request, from a run and batch size drawn here."""
        chosen: dict[str, tuple[Measured, Measured]] = {}
        both = list(zip(trial.answers("candidate"), trial.answers("control"), strict=True))
        secrets.SystemRandom().shuffle(both)
        for mine, theirs in both:
            chosen.setdefault(mine.key, (mine, theirs))
        pairs = [chosen[key] for key in sorted(chosen)]
        return self.measures.audit([one for one, _ in pairs], [other for _, other in pairs], max_new_tokens)

    def _reply(self, entry: Entry, **values: Any) -> dict[str, Any]:
        """Every answer carries a receipt: the entry's place and hash."""
        return values | {"receipt": [entry.seq, entry.hash]}
