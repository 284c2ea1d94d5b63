"""How requests speculate: the server's settings, what a request names in their place, and visible stock decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specpilot.engines.base import Engine
from specpilot.engines.mechanisms import BatchMechanisms, Mechanisms
from specpilot.errors import ConfigError
from specpilot_service.app import create_app
from specpilot_service.settings import Settings, load_settings

MESSAGES = [
    {"role": "user", "content": "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens has she?"}
]


def test_flags_become_mechanisms() -> None:
    settings = load_settings(["--builder", "best_first", "--nodes", "16", "--positions", "9", "--cost-aware"])
    assert settings.mechanisms == Mechanisms("best_first", 16, 9, is_cost_aware=True)
    settings = load_settings(
        ["--node-budget", "48", "--drafter-blocks", "--whole-prompt-rows", "384", "--prompt-rows", "128"]
    )
    assert settings.batch == BatchMechanisms(48, True, 384, 128)
    assert (Settings().mechanisms, Settings().batch) == (Mechanisms(), BatchMechanisms())


def test_variables_become_mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECPILOT_BUILDER", "ddtree")
    monkeypatch.setenv("SPECPILOT_COST_AWARE", "true")
    assert load_settings().mechanisms == Mechanisms("ddtree", is_cost_aware=True)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--builder", "beam"], "builder"),
        (["--nodes", "65"], "nodes"),
        (["--nodes", "0"], "nodes"),
        (["--positions", "0"], "positions"),
        (["--cost-aware"], "is_cost_aware"),
        (["--gdn-form", "wy"], "gdn_form"),
        (["--node-budget", "0"], "node_budget"),
        (["--prompt-rows", "0"], "prompt_rows"),
        (["--whole-prompt-rows", "-1"], "whole_prompt_rows"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(arguments: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load_settings(arguments)


@pytest.fixture(scope="module")
def trees(bundled_engine: Engine) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(builder="best_first", nodes=12), bundled_engine)) as client:
        yield client


def answer(client: TestClient, model: str, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": 24, **fields}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def text(whole: dict[str, Any]) -> str:
    return whole["choices"][0]["message"]["content"]


def test_requests_speculate_as_the_server_does(trees: TestClient, client: TestClient, model: str) -> None:
    got, stock = answer(trees, model), answer(client, model)
    assert text(got) == text(stock)
    assert got["specpilot"]["fallback"] is None and stock["specpilot"]["fallback"] is None
    assert set(got["specpilot"]["mechanisms"]) == {"best_first"}
    assert set(stock["specpilot"]["mechanisms"]) == {"chain"}
    details = got["usage"]["completion_tokens_details"]
    drafted = details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"]
    assert drafted == 11 * got["specpilot"]["num_steps"]


@pytest.mark.parametrize(
    ("speculation", "mechanisms", "num_drafted"),
    [
        ({"builder": "chain"}, {"chain"}, 7),
        ({"builder": "ddtree"}, {"ddtree"}, 11),
        ({"nodes": 5}, {"best_first"}, 4),
        ({"drafter": "dspark", "builder": "chain", "nodes": 64, "positions": 3}, {"chain"}, 3),
        ({"drafter": "none"}, {"plain"}, 0),
    ],
)
def test_a_request_names_its_own(
    trees: TestClient, model: str, speculation: dict[str, Any], mechanisms: set[str], num_drafted: int
) -> None:
    got = answer(trees, model, speculation=speculation)
    assert text(got) == text(answer(trees, model))
    assert set(got["specpilot"]["mechanisms"]) == mechanisms
    details = got["usage"]["completion_tokens_details"]
    drafted = details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"]
    assert drafted == num_drafted * got["specpilot"]["num_steps"]


@pytest.mark.parametrize(
    ("speculation", "code", "param"),
    [
        ({"builder": "beam"}, "invalid_value", "speculation.builder"),
        ({"nodes": 0}, "invalid_value", "speculation.nodes"),
        ({"nodes": 65}, "invalid_value", "speculation.nodes"),
        ({"positions": "7"}, "invalid_value", "speculation.positions"),
        ({"drafter": "none", "builder": "best_first"}, "invalid_value", "speculation.builder"),
        ({"depth": 4}, "unknown_parameter", "speculation.depth"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    trees: TestClient, model: str, speculation: dict[str, Any], code: str, param: str
) -> None:
    body = {"model": model, "messages": MESSAGES, "max_tokens": 4, "speculation": speculation}
    reply = trees.post("/v1/chat/completions", json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.parametrize(
    ("settings", "speculation", "words"),
    [
        (Settings(builder="best_first", gdn_form="wy"), {}, "judge mode"),
        (Settings(builder="best_first", cost_aware=True), {}, "has not measured"),
        (Settings(), {"positions": 32}, "expected at most 31"),
    ],
)
def test_what_the_engine_does_not_keep_is_stock_decoding_that_says_so(
    bundled_engine: Engine,
    client: TestClient,
    model: str,
    settings: Settings,
    speculation: dict[str, Any],
    words: str,
) -> None:
    with TestClient(create_app(settings, bundled_engine)) as other:
        got = answer(other, model, speculation=speculation)
        assert other.get("/readyz").status_code == 200
        assert "specpilot_fallbacks_total 1.0" in other.get("/metrics").text
    assert text(got) == text(answer(client, model))
    assert words in got["specpilot"]["fallback"]
    assert set(got["specpilot"]["mechanisms"]) == {"chain"}


def test_streams_say_it_too(bundled_engine: Engine, model: str) -> None:
    with TestClient(create_app(Settings(builder="best_first", gdn_form="wy"), bundled_engine)) as other:
        body = {"model": model, "messages": MESSAGES, "max_tokens": 8, "stream": True}
        frames = other.post("/v1/chat/completions", json=body).text
    assert '"fallback":"gdn_form: got' in frames


def test_sampled_trees_over_the_endpoint_repeat_plain_decoding(trees: TestClient, model: str) -> None:
    fields = {"temperature": 0.9, "seed": 4}
    plain = answer(trees, model, **fields, speculation={"drafter": "none"})
    assert text(answer(trees, model, **fields)) == text(plain)
