"""Whatever the OpenAPI of both listeners allows, and what it does not, no answer is a failure of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.console.console_server import run_console
from tests.service.live_server import run_server
from tests.service.sidecar.fake_job import FakeKind
from tests.service.sidecar.harness import NO_KINDS, LiveSidecar, fake_profile, run_sidecar
from tests.service.tiny_engine import TinyEngine

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

# Events do not end; a drained sidecar would refuse what is asked for later.
LEFT_OUT = {"events", "engine.drain"}
# 503 is the word of parts that this build does not have, and of an engine that restarts.
TYPED = {"unavailable", "no_engine", "shutting_down"}


def find_failures(
    schema: Mapping[str, Any], url: str, headers: Mapping[str, str], num_examples: int
) -> list[str]:
    """Requests that the schema allows and that it forbids, as many of each; what was answered with 5xx and no word."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable

    found: list[str] = []
    operations = [result.ok() for result in schemathesis.openapi.from_dict(dict(schema)).get_all_operations()]
    assert operations

    for operation in operations:
        if operation.definition.raw.get("operationId") in LEFT_OUT:
            continue
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @settings(
                max_examples=num_examples,
                deadline=None,
                database=None,
                derandomize=True,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                answer = case.call(base_url=url, headers=dict(headers), timeout=60)
                if answer.status_code < 500:
                    return
                try:
                    code = answer.json()["error"]["code"]
                except (ValueError, LookupError, TypeError):
                    code = "no error body"
                if answer.status_code != 503 or code not in TYPED:
                    found.append(f"{case.method} {case.path}: {answer.status_code} {code} {case.body!r:.200}")

            try:
                ask()
            except Unsatisfiable:
                # An operation that takes nothing has nothing that could be wrong.
                assert mode == schemathesis.GenerationMode.NEGATIVE
    return found


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSidecar]:
    parts = {"kinds": NO_KINDS | {"check": FakeKind("check")}}
    with run_sidecar(
        tmp_path_factory.mktemp("state"), [fake_profile("a"), fake_profile("b")], parts=parts
    ) as server:
        yield server


def test_the_admin_api_never_fails(sidecar: LiveSidecar) -> None:
    schema = sidecar.call("GET", "/openapi.json")
    headers = {"Authorization": sidecar.admin.headers["Authorization"]}
    assert find_failures(schema, sidecar.admin_url, headers, 3) == []
    assert sidecar.call("GET", "/audit-log/verify")["is_intact"]


def test_the_gateway_never_fails(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The schema is the reference engine's; the gateway in front passes on what it does not judge itself."""
    with run_server(TinyEngine()) as engine:
        schema = httpx.get(f"{engine.url}/openapi.json").json()
        schema["paths"] = {path: item for path, item in schema["paths"].items() if path.startswith("/v1/")}
        with run_sidecar(tmp_path_factory.mktemp("state"), [], engine_url=engine.url) as server:
            server.wait_ready()
            assert find_failures(schema, server.url, {}, 12) == []


def test_a_planted_fault_is_found() -> None:
    app = FastAPI()

    @app.get("/divide")
    def divide(number: int) -> float:
        return 1 / (number if number < 10 else 0)

    with run_console(app) as url:
        assert find_failures(app.openapi(), url, {}, 20)
