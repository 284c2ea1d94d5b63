"""Mechanisms that change while the engine runs: for requests that come after, and only by who may."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from specpilot.engines.base import Engine
from specpilot_service.routes.control import CONTROL_HEADER, CONTROL_PATH
from tests.service.live_server import LiveServer, run_server

KEY = "a secret of sixteen or more"
QUESTION = "Mia has 12 pens and buys 3 boxes with 8 pens each. How many pens has she?"
TREE = ["--drafter", "dflash2", "--builder", "best_first", "--nodes", "12"]


@pytest.fixture
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with run_server(bundled_engine, control_key=KEY) as server:
        # The engine was built with a default drafter; here requests begin plain.
        assert change(server, ["--drafter", "none"]).status_code == 200
        yield server
        # Others use the engine too: it shares rows among requests as it did before.
        assert change(server, []).status_code == 200


def change(server: LiveServer, arguments: list[str], key: str = KEY, **fields: Any) -> httpx.Response:
    body = {"arguments": arguments, **fields}
    return server.client.post(CONTROL_PATH, json=body, headers={CONTROL_HEADER: key})


def ask(server: LiveServer, max_tokens: int = 24) -> tuple[str, dict[str, Any]]:
    body = {
        "model": server.runtime.description.model_id,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
    }
    answer = server.client.post("/v1/chat/completions", json=body).json()
    return answer["choices"][0]["message"]["content"], answer["specpilot"]


def test_requests_after_the_change_speculate_and_say_the_same(server: LiveServer) -> None:
    plain, report = ask(server)
    assert set(report["mechanisms"]) == {"plain"}
    before = server.runtime.fingerprint
    answer = change(server, [*TREE, "--q-weights", "int8", "--drafter-blocks"], is_dry_run=True)
    assert set(answer.json()["changed"]) == {"drafter", "builder", "nodes", "q_weights", "drafter_blocks"}
    assert set(ask(server)[1]["mechanisms"]) == {"plain"}
    assert change(server, [*TREE, "--q-weights", "int8"]).json()["changed"]
    drafted, report = ask(server)
    assert drafted == plain and report["drafter"] == "dflash2" and report["fallback"] is None
    assert any("best_first" in name for name in report["mechanisms"]), report
    assert server.runtime.fingerprint != before
    assert change(server, ["--drafter", "suffix"]).status_code == 200
    assert ask(server)[1]["drafter"] == "suffix"
    assert change(server, ["--drafter", "suffix"]).json()["changed"] == []


def test_changes_under_load_change_no_answer(server: LiveServer) -> None:
    plain, _ = ask(server, 48)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, server, 48) for _ in range(16)]
        for arguments in (TREE, ["--drafter", "dspark"], ["--drafter", "none"], [*TREE, "--drafter-blocks"]):
            assert change(server, arguments).status_code == 200
        answers = [future.result(60) for future in asked]
    assert {text for text, _ in answers} == {plain}
    assert all(report["fallback"] is None for _, report in answers)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--max-running", "3"], "max_running"),
        (["--mode", "judge"], "mode"),
        (["--node-budget", "32"], "node_budget"),
        ([*TREE, "--cost-aware"], "cost_aware"),
        (["--drafter", "nobody"], "drafter"),
        (["--drafter", "dflash2", "--builder", "best_first", "--positions", "60"], "positions"),
    ],
)
def test_what_needs_a_new_process_is_refused_and_changes_nothing(
    server: LiveServer, arguments: list[str], word: str
) -> None:
    answer = change(server, arguments)
    assert answer.status_code == 409 and answer.json()["error"]["code"] == "restart_required", answer.text
    assert word in answer.json()["error"]["message"]
    assert set(ask(server)[1]["mechanisms"]) == {"plain"}


def test_wrong_flags_and_wrong_keys_are_refused(server: LiveServer) -> None:
    assert change(server, ["--builder", "beam"]).status_code == 400
    for key in ("", "x", KEY + "x"):
        assert change(server, TREE, key).status_code == 401
    assert server.runtime.defaults.drafter is None


def test_without_a_secret_there_is_no_such_path(bundled_engine: Engine) -> None:
    with run_server(bundled_engine) as server:
        assert change(server, TREE).status_code == 404
