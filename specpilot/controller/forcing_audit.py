"""Token forcing as the controller runs it: its own scorer, its own rules, functions that nobody replaced meanwhile."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType

import specpilot.forcing.arm
import specpilot.forcing.auditing
import specpilot.forcing.check
import specpilot.forcing.events
import specpilot.forcing.rates
from specpilot.controller.measure import Measured
from specpilot.controller.measures import Judgement
from specpilot.forcing import Answer, Rules, Scorer, audit

__all__ = ["ForcingAudit"]

_MODULES = (
    specpilot.forcing.arm,
    specpilot.forcing.auditing,
    specpilot.forcing.check,
    specpilot.forcing.events,
    specpilot.forcing.rates,
)


class ForcingAudit:
    """An :data:`specpilot.controller.measures.Audit`.

    The functions that judge are compared with what they were at start: a thing put in their place in this process is a
    reason for refusal. It is the second line; the first is that candidates run in other processes.
    """

    def __init__(self, scorer: Scorer, rules: Rules | None = None) -> None:
        self._scorer, self._rules = scorer, rules or Rules()
        self._known = self._functions()

    def __call__(
        self, candidate: Sequence[Measured], stock: Sequence[Measured], max_new_tokens: int
    ) -> Judgement:
        now = self._functions()
        if changed := sorted(name for name in now if now[name] is not self._known.get(name)):
            return Judgement(None, (f"scorer: {', '.join(changed)} of this process was replaced",), {})
        outputs, paths = (_answers(arm, max_new_tokens) for arm in (candidate, stock))
        verdict = audit(outputs, self._scorer, rules=self._rules, stock=paths)
        report = verdict.to_json()
        # Events carry contexts; the ledger keeps their number, the verdict's counts have it.
        report.pop("events")
        return Judgement(verdict.passed, verdict.reasons, report)

    def _functions(self) -> dict[str, object]:
        """The code that judges, by name: of the modules, and of the scorer's class."""
        found: dict[str, object] = {}
        for module in _MODULES:
            for name, value in vars(module).items():
                if inspect.isfunction(value):
                    found[f"{module.__name__}.{name}"] = value.__code__
        for name in dir(self._scorer):
            value = getattr(self._scorer, name)
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                found[f"{type(self._scorer).__name__}.{name}"] = function.__code__
        return found


def _answers(measured: Sequence[Measured], max_new_tokens: int) -> list[Answer]:
    return [
        Answer(one.key, one.prompt_ids, one.output_ids, one.finish_reason, max_new_tokens) for one in measured
    ]
