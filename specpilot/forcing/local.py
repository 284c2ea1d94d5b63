"""An audit of an embedded engine with mechanisms, against the reference engine in judge mode."""

from __future__ import annotations

from specpilot.engines.base import Engine
from specpilot.engines.mechanisms import Mechanisms
from specpilot.errors import SpecPilotError
from specpilot.forcing.accuracy import accuracy_change
from specpilot.forcing.answer import Answer
from specpilot.forcing.auditing import Progress, audit
from specpilot.forcing.calibrate import first_departures
from specpilot.forcing.collect import Prompt, collect_answers
from specpilot.forcing.prompts import audit_prompts, grade_answers
from specpilot.forcing.rules import Rules, delta_from_margins
from specpilot.forcing.scorers.base import hash_tokenizer
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.forcing.verdict import Verdict
from specpilot.models.build import build_engine

__all__ = ["run_local_audit"]


def run_local_audit(
    engine: Engine,
    model: str | None,
    drafter: str | None,
    mechanisms: Mechanisms,
    num_prompts: int,
    max_new_tokens: int,
    seed: int = 0,
    delta: float | None = None,
    *,
    on_progress: Progress = lambda stage, done, total: None,
) -> Verdict:
    """The verdict on ``engine`` with these mechanisms; unavailable where it refuses them.

    ``model`` is the checkpoint the engine was built from: stock and scorer are a second engine over it, in judge mode.
    """
    judge_engine = build_engine(model, mode="judge", max_running=8)
    stock_drafter = judge_engine.describe().default_drafter
    scorer = EngineScorer(judge_engine, drafter=stock_drafter)
    questions = audit_prompts(num_prompts, seed)
    prompts: list[Prompt] = [
        (one.request_id, engine.apply_chat_template([{"role": "user", "content": one.text}]))
        for one in questions
    ]

    def collect(stage: str, source: Engine, name: str | None, how: Mechanisms) -> list[Answer]:
        done = 0

        def count(num_tokens: int) -> None:
            nonlocal done
            done += 1
            on_progress(stage, done, len(prompts))

        return collect_answers(source, prompts, max_new_tokens, drafter=name, mechanisms=how, on_answer=count)

    try:
        stock = collect("stock answers", judge_engine, stock_drafter, Mechanisms())
        if delta is None:
            plain = collect("plain answers", judge_engine, None, Mechanisms())
            delta = delta_from_margins(first_departures(plain, stock, scorer))
        system = collect("system answers", engine, drafter, mechanisms)
        rules = Rules(delta=delta)
        grades = [grade_answers(questions, answers, engine.detokenize) for answers in (system, stock)]
    except SpecPilotError as error:
        return Verdict.unavailable(str(error))
    served = hash_tokenizer(engine.describe().vocab_size, engine.token_bytes)
    return audit(
        system,
        scorer,
        rules=rules,
        stock=stock,
        tokenizer=served,
        accuracy=accuracy_change(grades[0], grades[1]),
        seed=seed,
        on_progress=on_progress,
    )
