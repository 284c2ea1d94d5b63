"""The admin API as others see it: profiles, typed refusals, OpenAPI, overview."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from specpilot_service.schemas.admin import Overview
from specpilot_service.schemas.admin_routes import ADMIN_PREFIX, ADMIN_ROUTES, find_route
from specpilot_service.sidecar.admin.registry import HANDLERS, handles
from specpilot_service.sidecar.traffic import sum_samples
from tests.service.live_server import wait_until
from tests.service.sidecar.harness import LiveSidecar, fake_profile, run_sidecar


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSidecar]:
    profiles = [fake_profile("cpu/a--b"), fake_profile("cpu/other")]
    with run_sidecar(tmp_path_factory.mktemp("state"), profiles) as server:
        yield server


def test_a_profile_is_found_by_name_with_its_slash_and_by_id(server: LiveSidecar) -> None:
    for reference in ("cpu/a--b", "cpu%2Fa--b", "sha256-cpu/a--b"):
        assert server.call("GET", f"/profiles/{reference}")["is_current"]
        assert server.call("GET", f"/profiles/{reference}/resolved")["name"] == "cpu/a--b"
    assert not server.call("GET", "/profiles/cpu/other")["is_current"]
    assert server.call("GET", "/profiles/none", 404)["error"]["code"] == "not_found"
    assert [p["is_current"] for p in server.call("GET", "/profiles")["profiles"]] == [True, False]


@pytest.mark.parametrize("noun", ["rounds", "memory"])
def test_parts_that_are_missing_say_so(server: LiveSidecar, noun: str) -> None:
    for route in ADMIN_ROUTES:
        if route.name.startswith(noun + "."):
            path = route.path.replace("{round_id}", "x").replace("{entry_id}", "x")
            error = server.call(route.method, path, 503)["error"]
            assert error["code"] == "unavailable" and error["message"].startswith(noun)


def test_the_openapi_is_the_table(server: LiveSidecar) -> None:
    schema = server.call("GET", "/openapi.json")
    found = {
        operation["operationId"]: (method.upper(), path)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        if path.startswith(ADMIN_PREFIX)
    }
    assert found == {route.name: (route.method, ADMIN_PREFIX + route.path) for route in ADMIN_ROUTES}
    assert schema["security"] == [{"key": []}]


def test_a_handler_needs_a_route() -> None:
    with pytest.raises(KeyError, match="no such"):
        handles("no such")
    assert set(HANDLERS) == {route.name for route in ADMIN_ROUTES}
    assert find_route("whoami").role == "viewer"


KEY: dict[str, Any] = {"name": "x", "scopes": ["viewer"]}
WRONG_KEYS: list[dict[str, Any]] = [
    {"tokens_per_minute": 2**63},
    {"requests_per_minute": 10**30},
    {"models": []},
    {"models": [""]},
    {"models": ["a\0"]},
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/switches", {}, 400, "missing_parameter"),
        ("POST", "/switches", {"reason": "x"}, 400, "invalid_body"),
        ("POST", "/switches", {"reason": "x", "profile": "none"}, 404, "not_found"),
        (
            "POST",
            "/switches",
            {"reason": "x", "profile": "cpu/other", "mod": "auto"},
            400,
            "unknown_parameter",
        ),
        (
            "POST",
            "/switches",
            {"reason": "x", "profile": "cpu/other", "canary_share": 1},
            400,
            "invalid_value",
        ),
        ("POST", "/switches", {"reason": "x", "revision": 1}, 409, "conflict"),
        ("POST", "/switches", {"reason": "x", "revision": 99}, 404, "not_found"),
        ("GET", "/switches/none", None, 404, "not_found"),
        ("POST", "/switches/none/promote", {"reason": "x"}, 404, "not_found"),
        ("GET", "/revisions/99", None, 404, "not_found"),
        ("GET", "/revisions/x", None, 400, "invalid_value"),
        ("GET", "/revisions/99999999999999999999", None, 400, "invalid_value"),
        ("GET", "/revisions/diff?before=1", None, 400, "missing_parameter"),
        ("POST", "/revisions/1/rollback", {"reason": "x"}, 409, "conflict"),
        ("POST", "/keys", {"name": "x", "scopes": ["root"]}, 400, "invalid_value"),
        ("POST", "/keys", {"name": "", "scopes": ["viewer"]}, 400, "invalid_value"),
        *[("POST", "/keys", KEY | wrong, 400, "invalid_value") for wrong in WRONG_KEYS],
        ("POST", "/switches", {"reason": "x", "revision": 2**63}, 400, "invalid_value"),
        ("POST", "/switches", {"reason": "x\0", "profile": "cpu/other"}, 400, "invalid_value"),
        ("POST", "/engine/drain", {"reason": "a\x1b[2J"}, 400, "invalid_value"),
        ("POST", "/jobs", {"reason": "x", "kind": "audit\n"}, 400, "invalid_value"),
        ("GET", "/keys?limit=3", None, 400, "unknown_parameter"),
        ("GET", "/audit-log?limit=3&befor=2", None, 400, "unknown_parameter"),
        ("DELETE", "/keys/none", None, 404, "not_found"),
        ("GET", "/keys/none/usage", None, 404, "not_found"),
        ("GET", "/audit-log?limit=0", None, 400, "invalid_value"),
        ("GET", "/engine/logs?which=next", None, 400, "invalid_value"),
        ("GET", "/engine/logs?which=previous", None, 404, "not_found"),
        ("PATCH", "/switches", None, 405, "method_not_allowed"),
        ("GET", "/nothing", None, 404, "not_found"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(
    server: LiveSidecar, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = server.admin.request(method, ADMIN_PREFIX + path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.headers["x-request-id"]


def test_a_field_given_twice_is_refused(server: LiveSidecar) -> None:
    body = b'{"reason": "a", "kind": "none", "options": {"x": 1, "x": 2}}'
    answer = server.admin.post(
        f"{ADMIN_PREFIX}/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400 and "'x' is given more than once" in answer.json()["error"]["message"]
    body = body.replace(b'"x": 2', b'"y": 2')
    answer = server.admin.post(
        f"{ADMIN_PREFIX}/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 404


def test_overview_health_and_metrics(server: LiveSidecar) -> None:
    overview = Overview.model_validate(server.call("GET", "/overview"))
    assert overview.is_ready and overview.revision is not None and overview.revision.number == 1
    assert overview.audit.verdict == overview.ceiling.verdict == "not_checked"
    for path in ("/livez", "/readyz", "/startupz"):
        assert httpx.get(server.admin_url + path).status_code == 200
    text = server.admin.get("/metrics").text
    for line in (
        "specpilot_sidecar_ready 1.0",
        "specpilot_sidecar_revision 1.0",
        'specpilot_sidecar_switch_state{state="applied"} 1.0',
        'specpilot_sidecar_check{check="audit"} -1.0',
    ):
        assert line in text
    shown = server.call("GET", "/settings")["settings"]
    assert shown["max_in_flight"] == 64 and server.admin.headers["authorization"][7:] not in str(shown)


def test_traffic_of_the_last_minute(server: LiveSidecar) -> None:
    body = {"model": "fake", "prompt": "x", "max_tokens": 2}

    def has_moved() -> bool:
        assert server.client.post("/v1/completions", json=body).status_code == 200
        traffic = server.call("GET", "/overview")["traffic"]
        return bool(traffic["requests_per_s"] > 0 and traffic["first_event_ms_p99"] is not None)

    wait_until(has_moved, "the meter moves")
    # The fake engine has no counters of its own, and none are made up for it.
    traffic = server.call("GET", "/overview")["traffic"]
    assert traffic["tau"] is None and traffic["tokens_per_s"] is None


def test_samples_are_summed_over_labels() -> None:
    text = '# HELP a b\na_total{x="1"} 2\na_total{x="2"} 3.5\nb 1e3\nb_created{x="} 7"} 1\n'
    assert sum_samples(text) == {"a_total": 5.5, "b": 1000.0}


def test_the_audit_log_pages_and_exports(server: LiveSidecar) -> None:
    for index in range(3):
        server.call("POST", "/engine/resume", reason=f"nothing {index}")
    page = server.call("GET", "/audit-log?limit=2&action=engine.resume")
    assert [entry["detail"]["reason"] for entry in page["entries"]] == ["nothing 2", "nothing 1"]
    following = server.call("GET", f"/audit-log?limit=2&action=engine.resume&before={page['next_before']}")
    assert [entry["detail"]["reason"] for entry in following["entries"]] == ["nothing 0"]
    assert following["next_before"] is None
    lines = server.admin.get(ADMIN_PREFIX + "/audit-log/export").text.splitlines()
    report = server.call("GET", "/audit-log/verify")
    assert report["is_intact"] and report["num_entries"] == len(lines)
    assert report["head_hash"] in lines[-1]
