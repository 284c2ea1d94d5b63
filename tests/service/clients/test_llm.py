"""The ``llm`` command-line tool against the real server, set up by its ``extra-openai-models.yaml``."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from tests.service.live_server import PATIENCE_S, LiveServer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llm") is None, reason="llm is not installed; pip install -e '.[clients]'"
)
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does Tom have now?"


@pytest.fixture
def settings(server: LiveServer, model: str, tmp_path: Path) -> Path:
    api_base = f"{server.url}/v1"
    models = [
        {"model_id": "specpilot", "model_name": model, "api_base": api_base},
        {"model_id": "specpilot-text", "model_name": model, "api_base": api_base, "completion": True},
    ]
    # JSON is YAML.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))
    return tmp_path


def llm(settings: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LLM_USER_PATH": str(settings)}
    return subprocess.run(
        [sys.executable, "-m", "llm", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def expected(engine: Engine, ids: list[int], num_tokens: int) -> str:
    request = GenerateRequest(ids, SamplingParams(max_new_tokens=num_tokens))
    return "".join(chunk.text for chunk in engine.generate(request))


@pytest.mark.parametrize("how", [(), ("--no-stream",)])
def test_a_question_and_the_next_one(settings: Path, bundled_engine: Engine, how: tuple[str, ...]) -> None:
    options = ("-o", "temperature", "0", "-o", "max_tokens", "20", *how)
    first = llm(settings, "-m", "specpilot", QUESTION, "--usage", *options)
    messages = [{"role": "user", "content": QUESTION}]
    ids = bundled_engine.apply_chat_template(messages)
    answer = expected(bundled_engine, ids, 20)
    assert first.returncode == 0, first.stderr
    assert first.stdout.rstrip("\n") == answer.rstrip("\n")
    assert f"{len(ids)} input, 20 output" in first.stderr

    second = llm(settings, "--continue", "And one more?", *options)
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And one more?"}]
    assert second.returncode == 0, second.stderr
    ids = bundled_engine.apply_chat_template(messages)
    assert second.stdout.rstrip("\n") == expected(bundled_engine, ids, 20).rstrip("\n")


def test_text_completion(settings: Path, bundled_engine: Engine) -> None:
    prompt = "def add(a, b):"
    options = ("-o", "temperature", "0", "-o", "max_tokens", "16")
    done = llm(settings, "-m", "specpilot-text", prompt, *options)
    assert done.returncode == 0, done.stderr
    answer = expected(bundled_engine, bundled_engine.tokenize(prompt), 16)
    assert done.stdout.rstrip("\n") == answer.rstrip("\n")


def test_the_servers_refusal_is_shown(settings: Path) -> None:
    done = llm(settings, "-m", "specpilot", QUESTION, "-o", "temperature", "0", "-o", "max_tokens", "9000")
    assert done.returncode == 1
    assert "context length" in done.stderr
