"""Metrics count what was served."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from specpilot.engines.base import Engine
from specpilot_service.app import create_app
from specpilot_service.settings import Settings


def samples(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def test_tokens_steps_and_statuses(bundled_engine: Engine, model: str) -> None:
    request: dict[str, Any] = {
        "model": model,
        "prompt": "Tom has 3 apples.",
        "temperature": 0,
        "max_tokens": 20,
    }
    with TestClient(create_app(Settings(), bundled_engine)) as client:
        answer = client.post("/v1/completions", json=request).json()
        client.post("/v1/completions", json=request | {"stream": True, "speculation": {"drafter": "none"}})
        client.post("/v1/completions", json=request | {"n": 0})
        client.get("/nothing")
        found = samples(client)

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    drafter = answer["specpilot"]["drafter"]
    assert value("specpilot_requests_total", route="/v1/completions", status="200") == 2
    assert value("specpilot_requests_total", route="/v1/completions", status="400") == 1
    assert value("specpilot_requests_total", route="unmatched", status="404") == 1
    assert value("specpilot_prompt_tokens_total") == 2 * answer["usage"]["prompt_tokens"]
    assert value("specpilot_generated_tokens_total", drafter=drafter) == 20
    assert value("specpilot_generated_tokens_total", drafter="none") == 20
    steps = value("specpilot_accept_length_tokens_count", drafter=drafter)
    assert steps == answer["specpilot"]["num_steps"] == value("specpilot_step_seconds_count", drafter=drafter)
    tau = value("specpilot_accept_length_tokens_sum", drafter=drafter) / steps
    assert tau == pytest.approx(answer["specpilot"]["tau"])
    assert value("specpilot_time_to_first_token_seconds_count") == 2
    assert value("specpilot_requests_running") == value("specpilot_requests_waiting") == 0


def test_two_apps_do_not_share_a_registry(bundled_engine: Engine) -> None:
    first, second = (create_app(Settings(), bundled_engine).state.runtime.metrics.registry for _ in range(2))
    assert first is not second
