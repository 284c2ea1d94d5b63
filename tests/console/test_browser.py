"""Chromium drives the console through two replicas that take turns; nothing is fetched from outside."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specpilot_console.app import create_app
from specpilot_console.client import ConsoleClient, Session
from specpilot_service.schemas.admin import ReasonRequest
from tests.console.closed_network import closed_network
from tests.console.console_server import Turns, run_console
from tests.service.sidecar.harness import LiveSidecar

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage
--host-resolver-rules=MAP\x00*\x00~NOTFOUND,EXCLUDE\x00127.0.0.1""".split()
PATIENCE_MS = 60_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def why_open() -> Iterator[str]:
    """Everything of this module runs without a way outside where that can be had; else why not."""
    with closed_network() as why:
        yield why


@pytest.fixture(scope="module")
def browser(why_open: str) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        arguments = [argument.replace("\x00", " ") for argument in ARGUMENTS]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


def test_there_is_no_way_outside(browser: Any, why_open: str) -> None:
    if why_open:
        pytest.skip(why_open)
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    with pytest.raises(OSError, match="unreachable"):
        socket.create_connection(("192.0.2.1", 80), timeout=5)


class Visit:
    """One person's browser window."""

    def __init__(self, browser: Any, url: str, scheme: str) -> None:
        self.page = browser.new_context(
            color_scheme=scheme, viewport={"width": 1300, "height": 900}
        ).new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.asked: list[str] = []
        self.failed: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.failed.append(str(error)))
        self.page.goto(url)

    def log_in(self, key: str) -> None:
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Log in", exact=True).click()

    def open(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab, exact=True).click()

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).filter(visible=True).first.wait_for()

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).filter(visible=True).click()

    def write(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).filter(visible=True).fill(text)


def test_a_day_at_the_console(
    browser: Any, client: ConsoleClient, admin: Session, sidecar: LiveSidecar, tmp_path: Path
) -> None:
    replicas = Turns(create_app(client, "/ops"), create_app(client, "/ops"))
    with run_console(replicas) as url:
        visit = Visit(browser, f"{url}/ops/", "dark")
        visit.log_in("sp_not_mine")
        visit.page.get_by_role("alert").wait_for()
        visit.log_in(admin.key)
        visit.sees("first admin")
        visit.sees("revision 1, sha256-fast")
        assert "dark" in (visit.page.locator("body").get_attribute("class") or "")

        visit.open("Profiles")
        box = visit.page.get_by_label("Profile", exact=True).filter(visible=True)
        box.click()
        visit.page.get_by_role("option", name="slow-start", exact=True).click()
        visit.sees("--start-delay-s 1.5")
        visit.press("Switch to this profile")
        visit.sees("Choose a profile and give a reason.")
        visit.write("Reason", "try it")
        visit.press("Switch to this profile")
        visit.sees("Switch in progress")
        visit.page.screenshot(path=tmp_path / "switching.png")
        visit.page.locator("li.sp-at", has_text="applied").filter(visible=True).wait_for()

        visit.open("Revisions")
        visit.sees("superseded")
        visit.write("Reason", "back again")
        visit.press("Roll back to this revision")
        visit.sees("to revision 1 (fast) has begun.")
        visit.page.get_by_role("cell", name="rollback to revision 1: back again").wait_for()
        visit.press("Show what differs")
        visit.sees("command.--start-delay-s")
        visit.page.screenshot(path=tmp_path / "revisions.png")

        visit.open("Audits")
        visit.write("Reason", "after the switch")
        visit.write("Options, as a JSON object", '{"steps": 2000, "pause_s": 0.01}')
        visit.press("Start an audit")
        visit.sees("is queued.")  # and chosen: the progress may be there before
        visit.page.get_by_role("progressbar").filter(visible=True).wait_for()
        visit.sees("step ")
        visit.page.screenshot(path=tmp_path / "audit.png")
        visit.press("Cancel it")
        visit.page.get_by_role("cell", name="cancelled", exact=True).wait_for()
        visit.write("Options, as a JSON object", "")
        visit.press("Start an audit")
        visit.page.get_by_role("cell", name="fake: passed").first.wait_for()
        visit.open("Ceilings")
        visit.sees("Unavailable: not in this test")
        visit.open("Playground")
        visit.press("Answer with both")
        visit.sees("same text")
        visit.open("Audit log")
        visit.press("Verify the chain")
        visit.sees("the newest hash begins with")
        visit.press("Log out")
        visit.page.get_by_label("API key").wait_for()
        assert visit.failed == []
        assert all(asked.startswith((url, "data:", "blob:")) for asked in visit.asked)
        assert min(replicas.num_requests) > 20
    revisions = admin.call("revisions.list")["revisions"]
    assert [(r["profile_name"], r["state"]) for r in revisions][:2] == [
        ("fast", "current"),
        ("slow-start", "superseded"),
    ]
    assert (tmp_path / "switching.png").stat().st_size > 10_000


def test_a_queued_audit_says_live_what_it_waits_for(
    browser: Any, client: ConsoleClient, admin: Session
) -> None:
    with run_console(create_app(client)) as url:
        visit = Visit(browser, url, "dark")
        visit.log_in(admin.key)
        visit.open("Audits")
        visit.sees("No job of this kind has ended yet.")
        admin.call("engine.drain", body=ReasonRequest(reason="maintenance"))
        for reason in ("the first", "the second"):
            visit.write("Reason", reason)
            visit.write("Options, as a JSON object", '{"steps": 2000, "pause_s": 0.01}')
            visit.press("Start an audit")
            visit.sees(f": {reason}")
        visit.sees("an engine that is ready; now: draining")
        first, second = (job["id"] for job in reversed(admin.call("audits.list")["jobs"]))
        admin.call("engine.resume", body=ReasonRequest(reason="done"))
        # Nobody presses anything: the first one runs, and the second waits for that one now.
        visit.sees(f"the end of {first}; one job at a time")
        assert not visit.page.get_by_text("an engine that is ready").filter(visible=True).count()
        visit.page.get_by_role("progressbar").filter(visible=True).wait_for()
        # The job that is chosen is cancelled, and no other operator's.
        visit.press("Cancel it")
        visit.sees(f"Job {second} is cancelled.")
        assert [job["state"] for job in admin.call("audits.list")["jobs"]] == ["cancelled", "running"]
        assert visit.failed == []


def test_a_viewer_sees_and_presses_nothing(browser: Any, client: ConsoleClient, sidecar: LiveSidecar) -> None:
    _, headers = sidecar.make_key("viewer")
    with run_console(create_app(client)) as url:
        visit = Visit(browser, url, "light")
        visit.log_in(headers["Authorization"].removeprefix("Bearer "))
        visit.sees("revision 1, sha256-fast")
        assert "dark" not in (visit.page.locator("body").get_attribute("class") or "")
        visit.open("Revisions")
        assert visit.page.get_by_role("button", name="Roll back to this revision", exact=True).is_disabled()
        assert visit.page.get_by_role("button", name="Show what differs", exact=True).is_enabled()
        visit.open("Keys")
        visit.sees("wrong scope")
