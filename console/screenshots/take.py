"""Takes the pictures of ``console/README.md``: a sidecar with the bundled model, the console and Chromium in it.

Everything listens on free ports of the loopback address and keeps its state in a temporary folder. It takes about five
minutes on two idle cores, since every switch is audited. Needs the extras serve, console and dev, and Chromium.

    python console/screenshots/take.py                          # the pictures of the README, beside this file
    python console/screenshots/take.py --all --to FOLDER        # every tab in light and in dark, to look at
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
from playwright.sync_api import Page, sync_playwright

from specpilot_console.client import ApiError, ConsoleClient, Session
from specpilot_console.tabs import TABS
from specpilot_service.schemas.admin import SwitchList
from specpilot_service.schemas.admin_jobs import CheckRequest, JobList

__all__ = ["main"]

Scheme = Literal["light", "dark"]

FIRST, OTHER = "cpu/bundled--dflash2--chain", "cpu/bundled--dflash2--tree"
QUESTIONS = (
    "Tom has 3 boxes with 12 pens each. How many pens are there?",
    "Write a Python function that adds two numbers.",
    "Why is the sky blue?",
)
AUDIT = {"prompts": 80, "max_tokens": 112}
PATIENCE_S = 600.0
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(module: str, *words: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-P", "-m", module, *words])
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def wait_until(is_so: Any, what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        with contextlib.suppress(ApiError, httpx.HTTPError, FileNotFoundError):
            if is_so():
                return
        time.sleep(0.3)
    raise SystemExit(f"not within {PATIENCE_S:.0f} s: {what}")


@contextlib.contextmanager
def stack(folder: Path) -> Iterator[tuple[str, Session]]:
    """The console's URL and a session of the first admin; the first profile is applied."""
    gateway, admin, console = free_port(), free_port(), free_port()
    urls = f"http://127.0.0.1:{admin}", f"http://127.0.0.1:{gateway}"
    sidecar = ["--open", f"--state={folder}", f"--port={gateway}", f"--admin-port={admin}"]
    sidecar += [f"--profile={FIRST}", "--log-level=warning"]
    page = [f"--admin-url={urls[0]}", f"--gateway-url={urls[1]}", f"--port={console}", "--log-level=warning"]
    with running("specpilot_service.sidecar", *sidecar), running("specpilot_console", *page):
        client = ConsoleClient(*urls)
        key = folder / "admin.key"
        wait_until(lambda: client.session(key.read_text().strip()).whoami(), "the admin API answers")
        session = client.session(key.read_text().strip())
        wait_until(lambda: state_of_switch(session) == "applied", "the first profile is applied")
        url = f"http://127.0.0.1:{console}"
        wait_until(lambda: client.http.get(f"{url}/livez").is_success, "the console answers")
        yield url, session
        client.close()


def state_of_switch(session: Session) -> str:
    return session.fetch(SwitchList, "switches.list").switches[0].state


@contextlib.contextmanager
def chats(session: Session) -> Iterator[None]:
    """Two clients that ask one question after the other until the block ends."""
    ending = threading.Event()
    url = f"{session.client.gateway_url}/v1/chat/completions"

    def ask() -> None:
        number = 0
        while not ending.is_set():
            messages = [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}]
            body = {"model": "specpilot-bundled", "messages": messages, "max_tokens": 96, "stream": True}
            with session.client.http.stream("POST", url, json=body) as answer:
                for _ in answer.iter_lines():
                    pass
            number += 1

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


class Visit:
    """One window, logged in."""

    def __init__(self, browser: Any, url: str, session: Session, scheme: Scheme) -> None:
        self.page: Page = browser.new_context(
            color_scheme=scheme, viewport={"width": 1280, "height": 860}
        ).new_page()
        self.page.set_default_timeout(PATIENCE_S * 1e3)
        self.page.goto(url)
        self.page.get_by_label("API key").fill(session.key)
        self.press("Log in")
        self.sees("first admin")

    def open(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab, exact=True).click()

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).filter(visible=True).click()

    def write(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).filter(visible=True).fill(text)

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_label(label, exact=True).filter(visible=True).click()
        self.page.get_by_role("option", name=option, exact=True).click()

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).filter(visible=True).first.wait_for()

    def picture(self, path: Path, height: int) -> None:
        """The window's upper part, without the pointer's traces and half-drawn changes."""
        self.page.set_viewport_size({"width": 1280, "height": height})
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(1500)
        self.page.screenshot(path=path)


def take_for_readme(browser: Any, url: str, session: Session, to: Path) -> None:
    light, dark = (Visit(browser, url, session, scheme) for scheme in ("light", "dark"))
    session.call("audits.start", body=CheckRequest(options=AUDIT, reason="after the installation"))
    wait_until(lambda: has_audit(session), "the audit has ended")
    dark.open("Audits")
    dark.sees("Newest: ")
    dark.picture(to / "audits.png", 1260)

    light.page.reload()
    with chats(session):
        light.page.wait_for_timeout(40_000)
        light.picture(to / "overview.png", 860)

    dark.open("Profiles")
    dark.choose("Profile", OTHER)
    dark.sees("--builder best_first")
    dark.write("Reason", "trees of 16 rows for single requests")
    dark.press("Switch to this profile")
    dark.page.locator("li.sp-at", has_text="gating").filter(visible=True).wait_for()
    dark.picture(to / "profiles.png", 1300)
    wait_until(lambda: state_of_switch(session) == "applied", "the switch is applied")

    light.open("Revisions")
    light.press("Show what differs")
    light.sees("command.--builder")
    light.picture(to / "revisions.png", 860)

    light.open("Playground")
    light.press("Answer with both")
    light.sees("in this pair")
    light.picture(to / "playground.png", 900)

    dark.open("Audit log")
    dark.press("Verify the chain")
    dark.sees("the newest hash begins with")
    dark.picture(to / "audit-log.png", 760)


def has_audit(session: Session) -> bool:
    jobs = session.fetch(JobList, "audits.list").jobs
    return any(job.origin == "operator" and job.result is not None for job in jobs)


def take_all(browser: Any, url: str, session: Session, to: Path) -> None:
    for scheme in ("light", "dark"):
        visit = Visit(browser, url, session, scheme)
        for name, _ in TABS:
            visit.open(name)
            visit.picture(to / f"{name.lower().replace(' ', '-')}-{scheme}.png", 1400)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of the console.", allow_abbrev=False)
    parser.add_argument("--to", type=Path, default=Path(__file__).resolve().parent, help="folder")
    parser.add_argument("--all", action="store_true", help="every tab, light and dark")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with (
        tempfile.TemporaryDirectory() as folder,
        stack(Path(folder)) as (url, session),
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=ARGUMENTS) as browser,
    ):
        take_for_readme(browser, url, session, given.to)
        if given.all:
            take_all(browser, url, session, given.to)


if __name__ == "__main__":
    main()
