"""A system inside this process: any engine of the contract. Quick, and nothing is isolated from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from specpilot.controller.slots.base import Arm, Endpoint, Piece, System
from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.errors import ConfigError

__all__ = ["EngineEndpoint", "EngineSlot"]


class EngineEndpoint:
    """Greedy answers of an engine with a drafter (None: plainly) and its mechanisms."""

    def __init__(self, engine: Engine, drafter: str | None, mechanisms: Mechanisms = STOCK) -> None:
        self._engine, self._drafter, self._mechanisms = engine, drafter, mechanisms

    def answer(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Piece]:
        sampling = SamplingParams(max_new_tokens=max_new_tokens)
        request = GenerateRequest(tuple(prompt_ids), sampling, self._drafter, mechanisms=self._mechanisms)
        num_steps = 0
        for chunk in self._engine.generate(request):
            num_steps += chunk.step is not None
            yield Piece(chunk.token_ids, chunk.finish_reason, num_steps)


class EngineSlot:
    """Systems are ``System(name, extra={"drafter": ..., "builder": ..., "num_nodes": ...})`` of one engine."""

    is_isolated = False

    def __init__(self, engine: Engine, name: str = "embedded") -> None:
        self.name, self._engine = name, engine

    @contextmanager
    def run(self, system: System, arm: Arm) -> Iterator[Endpoint]:
        options = dict(system.extra)
        drafter = options.pop("drafter", None)
        try:
            mechanisms = Mechanisms(**options)
        except TypeError as error:
            raise ConfigError(f"system {system.name}: {error}") from None
        yield EngineEndpoint(self._engine, drafter, STOCK if drafter is None else mechanisms)

    def environment(self) -> Mapping[str, str]:
        about = self._engine.describe()
        return {
            "engine": about.engine,
            "model": about.model_id,
            "device": about.device,
            "mode": about.numeric_mode,
        }

    def notes(self) -> Mapping[str, float]:
        return {}
