"""README's Python example, run as it stands against the real command on the bundled model."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from specpilot.models import bundled_folder
from tests.source_tree import REPO

README_URL = "http://127.0.0.1:8000"


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``specpilot serve`` on a free port, ready; the process and its address."""
    if not (bundled_folder() / "target").exists():
        pytest.skip("the bundled model is not in this checkout")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    script = "import sys; from specpilot.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "serve", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_until_ready(process, url)
        yield process, url
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def wait_until_ready(process: subprocess.Popen[str], url: str) -> None:
    # The transport tries to connect again and again, each time a little later: a minute in all.
    with httpx.Client(transport=httpx.HTTPTransport(retries=10), timeout=60) as client:
        answer = client.get(f"{url}/readyz")
    assert process.poll() is None
    assert answer.status_code == 200, answer.text


def test_the_readme_example_prints_an_answer(
    server: tuple[subprocess.Popen[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    process, url = server
    text = (REPO / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert README_URL in example
    exec(compile(example.replace(README_URL, url), "README.md", "exec"), {})
    assert len(capsys.readouterr().out.split()) > 3

    process.send_signal(signal.SIGTERM)
    _, log = process.communicate()
    assert process.returncode == 0, log
