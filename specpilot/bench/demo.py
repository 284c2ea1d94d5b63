"""The demo: are the ids of speculative decoding equal to plain ones, and how much sooner do they come?

Equality is a statement about judge mode. Times come from serve mode, where both ways take turns in one
process; where serve mode departs from judge mode, the place and its margin are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from specpilot.bench.answer import Answer, decode_answer
from specpilot.bench.rows import output_rate, rate_ratio
from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.errors import Unsupported
from specpilot.metrics import AcceptCounter

__all__ = ["find_divergence", "num_answers", "run_demo"]

_WARM_UP_TOKENS = 16
_Arm = str | None


def run_demo(
    judge: Engine,
    serve: Engine,
    prompts: Sequence[str],
    max_new_tokens: int,
    on_answer: Callable[[], None] = lambda: None,
    mechanisms: Mechanisms = STOCK,
) -> dict[str, Any]:
    """The report as a JSON object, every drafter with ``mechanisms``.

    ``on_answer`` is called ``num_answers(...)`` times, once an answer.
    """
    drafters = judge.describe().drafters
    if not drafters:
        raise Unsupported("demo: this model has no drafter; give one that has")
    arms: list[_Arm] = [None, *drafters]
    sampling = SamplingParams(max_new_tokens=max_new_tokens)
    prompt_ids = [judge.apply_chat_template([{"role": "user", "content": prompt}]) for prompt in prompts]

    def request(index: int, sampling: SamplingParams, arm: _Arm) -> GenerateRequest:
        own = STOCK if arm is None else mechanisms
        return GenerateRequest(prompt_ids[index], sampling, arm, mechanisms=own)

    def decode(engine: Engine, index: int, arm: _Arm) -> Answer:
        answer = decode_answer(engine, request(index, sampling, arm))
        on_answer()
        return answer

    judged = [{arm: decode(judge, index, arm) for arm in arms} for index in range(len(prompts))]
    warm_up = SamplingParams(max_new_tokens=_WARM_UP_TOKENS, ignore_eos=True)
    for arm in arms:
        decode_answer(serve, request(0, warm_up, arm))
    served: list[dict[_Arm, list[Answer]]] = []
    for index in range(len(prompts)):
        answers: dict[_Arm, list[Answer]] = {arm: [] for arm in arms}
        # Forth and back over the arms (A B B A): a steady drift of the machine falls on all of them alike.
        for arm in (*arms, *reversed(arms)):
            answers[arm].append(decode(serve, index, arm))
        served.append(answers)

    def departures(answers: Sequence[dict[_Arm, Answer]], of: Sequence[_Arm]) -> list[dict[str, Any]]:
        """Where answers leave judge mode's plain one."""
        found = [
            find_divergence(
                judge, prompt_ids[index], judged[index][None].token_ids, answers[index][arm].token_ids
            )
            | {"prompt_index": index, "drafter": arm or "none"}
            for index in range(len(prompts))
            for arm in of
            if answers[index][arm].token_ids != judged[index][None].token_ids
        ]
        return found

    unequal = departures(judged, drafters)
    return {
        "ids_equal": not unequal,
        "drafters": {name: _speed(name, served) for name in drafters},
        "plain": {"tok_s": output_rate(answer for answers in served for answer in _counted(answers[None]))},
        "judge": {"unequal": unequal},
        "serve": {
            "num_answers": len(prompts) * len(arms),
            "first_divergences": departures(
                [{arm: runs[0] for arm, runs in a.items()} for a in served], arms
            ),
        },
        "num_prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "mechanisms": asdict(mechanisms),
        "engine": asdict(serve.describe()),
    }


def num_answers(num_prompts: int, num_drafters: int) -> int:
    """Answers that ``run_demo`` decodes: one per arm in judge mode, two in serve mode."""
    return 3 * num_prompts * (1 + num_drafters)


def find_divergence(
    judge: Engine, prompt_ids: Sequence[int], judge_ids: Sequence[int], other_ids: Sequence[int]
) -> dict[str, Any]:
    """First position where two different answers part, and how sure the judge is there.

    ``margin_nats`` is the log-probability of the judge's token minus that of the other one, both
    teacher-forced; it is None, like the id, where one of the answers had already ended.
    """
    shared = min(len(judge_ids), len(other_ids))
    position = next((i for i in range(shared) if judge_ids[i] != other_ids[i]), shared)
    judge_id = judge_ids[position] if position < len(judge_ids) else None
    other_id = other_ids[position] if position < len(other_ids) else None
    margin = None
    if judge_id is not None and other_id is not None:
        context = [*prompt_ids, *judge_ids[:position]]
        chosen, other = (
            judge.score([*context, token], len(context)).logprobs[0] for token in (judge_id, other_id)
        )
        margin = chosen - other
    return {"position": position, "judge_id": judge_id, "other_id": other_id, "margin_nats": margin}


def _counted(answers: Sequence[Answer]) -> list[Answer]:
    return [answer.before_loop() for answer in answers]


def _speed(drafter: str, served: Sequence[dict[_Arm, list[Answer]]]) -> dict[str, Any]:
    speculative = [_counted(answers[drafter]) for answers in served]
    plain = [_counted(answers[None]) for answers in served]
    steps = AcceptCounter(step for answers in speculative for answer in answers for step in answer.steps)
    return {
        "tau": steps.tau,
        "speedup_over_ar": rate_ratio(speculative, plain),
        "tok_s": output_rate(answer for answers in speculative for answer in answers),
        "accept_by_position": steps.accept_by_position,
    }
