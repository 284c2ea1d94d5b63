"""What is compared: arms on an engine in this process, on one server, or on servers of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specpilot.controller.slots.base import Endpoint
from specpilot.controller.slots.engine import EngineEndpoint
from specpilot.controller.slots.http import HttpEndpoint, list_models
from specpilot.engines.base import Engine
from specpilot.engines.mechanisms import Mechanisms
from specpilot.errors import ConfigError

__all__ = [
    "AR",
    "CANDIDATE",
    "DDTREE",
    "STOCK",
    "Arm",
    "StockChoice",
    "engine_arms",
    "own_arms",
    "server_arms",
]

AR, STOCK, DDTREE, CANDIDATE = "AR", "stock", "DDTree", "candidate"


@dataclass(frozen=True)
class StockChoice:
    """Upstream options: a drafter's chain, ``positions`` None as it was trained."""

    drafter: str
    positions: int | None = None

    @property
    def label(self) -> str:
        return self.drafter if self.positions is None else f"{self.drafter}, {self.positions} positions"


@dataclass(frozen=True)
class Arm:
    """One column of the comparison."""

    name: str
    label: str
    endpoint: Endpoint


def engine_arms(
    engine: Engine, stock: StockChoice, candidate: tuple[str, Mechanisms] | None, ddtree_nodes: int
) -> list[Arm]:
    """AR, stock, DDTree on stock's drafter, and the candidate as (drafter, mechanisms)."""
    drafters = engine.describe().drafters
    for name in (stock.drafter, *([] if candidate is None else [candidate[0]])):
        if name not in drafters:
            raise ConfigError(f"drafter: got {name!r}, expected one of: {', '.join(drafters)}")
    ddtree = Mechanisms("ddtree", num_nodes=ddtree_nodes)
    arms = [
        Arm(AR, "plain", EngineEndpoint(engine, None)),
        Arm(
            STOCK,
            stock.label,
            EngineEndpoint(engine, stock.drafter, Mechanisms(num_positions=stock.positions)),
        ),
        Arm(DDTREE, f"{stock.drafter}, {ddtree_nodes} rows", EngineEndpoint(engine, stock.drafter, ddtree)),
    ]
    if candidate is not None:
        drafter, mechanisms = candidate
        label = f"{drafter}, {mechanisms.builder}, {mechanisms.num_nodes or 'block'} rows"
        arms.append(Arm(CANDIDATE, label, EngineEndpoint(engine, drafter, mechanisms)))
    return arms


def server_arms(
    url: str, stock: StockChoice, candidate: tuple[str, Mechanisms] | None, ddtree_nodes: int
) -> list[Arm]:
    """The same on a server that knows our ``speculation`` field."""
    model = list_models(url)[0]

    def arm(name: str, label: str, speculation: Mapping[str, object]) -> Arm:
        fields = {key: value for key, value in speculation.items() if value is not None}
        return Arm(name, label, HttpEndpoint(url, model, {"speculation": fields}))

    arms = [
        arm(AR, "plain", {"drafter": "none"}),
        arm(STOCK, stock.label, {"drafter": stock.drafter, "positions": stock.positions, "builder": "chain"}),
        arm(
            DDTREE,
            f"{stock.drafter}, {ddtree_nodes} rows",
            {"drafter": stock.drafter, "builder": "ddtree", "nodes": ddtree_nodes},
        ),
    ]
    if candidate is not None:
        drafter, chosen = candidate
        tree = {"nodes": chosen.num_nodes, "positions": chosen.num_positions}
        fields: dict[str, object] = {"drafter": drafter, "builder": chosen.builder, **tree}
        arms.append(arm(CANDIDATE, f"{drafter}, {chosen.builder}", fields))
    return arms


def own_arms(named: Sequence[str]) -> list[Arm]:
    """Arms given as NAME=URL, each any OpenAI endpoint that gives token ids; one of them must be AR."""
    arms = []
    for one in named:
        name, _, url = one.partition("=")
        if not name or not url:
            raise ConfigError(f"arm: got {one!r}, expected NAME=URL")
        arms.append(Arm(name, url, HttpEndpoint(url, list_models(url)[0])))
    names = [arm.name for arm in arms]
    if AR not in names or len(set(names)) != len(names):
        raise ConfigError(f"arms: got {names}, expected different names, {AR} among them")
    return arms
