"""Nothing answers without a key, and a key does only what it was made for."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpilot_service.schemas.admin_routes import ADMIN_PREFIX, ADMIN_ROUTES
from specpilot_service.sidecar.access import hash_secret
from specpilot_service.sidecar.admin.envelope import OPEN_PATHS
from specpilot_service.sidecar.limits import Bucket
from tests.service.live_server import wait_until
from tests.service.sidecar.harness import LiveSidecar, fake_profile, run_sidecar

TEXT: dict[str, Any] = {"model": "fake", "prompt": "x", "max_tokens": 6}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSidecar]:
    with run_sidecar(tmp_path_factory.mktemp("state"), [fake_profile("plain")], open=False) as server:
        yield server


def plain_path(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "1", path)


def every_admin_route(server: LiveSidecar) -> list[tuple[str, str]]:
    """What the application really serves, and a path that it does not."""
    from fastapi.routing import APIRoute

    from specpilot_service.sidecar.admin.app import create_admin_app

    app = create_admin_app(server.sidecar)
    found = [
        (method, plain_path(r.path)) for r in app.routes if isinstance(r, APIRoute) for method in r.methods
    ]
    assert len(found) >= len(ADMIN_ROUTES)
    return [
        *found,
        ("GET", "/nothing"),
        ("GET", "/admin/v1/nothing"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
    ]


@pytest.mark.parametrize("key", [None, "Bearer x", "Bearer sp_1_2", "Basic eDp5", "Bearer"])
def test_every_admin_route_refuses_without_a_key(server: LiveSidecar, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": key}
    for method, path in every_admin_route(server):
        answer = httpx.request(method, server.admin_url + path, headers=headers)
        if path in OPEN_PATHS:
            assert answer.status_code in (200, 503)
            continue
        assert answer.status_code == 401, (method, path)
        assert answer.json()["error"]["code"] in ("missing_key", "wrong_key")
        assert answer.headers["x-request-id"] and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "PUT"])
def test_every_gateway_path_refuses_without_a_key(server: LiveSidecar, method: str) -> None:
    for path in (
        "/v1/models",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/x",
        "/",
        "/metrics",
        "/fake/stats",
    ):
        answer = server.client.request(method, path, content=b"{}")
        assert answer.status_code == 401, (method, path)


def test_scopes_are_what_the_table_says(server: LiveSidecar) -> None:
    """Keys of every scope on every route: 403 exactly where the role is missing."""
    ranks = {"viewer": 0, "operator": 1, "admin": 2}
    for scope in ("viewer", "operator", "inference"):
        _, headers = server.make_key(scope)
        for route in ADMIN_ROUTES:
            if route.name == "events":
                continue  # it does not end; its role is checked as every other's
            is_allowed = scope in ranks and ranks[scope] >= ranks[route.role]
            if is_allowed and route.request is None and route.method != "GET":
                continue
            path = server.admin_url + ADMIN_PREFIX + plain_path(route.path)
            answer = httpx.request(route.method, path, headers=headers, json={} if route.request else None)
            assert (answer.status_code == 403) != is_allowed, (scope, route.name, answer.text)


def test_the_gateway_wants_the_scope_inference(server: LiveSidecar) -> None:
    _, viewer = server.make_key("viewer", "operator")
    refused = server.client.post("/v1/completions", json=TEXT, headers=viewer)
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "wrong_scope"
    _, inference = server.make_key("inference")
    assert server.client.post("/v1/completions", json=TEXT, headers=inference).status_code == 200


def test_a_secret_is_shown_once_and_stored_as_a_hash(server: LiveSidecar) -> None:
    key_id, headers = server.make_key("inference")
    secret = headers["Authorization"].removeprefix("Bearer ")
    assert secret not in str(server.call("GET", "/keys"))
    (digest,) = [d for view, d in server.sidecar.store.keys.all() if view.id == key_id]
    assert digest == hash_secret(secret)
    for path in server.sidecar.store.folder.glob("state.sqlite3*"):
        assert secret.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


def test_the_first_key_is_private(server: LiveSidecar) -> None:
    assert (server.sidecar.store.folder / "admin.key").stat().st_mode & 0o777 == 0o600


def test_a_key_has_its_models(server: LiveSidecar) -> None:
    _, headers = server.make_key("inference", models=["another"])
    answer = server.client.post("/v1/completions", json=TEXT, headers=headers)
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "model_not_allowed"
    assert server.client.get("/v1/models", headers=headers).json()["data"] == []


def test_limits_of_requests_and_tokens(server: LiveSidecar) -> None:
    _, few = server.make_key("inference", requests_per_minute=2)
    statuses = [server.client.post("/v1/completions", json=TEXT, headers=few).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    key_id, short = server.make_key("inference", tokens_per_minute=10)
    answers = [
        server.client.post("/v1/completions", json=TEXT | {"stream": True}, headers=short) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 429]  # 5 + 6 tokens empty a bucket of 10
    assert int(answers[1].headers["retry-after"]) >= 1
    assert answers[1].json()["error"]["code"] == "rate_limited"
    (row,) = server.call("GET", f"/keys/{key_id}/usage")["rows"]
    counts = ("num_requests", "num_refused", "prompt_tokens", "completion_tokens", "estimated_tokens")
    assert [row[name] for name in counts] == [1, 1, 5, 6, 0]


def test_a_cut_stream_counts_what_was_sent(server: LiveSidecar) -> None:
    key_id, headers = server.make_key("inference")
    body = TEXT | {"stream": True, "max_tokens": 10_000, "fake": {"delay_s": 0.02}}
    with server.client.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
        next(answer.iter_bytes())
    wait_until(lambda: server.call("GET", f"/keys/{key_id}/usage")["rows"] != [], "it is counted")
    (row,) = server.call("GET", f"/keys/{key_id}/usage")["rows"]
    assert row["completion_tokens"] == 0 and row["estimated_tokens"] >= 1


def test_a_revoked_key_is_out_at_once(server: LiveSidecar) -> None:
    key_id, headers = server.make_key("inference")
    received: list[str] = []

    def read() -> None:
        body = TEXT | {"stream": True, "max_tokens": 10_000, "fake": {"delay_s": 0.02}}
        with httpx.stream(
            "POST", server.url + "/v1/completions", json=body, headers=headers, timeout=60
        ) as answer:
            received.extend(answer.iter_lines())

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: any(f.key_id == key_id for f in server.sidecar.gateway.flights), "it runs")
    assert server.call("DELETE", f"/keys/{key_id}")["revoked_at"]
    thread.join(60)
    assert not thread.is_alive()
    lines = [line for line in received if line and not line.startswith(":")]
    assert lines[-1] == "data: [DONE]" and "revoked_key" in lines[-2]
    refused = server.client.post("/v1/completions", json=TEXT, headers=headers)
    assert refused.status_code == 401 and refused.json()["error"]["code"] == "revoked_key"


def test_the_last_admin_key_stays(tmp_path: Path) -> None:
    with run_sidecar(tmp_path, []) as server:
        (key,) = server.call("GET", "/keys")["keys"]
        assert server.call("DELETE", f"/keys/{key['id']}", 409)["error"]["code"] == "conflict"


def test_an_open_gateway_is_only_for_loopback() -> None:
    from specpilot_service.sidecar.settings import SidecarSettings

    with pytest.raises(ValueError, match="loopback"):
        SidecarSettings(open=True, host="0.0.0.0")


def test_a_bucket_refills_steadily() -> None:
    now_s = 0.0
    bucket = Bucket(60, clock=lambda: now_s)
    bucket.take(65)
    assert bucket.wait_s(1) == pytest.approx(6)
    now_s = 6.0
    assert bucket.wait_s(1) == 0
    now_s = 1000.0
    assert bucket.wait_s(61) == pytest.approx(1)  # never above its size
