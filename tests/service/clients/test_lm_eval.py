"""EleutherAI's lm-evaluation-harness (``local-completions``) against the real server, on own tasks in local files.

Its log-likelihoods must be those of the engine, whether it sends token ids or text, one request at a time or several.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specpilot.engines.base import Engine, GenerateRequest, SamplingParams
from specpilot.models import bundled_folder
from tests.service.live_server import LiveServer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="lm-eval is not installed; pip install -e '.[lm-eval]'",
)

ROWS: tuple[dict[str, Any], ...] = (
    {
        "question": "Copy this list:\n\n- green lamp\n- garden hose",
        "choices": ["Here is the list:", "Step 1: 7 + 4 = 11.", "def add(a, b):"],
        "label": 0,
    },
    {
        "question": "Tom has 3 apples and buys 4 more. How many apples does he have?",
        "choices": ["Here is the list:", "Step 1: 3 + 4 = 7.", "def add(a, b):"],
        "label": 1,
    },
)
# As many stop strings as the harness's own code tasks send, and the end-of-text token that it adds.
UNTIL = ["\nclass", "\ndef", "\n#", "\nif", "\nprint"]
NUM_TOKENS = 24
TASKS: dict[str, dict[str, Any]] = {
    "choose": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}\n",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "label",
        "metric_list": [{"metric": "acc"}],
    },
    "answer": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}\n",
        "doc_to_target": "{{choices[label]}}",
        "generation_kwargs": {"until": UNTIL, "max_gen_toks": NUM_TOKENS, "temperature": 0},
        "metric_list": [{"metric": "exact_match"}],
    },
    "read": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
}


def run_lm_eval(
    server: LiveServer, model: str, folder: Path, tasks: dict[str, Any], model_args: str, batch_size: int
) -> dict[str, list[Any]]:
    """Samples of every task, in the order of the rows."""
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    for name, task in tasks.items():
        source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(rows)}}}
        # JSON is YAML.
        (folder / f"{name}.yaml").write_text(
            json.dumps({"task": f"specpilot_{name}", "test_split": "test", **source, **task})
        )
    arguments = {
        "--model": "local-completions",
        "--model_args": ",".join(
            (
                f"model={model}",
                f"base_url={server.url}/v1/completions",
                "tokenizer_backend=huggingface",
                f"tokenizer={bundled_folder() / 'target'}",
                "max_length=8192",
                "max_retries=1",
                model_args,
            )
        ),
        "--batch_size": str(batch_size),
        "--tasks": ",".join(f"specpilot_{name}" for name in tasks),
        "--include_path": str(folder),
        "--output_path": str(folder / "out"),
    }
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "lm_eval", *(word for pair in arguments.items() for word in pair)]
    done = subprocess.run(
        [*command, "--log_samples"], env={**os.environ, **offline}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    samples = {}
    for name in tasks:
        (path,) = (folder / "out").rglob(f"samples_specpilot_{name}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        samples[name] = sorted(lines, key=lambda line: line["doc_id"])
    return samples


@pytest.fixture(scope="module")
def by_ids(server: LiveServer, model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """One request at a time, as token ids: the harness's defaults."""
    folder = tmp_path_factory.mktemp("ids")
    return run_lm_eval(server, model, folder, TASKS, "tokenized_requests=True", batch_size=1)


@pytest.fixture(scope="module")
def by_text(server: LiveServer, model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Batches of text, two at once; without the task that begins with a special token, which in text is text."""
    tasks = {name: TASKS[name] for name in ("choose", "answer")}
    model_args = "tokenized_requests=False,num_concurrent=2"
    return run_lm_eval(server, model, tmp_path_factory.mktemp("text"), tasks, model_args, batch_size=4)


@pytest.mark.parametrize("way", ["by_ids", "by_text"])
def test_choices_are_scored_as_by_the_engine(
    request: pytest.FixtureRequest, way: str, bundled_engine: Engine
) -> None:
    samples, num_compared = request.getfixturevalue(way), 0
    for row, sample in zip(ROWS, samples["choose"], strict=True):
        for choice, (response,) in zip(row["choices"], sample["resps"], strict=True):
            # The harness counts white space between context and choice to the choice.
            start = len(bundled_engine.tokenize(row["question"]))
            ids = bundled_engine.tokenize(f"{row['question']}\n {choice}")
            score = bundled_engine.score(ids, start)
            assert float(response[0]) == pytest.approx(sum(score.logprobs), abs=1e-6)
            assert response[1] == str(list(score.argmax_ids) == ids[start:])
            num_compared += 1
    assert num_compared == 6


@pytest.mark.parametrize("way", ["by_ids", "by_text"])
def test_answers_are_the_engines(request: pytest.FixtureRequest, way: str, bundled_engine: Engine) -> None:
    samples = request.getfixturevalue(way)
    sampling = SamplingParams(max_new_tokens=NUM_TOKENS, stop=tuple(UNTIL))
    for row, sample in zip(ROWS, samples["answer"], strict=True):
        asked = GenerateRequest(bundled_engine.tokenize(f"{row['question']}\n"), sampling)
        assert sample["resps"] == [["".join(chunk.text for chunk in bundled_engine.generate(asked))]]


def test_a_whole_text_is_scored_after_the_end_of_text_token(
    by_ids: dict[str, list[Any]], bundled_engine: Engine
) -> None:
    eos_id = bundled_engine.describe().eos_ids[0]
    for row, sample in zip(ROWS, by_ids["read"], strict=True):
        score = bundled_engine.score([eos_id, *bundled_engine.tokenize(row["question"])], 1)
        assert float(sample["resps"][0][0]) == pytest.approx(sum(score.logprobs), abs=1e-6)
