"""What a request may ask for: options become a plan, or an error that says which of them cannot be kept and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specpilot.draft import SuffixDrafter
from specpilot.draft.step_cost import StepCost
from specpilot.engines.mechanisms import STOCK, BatchMechanisms, Mechanisms
from specpilot.errors import RequestError, SpecPilotError, Unsupported
from specpilot.refengine.dense import load_dense
from specpilot.refengine.model import TargetModel
from specpilot.refengine.speculation import plan_speculation
from specpilot.refengine.step_costs import measure_step_costs
from specpilot.refengine.target import Target
from tests.oracles.noisy_drafter import NoisyDrafter
from tests.specpilot.refengine.random_dense import save_random
from tests.specpilot.refengine.random_target import SMALL, random_tensors

COSTS = {"noisy": StepCost((1, 64), (100.0, 900.0))}
NOISY = NoisyDrafter([1, 2, 3], 1.0)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    folder = tmp_path_factory.mktemp("dense")
    save_random(folder, "llama")
    return {
        "judge": TargetModel(SMALL, random_tensors(SMALL), "judge"),
        "serve": TargetModel(SMALL, random_tensors(SMALL), "serve"),
        "dense": load_dense(folder, mode="serve"),
    }


@pytest.mark.parametrize(
    ("mechanisms", "batch", "expected"),
    [
        (STOCK, {}, ("chain", False, 8, 7, False)),
        (Mechanisms(num_nodes=5), {}, ("chain", False, 5, 7, False)),
        (Mechanisms(num_nodes=30), {}, ("chain", False, 8, 7, False)),
        (Mechanisms(num_nodes=30, num_positions=15), {}, ("chain", False, 16, 15, False)),
        (Mechanisms("best_first"), {}, ("best_first", True, 8, 7, False)),
        (Mechanisms("ddtree", 64, 31), {}, ("ddtree", True, 64, 31, False)),
        (Mechanisms("best_first"), {"node_budget": 24}, ("best_first", True, 24, 7, True)),
        (Mechanisms("best_first", 10), {"node_budget": 24}, ("best_first", True, 10, 7, True)),
        (Mechanisms("best_first"), {"node_budget": 999}, ("best_first", True, 64, 7, True)),
        (STOCK, {"node_budget": 24}, ("chain", False, 8, 7, False)),
        (STOCK, {"has_drafter_blocks": True}, ("chain", False, 16, None, False)),
        (Mechanisms(num_positions=5), {"has_drafter_blocks": True}, ("chain", False, 6, 5, False)),
        (Mechanisms("sequoia"), {"has_drafter_blocks": True}, ("sequoia", True, 8, None, False)),
    ],
)
def test_plans(
    targets: dict[str, Target], mechanisms: Mechanisms, batch: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    plan = plan_speculation(targets["judge"], NOISY, mechanisms, BatchMechanisms(**batch), COSTS)
    found = (plan.name, plan.builder is not None, plan.max_rows, plan.num_positions, plan.is_sharing)
    assert found == expected and plan.drafter is NOISY


def test_plain_decoding_has_an_empty_plan(targets: dict[str, Target]) -> None:
    plan = plan_speculation(targets["judge"], None)
    assert (plan.name, plan.max_rows, plan.drafter, plan.builder) == ("plain", 1, None, None)


@pytest.mark.parametrize(
    ("target", "drafter", "fields", "batch", "kind", "words"),
    [
        ("judge", None, {"num_nodes": 4}, {}, RequestError, "without a drafter"),
        ("judge", NOISY, {"num_positions": 32}, {}, Unsupported, "got 32 positions, expected at most 31"),
        ("judge", NOISY, {"builder": "best_first", "gdn_form": "wy"}, {}, Unsupported, "judge mode"),
        ("dense", NOISY, {"builder": "best_first", "gdn_form": "wy"}, {}, Unsupported, "no Gated DeltaNet"),
        ("judge", NOISY, {"builder": "ddtree"}, {"node_budget": 9}, Unsupported, "shared node budget"),
        (
            "judge",
            SuffixDrafter(),
            {"builder": "best_first", "is_cost_aware": True},
            {},
            Unsupported,
            "has not measured what steps with 'suffix' cost",
        ),
    ],
)
def test_refusals(
    targets: dict[str, Target],
    target: str,
    drafter: Any,
    fields: dict[str, Any],
    batch: dict[str, Any],
    kind: type[SpecPilotError],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        plan_speculation(targets[target], drafter, Mechanisms(**fields), BatchMechanisms(**batch), COSTS)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"is_cost_aware": True}, "is_cost_aware"),
        ({"gdn_form": "wy"}, "gdn_form"),
        ({"builder": "beam"}, "builder"),
        ({"num_nodes": 0}, "num_nodes"),
        ({"num_nodes": 65}, "num_nodes"),
        ({"num_positions": 0}, "num_positions"),
        ({"is_q_gated": True}, "is_q_gated"),
    ],
)
def test_options_that_contradict_each_other_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError, match=param) as refused:
        Mechanisms(**fields)
    assert refused.value.param == param


def test_measured_costs_do_not_fall_and_are_there_for_every_drafter(targets: dict[str, Target]) -> None:
    for target in targets.values():
        costs = measure_step_costs(target, {"noisy": NOISY, "suffix": SuffixDrafter()})
        assert list(costs) == ["noisy", "suffix"]
        for cost in costs.values():
            assert cost.rows == (1, 2, 4, 8, 16, 32, 64)
            assert list(cost.times_us) == sorted(cost.times_us) and cost.times_us[0] > 0.0
