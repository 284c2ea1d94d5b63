"""Nothing of the console without a key that the sidecar takes."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from specpilot_console.app import create_app
from specpilot_console.client import ConsoleClient, Session
from specpilot_console.frame import roles_of
from specpilot_console.login import COOKIE
from specpilot_console.settings import read_arguments
from tests.console.console_server import run_console


@pytest.fixture
def page(client: ConsoleClient) -> Iterator[httpx.Client]:
    with run_console(create_app(client, "/ops")) as url, httpx.Client(base_url=url, timeout=60) as page:
        yield page


@pytest.mark.parametrize(
    "path", ["/config", "/gradio_api/info", "/gradio_api/startup-events", "/theme.css", "/x"]
)
def test_no_route_without_a_key(page: httpx.Client, path: str) -> None:
    assert page.get(path).status_code == page.post("/ops" + path).status_code == 401


def test_login_and_logout(page: httpx.Client, admin: Session) -> None:
    assert "API key" in page.get("/").text and page.get("/livez").text == "ok"
    for wrong in ("sp_wrong_key", "no key; at all\r\n", "", "x" * 5000):
        answer = page.post("/session/login", data={"key": wrong})
        assert answer.status_code in (200, 413) and COOKIE not in page.cookies
    answer = page.post("/ops/session/login", data={"key": admin.key})
    assert answer.status_code == 303 and answer.headers["location"] == "/ops/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/ops" in cookie
    # A proxy may leave the prefix or strip it; both find the page, which knows where it is published.
    whole, stripped = (page.get(path, headers={"Cookie": f"{COOKIE}={admin.key}"}) for path in ("/ops/", "/"))
    assert whole.status_code == stripped.status_code == 200
    assert "/ops" in whole.text and "<gradio-app" in whole.text and admin.key not in whole.text
    gone = page.post("/ops/session/logout")
    assert gone.status_code == 303 and 'specpilot_key=""' in gone.headers["set-cookie"]


def test_a_revoked_key_is_asked_for_another(page: httpx.Client) -> None:
    answer = page.get("/ops/", headers={"Cookie": f"{COOKIE}=sp_gone_key"})
    assert answer.status_code == 200 and 'role="alert"' in answer.text and "<gradio-app" not in answer.text


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/proxy=http://127.0.0.1:1/x"])
def test_no_files_and_no_proxy(page: httpx.Client, admin: Session, path: str) -> None:
    answer = page.post(path, headers={"Cookie": f"{COOKIE}={admin.key}"}, files={"files": b"x"})
    assert answer.status_code == 404


def test_roles_include_each_other() -> None:
    assert roles_of(["admin", "inference"]) == {"viewer", "operator", "admin"}
    assert roles_of(["operator"]) == {"viewer", "operator"}
    assert roles_of(["inference"]) == set()


@pytest.mark.parametrize(
    "wrong",
    [["--root-path", "console"], ["--admin-url", "ftp://x"], ["--port", "0"], ["--root", "/x"], ["x"]],
)
def test_wrong_arguments_end_with_2(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read_arguments(wrong)
    assert caught.value.code == 2


def test_arguments() -> None:
    settings = read_arguments(["--sidecar", "http://localhost:1/", "--root-path", "/x/"])
    assert (settings.admin_url, settings.root_path, settings.port) == ("http://localhost:1", "/x", 7860)
