"""Puts a controller together from its configuration, with the engine that scores, and serves it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specpilot.controller.clock import SystemClock
from specpilot.controller.config import ControllerConfig
from specpilot.controller.controller import Controller
from specpilot.controller.forcing_audit import ForcingAudit
from specpilot.controller.isolation import hash_code
from specpilot.controller.ledger import Ledger
from specpilot.controller.measures import Measures
from specpilot.controller.server import Server, operators_of
from specpilot.controller.slots.base import Slot, System
from specpilot.controller.slots.engine import EngineSlot
from specpilot.controller.slots.process import ProcessSlot
from specpilot.controller.snapshots import take_tree
from specpilot.controller.spawner import Spawner
from specpilot.controller.trial import TrialPlan
from specpilot.engines.base import Engine
from specpilot.errors import RequestError
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.models.build import build_engine
from specpilot.requests.sets import RequestSet, build_set, read_set
from specpilot.requests.sources import bundled_requests
from specpilot.requests.splits import Split

__all__ = ["make_controller", "serve", "system_of"]


def serve(config: ControllerConfig, spawner: Spawner | None) -> None:
    """Until the process is ended."""
    controller = make_controller(config, spawner)
    agents = () if config.users is None else config.users.agents
    server = Server(
        config.socket,
        controller,
        agents=agents,
        operators=operators_of(agents),
        take_system=lambda data: system_of(data, config),
    )
    server.serve()


def make_controller(config: ControllerConfig, spawner: Spawner | None) -> Controller:
    engine = build_engine(config.model, mode="judge")
    development = _requests(config, "development", engine)
    sealed = _requests(config, "sealed", engine)
    hidden_prompts, sealed_prompts = sealed.prompts[0::2], sealed.prompts[1::2]
    sizes, runs, most = config.batch_sizes, config.num_runs, development.header.max_new_tokens
    repeats = min(8, len(development.prompts))
    slots = _slots(config, spawner, engine)
    measures = Measures(
        slots=slots,
        development=TrialPlan(development.prompts, most, sizes, runs, repeats),
        hidden=TrialPlan(hidden_prompts, most, sizes, runs, 0),
        sealed=TrialPlan(sealed_prompts, sealed.header.max_new_tokens, sizes, runs, 0),
        audit=ForcingAudit(EngineScorer(engine), config.rules),
        clock=SystemClock(),
        environment=lambda: _environment(config, slots, (development, sealed)),
        end_of_thinking_id=config.end_of_thinking_id,
        num_null_trials=config.num_null_trials,
    )
    return Controller(Ledger(config.private / "ledger.sqlite"), measures)


def system_of(data: Mapping[str, Any], config: ControllerConfig) -> System:
    """What a caller names: ``name``, ``arguments``, ``tree`` (a folder) or, inside the controller, ``extra``."""
    known = {"name", "arguments", "tree", "extra"}
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str) or data.keys() - known:
        raise RequestError(f"system: got {data!r}, expected an object with name, arguments, tree or extra")
    arguments = data.get("arguments", [])
    extra = data.get("extra", {})
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise RequestError(f"system: arguments: got {arguments!r}, expected a list of strings")
    if not isinstance(extra, dict) or (extra and config.launch):
        raise RequestError(
            f"system: extra: got {extra!r}, expected an object, and only inside the controller"
        )
    tree = data.get("tree")
    if tree is not None and not config.launch:
        raise RequestError(
            "system: tree: got a folder, but systems run inside the controller; configure launch"
        )
    taken = None if tree is None else take_tree(Path(str(tree)), config.trees)
    return System(data["name"], (*config.stock_arguments, *arguments), taken, extra)


def _requests(config: ControllerConfig, split: Split, engine: Engine) -> RequestSet:
    given = getattr(config, split)
    if given is None:
        return build_set(bundled_requests(), split, engine.apply_chat_template, tokenizer_sha256="bundled")
    copy = config.private / f"{split}.jsonl"
    return read_set(copy if copy.exists() else Path(given))


def _slots(config: ControllerConfig, spawner: Spawner | None, engine: Engine) -> tuple[Slot, ...]:
    if config.users is None or spawner is None:
        return tuple(EngineSlot(engine, slot.name) for slot in config.slots)
    return tuple(
        ProcessSlot(
            slot.name,
            spawner,
            config.users,
            list(config.launch),
            {**config.environment, **slot.environment},
            config.trees,
            config.start_limit_s,
        )
        for slot in config.slots
    )


def _environment(
    config: ControllerConfig, slots: tuple[Slot, ...], sets: tuple[RequestSet, ...]
) -> Mapping[str, str]:
    """What a round is measured under; any change ends it."""
    found = {
        "kernel": platform.release(),
        "machine": platform.node(),
        "python": platform.python_version(),
        "processors": str(os.cpu_count()),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "requests": " ".join(one.header.prompts_sha256 for one in sets),
        "rules": str(config.rules),
    }
    code = config.private / "code"
    if code.exists():
        found["controller's code"] = hash_code(code)
    for slot in slots:
        found |= {f"{slot.name}: {name}": value for name, value in slot.environment().items()}
    return found
