"""An audit of a server that is in service, with our own prompts.

Scored by a second engine (the reference engine over the same checkpoint), or in the live engine itself with every
mechanism bypassed, once a probe set has passed and the weights have been hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from specpilot.errors import ForcingError, SpecPilotError
from specpilot.forcing.accuracy import accuracy_change
from specpilot.forcing.answer import Answer
from specpilot.forcing.auditing import Progress, audit
from specpilot.forcing.calibrate import first_departures
from specpilot.forcing.collect import Prompt, collect_answers
from specpilot.forcing.probe import BUNDLED_PROBE, Probe, check_probe, check_tensors
from specpilot.forcing.prompts import audit_prompts, grade_answers
from specpilot.forcing.rules import Rules, delta_from_margins
from specpilot.forcing.scorers.base import Scorer, ScorerDescription, hash_tokenizer
from specpilot.forcing.scorers.completions import CompletionsScorer
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.forcing.scorers.http import JsonServer
from specpilot.forcing.served import served_answers
from specpilot.forcing.verdict import Verdict
from specpilot.models.build import build_engine
from specpilot.models.folders import BUNDLED_MODEL_ID, model_folders
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.tokenizer import ChatTokenizer

__all__ = ["LiveAudit", "ScoredBy", "run_live_audit"]

ScoredBy = Literal["second", "live"]

_PLAIN = {"speculation": {"drafter": "none"}}
_CHAIN = {"speculation": {"builder": "chain"}}
_PROBE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class LiveAudit:
    """What to audit and how.

    Attributes
    ----------
    url
        The server, without the paths of its API. It must know ``return_token_ids``, and ``echo`` to score itself.
    model
        The checkpoint it serves, as ``build_engine`` takes it; None: the bundled model.
    scored_by
        ``second`` engine, or the ``live`` one.
    probe
        For ``live``; None: the bundled model's.
    delta
        None: calibrated from stock's departures on these prompts.
    """

    url: str
    model: str | None = None
    scored_by: ScoredBy = "second"
    num_prompts: int = 64
    max_new_tokens: int = 128
    seed: int = 0
    probe: Path | None = None
    delta: float | None = None
    key: str | None = None


def run_live_audit(what: LiveAudit, on_progress: Progress = lambda stage, done, total: None) -> Verdict:
    """The verdict; unavailable with the cause where the server or the model cannot be audited."""
    try:
        return _run(what, on_progress)
    except SpecPilotError as error:
        return Verdict.unavailable(str(error))


def _run(what: LiveAudit, on_progress: Progress) -> Verdict:
    server = JsonServer(what.url, key=what.key)
    name, folder, _ = model_folders(what.model)
    tokenizer = ChatTokenizer.from_folder(folder)
    questions = audit_prompts(what.num_prompts, what.seed)
    prompts: list[Prompt] = [
        (one.request_id, tokenizer.encode_chat([{"role": "user", "content": one.text}])) for one in questions
    ]
    served = CompletionsScorer(server)

    def ask(stage: str, extra: dict[str, Any]) -> list[Answer]:
        return served_answers(
            server,
            prompts,
            what.max_new_tokens,
            model=served.model,
            extra=extra,
            decode=tokenizer.decode,
            on_answer=_count(on_progress, stage, len(prompts)),
        )

    notes: list[str] = []
    scorer: Scorer
    if what.scored_by == "live":
        config = TargetConfig.from_json(folder)
        about = ScorerDescription(
            f"the live engine at {server.url}, mechanisms bypassed",
            served.model,
            "fp32" if name == BUNDLED_MODEL_ID else "unknown",
            config.vocab_size,
            config.eos_ids,
            hash_tokenizer(config.vocab_size, tokenizer.token_bytes),
            config.context_length,
        )
        scorer = CompletionsScorer(server, served.model, about=about, extra=_PLAIN)
        notes += _trust(what, scorer, folder)
        stock, plain = ask("stock answers", _CHAIN), ask("plain answers", _PLAIN)
    else:
        engine = build_engine(what.model, mode="judge", max_running=4, max_waiting=what.num_prompts)
        drafter = engine.describe().default_drafter
        scorer = EngineScorer(engine, drafter=drafter)
        stock = _second(engine, prompts, what, drafter, on_progress, "stock answers")
        plain = _second(engine, prompts, what, None, on_progress, "plain answers")
    system = ask("served answers", {})
    rules = Rules(delta=what.delta or delta_from_margins(first_departures(plain, stock, scorer)))
    grades = [grade_answers(questions, answers, tokenizer.decode) for answers in (system, stock)]
    verdict = audit(
        system,
        scorer,
        rules=rules,
        stock=stock,
        accuracy=accuracy_change(grades[0], grades[1]),
        seed=what.seed,
        on_progress=on_progress,
    )
    return replace(verdict, notes=(*verdict.notes, *notes))


def _trust(what: LiveAudit, scorer: Scorer, folder: Path) -> list[str]:
    """ForcingError unless the live engine may score: probe set and weights."""
    if what.probe is None and what.model not in (None, BUNDLED_MODEL_ID):
        raise ForcingError(
            "probe: scoring in the live engine needs a probe set of this model; make one with "
            "python -m specpilot.forcing.make_probe --model FOLDER"
        )
    probe = Probe.read(what.probe or BUNDLED_PROBE)
    worst = check_probe(probe, scorer, _PROBE_TOLERANCE)
    count = check_tensors(folder, probe.tensors)
    return [
        f"scored in the live engine: the probe set passed (largest difference {worst:.2g} nats), sha256 of {count} "
        "decoded tensors as recorded"
    ]


def _second(
    engine: ReferenceEngine,
    prompts: list[Prompt],
    what: LiveAudit,
    drafter: str | None,
    on_progress: Progress,
    stage: str,
) -> list[Answer]:
    count = _count(on_progress, stage, len(prompts))
    return collect_answers(
        engine, prompts, what.max_new_tokens, drafter=drafter, concurrency=4, on_answer=count
    )


def _count(on_progress: Progress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def count(num_tokens: int) -> None:
        nonlocal done
        done += 1
        on_progress(stage, done, total)

    return count
