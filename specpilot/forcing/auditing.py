"""An audit: score a system's answers and stock's, apply both rules, audit the events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from specpilot.errors import ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.arm import ScoredArm, score_arm
from specpilot.forcing.check import check_tokenizer
from specpilot.forcing.events import Event, EventTest, audit_order, event_test
from specpilot.forcing.explain import explain_event
from specpilot.forcing.rates import RateTest, rate_interval, rate_test
from specpilot.forcing.rules import MAX_STOCK_EVENTS, MAX_STOCK_RATE, Rules
from specpilot.forcing.scorers.base import Scorer, ScorerDescription
from specpilot.forcing.verdict import Verdict

__all__ = ["Progress", "audit", "judge"]

Progress = Callable[[str, int, int], None]
"""Told the stage, and how much of how much of it is done."""


def audit(
    outputs: Sequence[Answer],
    scorer: Scorer,
    *,
    rules: Rules,
    stock: Sequence[Answer] | ScoredArm,
    tokenizer: str | None = None,
    accuracy: Mapping[str, Any] | None = None,
    seed: int = 0,
    on_progress: Progress = lambda stage, done, total: None,
) -> Verdict:
    """Is the system that gave ``outputs`` lossless, as far as these can tell?

    Parameters
    ----------
    outputs
        The system's greedy answers.
    stock
        Stock's greedy answers to the same requests and prompts: a system that leaves some of them out, or answers
        others, cannot be judged. Or these already scored by this scorer under these rules (:func:`score_arm`).
    tokenizer
        ``hash_tokenizer`` of the served model, compared with the scorer's.
    accuracy
        Goes into the verdict as it is (:mod:`specpilot.forcing.accuracy`).
    seed
        Chooses the requests whose events are audited.
    on_progress
        Told the stage (``stock``, ``system``, ``events``), and how many tokens or events of how many are done.

    Returns
    -------
    Verdict
        ``passed`` None where the input cannot be judged: ForcingError is raised by the parts, and never here.
    """
    about = scorer.describe()
    try:
        check_tokenizer(tokenizer, about)
        if not isinstance(stock, ScoredArm):
            stock = score_arm(stock, scorer, rules, "stock", _counter(on_progress, "stock", stock))
        system = score_arm(outputs, scorer, rules, "system", _counter(on_progress, "system", outputs))
        return judge(system, stock, scorer, rules, accuracy=accuracy, seed=seed, on_progress=on_progress)
    except ForcingError as error:
        return Verdict.unavailable(str(error), scorer=asdict(about), limits={"rules": rules.to_json()})


def judge(
    system: ScoredArm,
    stock: ScoredArm,
    scorer: Scorer,
    rules: Rules,
    *,
    accuracy: Mapping[str, Any] | None = None,
    seed: int = 0,
    is_complete: bool = True,
    on_progress: Progress = lambda stage, done, total: None,
) -> Verdict:
    """Both rules on scored arms; ForcingError where they say too little.

    ``is_complete`` False: stock answered more requests, as at a planned look before the last.
    """
    for name, arm in (("system", system), ("stock", stock)):
        counts = arm.counts
        if counts.num_requests < rules.min_requests or counts.num_tokens < rules.min_tokens:
            raise ForcingError(
                f"{name}: got {counts.num_requests} requests with {counts.num_tokens} tokens, expected at least "
                f"{rules.min_requests} with {rules.min_tokens}; a verdict over less would say nothing"
            )
    _check_requests(system, stock, is_complete)
    _check_stock(stock)
    rates = rate_test(
        system.counts, stock.counts, limit=rules.rate_limit, level=rules.rate_level / rules.num_looks
    )
    sizes = [len(group) for group in system.events]
    order = audit_order(sizes, rules.max_audited, seed, rules.fewest_requests)
    audited = _explain_all(system, stock, order, scorer, rules, on_progress)
    hit = {event.request_id for event in audited if event.is_unexplained}
    events = event_test(
        len(hit),
        int((stock.counts.large > 0).sum()),
        int(system.counts.tokens[order].sum()),
        stock.counts.num_tokens,
        rules.event_level / rules.num_looks,
    )
    reasons = tuple(_reasons(rates, events))
    seen = {(event.request_id, event.index) for event in audited}
    rest = [e for group in system.events for e in group if (e.request_id, e.index) not in seen]
    return Verdict(
        not reasons,
        reasons,
        counts={
            "system": _counts(system)
            | {
                "audited_events": len(audited),
                "audited_requests": len(order),
                "unexplained_events": sum(event.is_unexplained for event in audited),
                "unexplained_requests": len(hit),
            },
            "stock": _counts(stock),
        },
        intervals={
            "system": _interval(system),
            "stock": _interval(stock),
            "difference": {"value": rates.difference, "lower": rates.lower},
        },
        limits={
            "rules": rules.to_json(),
            "rate": rates.limit,
            "stock_rate": MAX_STOCK_RATE,
            "stock_events": MAX_STOCK_EVENTS,
            "large_margin": rules.large_margin,
            "event_p_value": events.p_value,
            "event_level": events.level,
            "stock_requests_with_events": events.num_stock,
            "event_exposure_tokens": {"system": events.system_tokens, "stock": events.stock_tokens},
            "detectable_rate": rates.detectable,
            "detectable_requests": events.reject_at,
        },
        events=tuple(sorted([*audited, *rest], key=lambda e: (e.request_id, e.index))),
        scorer=asdict(scorer.describe()),
        accuracy=accuracy,
        notes=tuple(_notes(scorer.describe(), system, stock)),
    )


def _check_requests(system: ScoredArm, stock: ScoredArm, is_complete: bool) -> None:
    """The same requests: one that the system leaves out may be the one that went wrong."""
    prompts = {answer.request_id: list(answer.prompt_ids) for answer in stock.answers}
    mine = {answer.request_id: list(answer.prompt_ids) for answer in system.answers}
    missing = sorted(prompts.keys() - mine.keys()) if is_complete else []
    for arm, absent in (("system", missing), ("stock", sorted(mine.keys() - prompts.keys()))):
        if absent:
            shown = ", ".join(map(repr, absent[:5])) + (", ..." if len(absent) > 5 else "")
            raise ForcingError(
                f"{arm}: {len(absent)} requests of the other arm have no answer ({shown}), expected the same requests"
            )
    for name, ids in mine.items():
        if prompts[name] != ids:
            raise ForcingError(f"request {name!r}: stock and the system got other prompts")


def _check_stock(stock: ScoredArm) -> None:
    """Both arms are compared with each other, so a scorer that fits neither would accept both."""
    counts = stock.counts
    share = float(counts.large.sum()) / counts.num_tokens
    if counts.rate > MAX_STOCK_RATE or share > MAX_STOCK_EVENTS:
        raise ForcingError(
            f"stock does not agree with the scorer: {counts.rate:.2%} of its tokens mismatch and {share:.2%} are "
            f"large-margin events, expected at most {MAX_STOCK_RATE:.2%} and {MAX_STOCK_EVENTS:.2%}; one of the two is "
            "not the target"
        )


def _explain_all(
    system: ScoredArm,
    stock: ScoredArm,
    order: Sequence[int],
    scorer: Scorer,
    rules: Rules,
    on_progress: Progress,
) -> list[Event]:
    paths = {answer.request_id: answer for answer in stock.answers}
    total = sum(len(system.events[row]) for row in order)
    audited: list[Event] = []

    def explain(event: Event, answer: Answer) -> Event:
        return explain_event(event, answer, paths.get(event.request_id), scorer, rules.large_margin)

    with ThreadPoolExecutor(4) as pool:
        todo = [(event, row) for row in order for event in system.events[row]]
        first = todo[: rules.max_audited]
        for event in pool.map(lambda pair: explain(pair[0], system.answers[pair[1]]), first):
            audited.append(event)
            on_progress("events", len(audited), total)
        # Beyond the limit a request is asked only whether it has an unexplained event at all, which is what counts.
        hit = {event.request_id for event in audited if event.is_unexplained}
        rest: dict[int, list[Event]] = {}
        for event, row in todo[rules.max_audited :]:
            if event.request_id not in hit:
                rest.setdefault(row, []).append(event)
        for found in pool.map(lambda row: _until_unexplained(rest[row], system.answers[row], explain), rest):
            audited += found
            on_progress("events", len(audited), total)
    if len(audited) < total:
        on_progress("events", total, total)
    return audited


def _until_unexplained(
    events: Sequence[Event], answer: Answer, explain: Callable[[Event, Answer], Event]
) -> list[Event]:
    found: list[Event] = []
    for event in events:
        found.append(explain(event, answer))
        if found[-1].is_unexplained:
            break
    return found


def _reasons(rates: RateTest, events: EventTest) -> list[str]:
    reasons = []
    if rates.is_rejected:
        reasons.append(
            f"rate rule: the mismatch rate is {rates.difference:+.2%} of tokens above stock's, at least "
            f"{rates.lower:+.2%}; the limit is {rates.limit:+.2%}"
        )
    if events.is_rejected:
        reasons.append(
            f"event rule: unexplained large-margin events in {events.num_system} requests over {events.system_tokens} "
            f"tokens, stock in {events.num_stock} over {events.stock_tokens}: p = {events.p_value:.2g}, below "
            f"{events.level:.2g}"
        )
    return reasons


def _counts(arm: ScoredArm) -> dict[str, int]:
    return {
        "requests": arm.counts.num_requests,
        "tokens": arm.counts.num_tokens,
        "mismatches": int(arm.counts.mismatches.sum()),
        "large_events": int(arm.counts.large.sum()),
    }


def _interval(arm: ScoredArm) -> dict[str, float]:
    low, high = rate_interval(arm.counts)
    return {"rate": arm.counts.rate, "low": low, "high": high}


def _notes(about: ScorerDescription, system: ScoredArm, stock: ScoredArm) -> list[str]:
    notes = []
    if about.head != "fp32":
        notes.append(f"the scorer's LM head is {about.head}: near-ties may fall either way in the scores too")
    if system.counts.request_ids != stock.counts.request_ids:
        notes.append("stock answered more requests than the system: rates are compared unpaired")
    if about.tokenizer is None:
        notes.append(
            "the scorer does not tell its tokenizer: that the same ids mean the same text was not checked"
        )
    if about.vocab_size is None:
        notes.append("the scorer does not tell the size of its vocabulary: no id was compared with it")
    return notes


def _counter(on_progress: Progress, stage: str, answers: Sequence[Answer]) -> Callable[[int], None]:
    done, total = 0, 0

    def count(num_tokens: int) -> None:
        nonlocal done, total
        # Only now: by the first call the answers have been checked.
        total = total or sum(len(answer.output_ids) for answer in answers)
        done += num_tokens
        on_progress(stage, done, total)

    return count
