"""The programs of the images: probe, smoke test, self-check, SBOM and the entry point, run as they are shipped."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from specpilot.engines.base import Engine
from tests.programs import require_program
from tests.service.live_server import run_server
from tests.source_tree import REPO

COMMON = REPO / "images" / "common"
DOCKERFILES = sorted((REPO / "images").glob("*/Dockerfile"))


def run_program(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    command = [sys.executable, str(COMMON / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


class Refusing(BaseHTTPRequestHandler):
    """Answers 503, as a service that is not ready does."""

    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def refusing() -> Iterator[tuple[str, ThreadingHTTPServer]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/readyz", server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_probe_of_a_service_that_is_not_ready_fails(refusing: tuple[str, ThreadingHTTPServer]) -> None:
    done = run_program("specpilot-probe", refusing[0])
    assert (done.returncode, done.stderr.strip()) == (1, f"{refusing[0]}: 503")


def test_a_probe_where_nothing_listens_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = run_program("specpilot-probe", f"http://127.0.0.1:{port}/readyz")
    assert done.returncode == 1 and "no answer" in done.stderr
    assert run_program("specpilot-probe", "--until-gone", f"http://127.0.0.1:{port}/livez").returncode == 0


def test_waiting_ends_when_the_other_is_gone() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    command = [sys.executable, str(COMMON / "specpilot-probe"), "--until-gone"]
    waiting = subprocess.Popen([*command, f"http://127.0.0.1:{server.server_port}/livez"])
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=2.0)
    server.shutdown()
    thread.join()
    server.server_close()
    assert waiting.wait(timeout=60) == 0


@pytest.mark.parametrize("program", ["specpilot-probe", "specpilot-smoke"])
def test_wrong_use_shows_how(program: str) -> None:
    done = run_program(program)
    assert done.returncode == 2 and program in done.stderr


def test_the_smoke_test_of_a_gateway_without_keys(bundled_engine: Engine) -> None:
    with run_server(bundled_engine) as server:
        assert run_program("specpilot-probe", f"{server.url}/readyz").returncode == 0
        done = run_program("specpilot-smoke", "--open", server.url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("ok ") == 5
        # A gateway that answers without a key fails the test of one that must not.
        done = run_program("specpilot-smoke", server.url, GATEWAY_KEY="x")
        assert done.returncode == 1
        assert "got 200, expected 401" in done.stdout


def load_self_check() -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": "self_check"}
    exec(compile((COMMON / "specpilot-self-check").read_text("utf-8"), "self-check", "exec"), namespace)
    return namespace


@pytest.mark.parametrize(
    ("compiled", "found", "complaint"),
    [
        (["cpu"], [], None),
        (["cpu"], ["sm_90"], None),
        (["sm_90a"], ["sm_90", "sm_90"], None),
        (["sm_120a"], ["sm_120"], None),
        (["sm_90a"], [], "no GPU is visible"),
        (["sm_90a"], ["sm_120"], "use the image for sm_120"),
        (["sm_120a"], ["sm_12"], "use the image for sm_12"),
        (["sm_90a"], ["sm_90", "sm_89"], "GPU of sm_89"),
    ],
)
def test_the_self_check_compares_architectures(
    compiled: list[str], found: list[str], complaint: str | None
) -> None:
    faults = load_self_check()["faults"](compiled, found)  # type: ignore[operator]
    if complaint is None:
        assert faults == []
    else:
        assert len(faults) == 1 and complaint in faults[0]


def test_the_sbom_lists_what_is_installed() -> None:
    done = run_program("specpilot-sbom")
    document = json.loads(done.stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    names = {component["name"].lower() for component in document["components"]}
    assert {"torch", "numpy", "fastapi"} <= names
    assert all(component["version"] and component["purl"] for component in document["components"])


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["fly"], 2), (["help"], 0)])
def test_the_entry_point_names_its_roles(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        ["sh", str(COMMON / "specpilot-entrypoint"), *arguments], capture_output=True, text=True
    )
    assert done.returncode == code
    assert "list-profiles" in done.stdout + done.stderr


def test_roles_of_the_entry_point_are_those_of_the_documents() -> None:
    text = (COMMON / "specpilot-entrypoint").read_text(encoding="utf-8")
    roles = set(re.findall(r"^    ([a-z-]+)\) ", text, re.MULTILINE))
    table = (REPO / "images" / "README.md").read_text(encoding="utf-8").split("## Roles")[1].split("##")[0]
    documented = {
        cell.split()[0]
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for cell in re.findall(r"`([^`]+)`", row)
    }
    assert roles == documented


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfiles_are_clean(path: Path) -> None:
    done = subprocess.run([require_program("hadolint"), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_images_have_what_all_images_have(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name, value in re.findall(r"^ARG (\w+)=(\S+)$", text.split("\nFROM ")[0], re.MULTILINE):
        text = text.replace(f"${{{name}}}", value)
    sm = {"cpu": "cpu", "sm90": "sm_90a", "sm120": "sm_120a"}[path.parent.name]
    for line in (
        "USER 10001:0",
        'ENTRYPOINT ["tini", "--", "specpilot-entrypoint"]',
        "STOPSIGNAL SIGTERM",
        "HEALTHCHECK",
        f'io.specpilot.sm="{sm}"',
    ):
        assert line in text, line
    assert re.search(rf'echo "?{sm}"? > /opt/specpilot/compiled-sm.txt', text)


def test_every_stage_stands_on_the_base_that_is_given() -> None:
    for path in DOCKERFILES:
        bases = re.findall(r"^FROM (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(bases) == {"${BASE_IMAGE}"} and len(bases) >= 2, path


def test_the_gpu_images_differ_in_their_architecture_alone() -> None:
    texts = [
        (REPO / "images" / sm / "Dockerfile").read_text("utf-8").splitlines() for sm in ("sm90", "sm120")
    ]
    differing = {a.split("=")[0] for a, b in zip(*texts, strict=True) if a != b and not a.startswith("#")}
    assert differing == {"ARG SM", "ARG CUDA_ARCH", "ARG TITLE"}


def test_the_environment_of_sglang_is_pinned_to_what_it_is_tested_with() -> None:
    lines = (REPO / "images/sglang/requirements.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    assert {"sglang==0.5.20", "torch==2.13.0", "transformers==5.12.1"} <= set(pins)


def test_every_copied_folder_enters_the_build_context() -> None:
    ignored = (REPO / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    allowed = {word[1:].rstrip("/") for word in ignored if word.startswith("!")}
    assert {
        "constraints.txt",
        "pyproject.toml",
        "profiles",
        "specpilot",
        "service",
        "console",
        "kernels",
    } <= allowed
    assert {"images/common", "images/sglang", "Makefile"} <= allowed


def test_shell_scripts_are_clean() -> None:
    program = require_program("shellcheck")
    done = subprocess.run([program, str(COMMON / "specpilot-entrypoint")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
