"""``python -m specpilot.controller.selftest.late_fault``: the fault that waits, at the limits in service.

Development answers stop at 2,048 tokens and sealed ones at 4,096; a bias of 2 on every 7th id starts after 2,048. Takes
tens of minutes; the test suite has the same with shorter limits. The bundled model's own answers are far shorter, so
end-of-text is ignored and it writes further turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specpilot.controller.measure import NUM_WARM_UP_TOKENS
from specpilot.controller.selftest.cheats import LateFault
from specpilot.controller.selftest.trials import Outcome, Sets, run_candidate
from specpilot.controller.selftest.truth import Truth
from specpilot.controller.selftest.world import Stock
from specpilot.controller.trial import TrialPlan
from specpilot.forcing import Rules
from specpilot.forcing.prompts import audit_prompts
from specpilot.models.build import build_engine
from specpilot.requests.sets import Prompt, build_set
from specpilot.requests.sources import bundled_requests
from specpilot.requests.splits import MAX_NEW_TOKENS

__all__ = ["main", "run_late_fault"]

_HONEST_SPEED = 1.1
_NUM_DEVELOPMENT = 8


def run_late_fault(
    truth: Truth,
    num_sealed: int,
    development_tokens: int,
    sealed_tokens: int,
    rules: Rules,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> dict[str, Any]:
    """An honest candidate and the faulty one through the same round.

    ``ok``: both are promoted, the honest one passes the sealed final, and token forcing refuses the faulty one there.
    """
    plans = _plans(truth, num_sealed, development_tokens, sealed_tokens)
    for plan in plans:
        asked = [one.prompt_ids for one in plan.prompts]
        on_stage(f"decoding {len(asked)} answers of {plan.max_new_tokens:,} tokens")
        truth.prepare(asked, plan.max_new_tokens)
        truth.prepare([ids[::-1] for ids in asked], NUM_WARM_UP_TOKENS)
    asked = [one.prompt_ids for one in plans[2].prompts]
    on_stage("decoding with the fault")
    truth.prepare_biased(asked, sealed_tokens, after=development_tokens)
    sets = Sets(*plans, end_of_thinking_id=truth.eos_id)
    report: dict[str, Any] = {
        "development_tokens": development_tokens,
        "sealed_tokens": sealed_tokens,
        "sealed_requests": num_sealed,
        "changed_answers": sum(
            truth.answer(ids, sealed_tokens) != truth.biased(ids, sealed_tokens, development_tokens)
            for ids in asked
        ),
        "max_audited": rules.max_audited,
    }
    candidates = {"honest": Stock(_HONEST_SPEED), "faulty": LateFault(development_tokens)}
    with tempfile.TemporaryDirectory() as name:
        outcomes = {}
        for who, system in candidates.items():
            on_stage(f"a round of the {who} candidate")
            folder = Path(name) / who
            folder.mkdir()
            outcomes[who] = run_candidate(truth, sets, system, folder, is_sealed=True, rules=rules)
            report[who] = _shown(outcomes[who])
    honest, faulty = outcomes["honest"], outcomes["faulty"]
    is_found = faulty.is_final_accepted is False and any(
        one.startswith(LateFault.reasons) for one in faulty.reasons
    )
    return {"ok": honest.is_final_accepted is True and faulty.is_promoted and is_found} | report


def _plans(
    truth: Truth, num_sealed: int, development_tokens: int, sealed_tokens: int
) -> tuple[TrialPlan, TrialPlan, TrialPlan]:
    render = truth.engine.apply_chat_template
    development = build_set(bundled_requests(), "development", render, tokenizer_sha256="").prompts
    drawn = [
        Prompt(one.request_id, "drawn", 1, tuple(render([{"role": "user", "content": one.text}])))
        for one in audit_prompts(_NUM_DEVELOPMENT + num_sealed)
    ]
    hidden, sealed = drawn[:_NUM_DEVELOPMENT], drawn[_NUM_DEVELOPMENT:]
    return (
        TrialPlan(development[:_NUM_DEVELOPMENT], development_tokens, num_repeats=4),
        TrialPlan(tuple(hidden), development_tokens, num_repeats=0),
        TrialPlan(tuple(sealed), sealed_tokens, num_repeats=0),
    )


def _shown(outcome: Outcome) -> dict[str, Any]:
    return {
        "promoted": outcome.is_promoted,
        "final_accepted": outcome.is_final_accepted,
        "stage": outcome.stage,
        "reasons": list(outcome.reasons),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=24, help="sealed ones")
    parser.add_argument("--development-tokens", type=int, default=MAX_NEW_TOKENS["development"])
    parser.add_argument("--sealed-tokens", type=int, default=MAX_NEW_TOKENS["sealed"])
    parser.add_argument("--max-audited", type=int, default=Rules.max_audited, help="events, at least")
    parser.add_argument("--min-tokens", type=int, default=Rules.min_tokens)
    parser.add_argument("--num-threads", type=int)
    options = parser.parse_args(arguments)
    truth = Truth(build_engine(None, mode="judge", num_threads=options.num_threads), ignore_eos=True)
    report = run_late_fault(
        truth,
        options.requests,
        options.development_tokens,
        options.sealed_tokens,
        Rules(min_tokens=options.min_tokens, max_audited=options.max_audited),
        lambda stage: print(stage, file=sys.stderr, flush=True),
    )
    print(json.dumps(report, indent=2))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
