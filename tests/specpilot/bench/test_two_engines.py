"""The comparison of two engines, with the reference engine's own numbers in the other engine's place."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specpilot.bench.two_engines import sglang_box
from specpilot.bench.two_engines.compare import compare, paired_ratio, steps_within
from specpilot.bench.two_engines.reference import Answer, answer, drafts_along
from specpilot.bench.two_engines.rows import EngineRun, read_run
from specpilot.errors import ConfigError
from specpilot.forcing.departures import common_length
from specpilot.models.build import build_engine
from specpilot.refengine.engine import ReferenceEngine

QUESTIONS = (
    "A crate holds 18 jars. How many jars do 7 crates hold?",
    "Name three things to pack for a day by the sea.",
)
SIZE = 48


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return build_engine(mode="judge")


@pytest.fixture(scope="module")
def prompts(engine: ReferenceEngine) -> list[dict[str, Any]]:
    chats = [engine.apply_chat_template([{"role": "user", "content": text}]) for text in QUESTIONS]
    return [{"id": f"own/{index}", "prompt_ids": ids} for index, ids in enumerate(chats)]


def written(values: Answer) -> dict[str, Any]:
    return {"output_ids": values.output_ids, "lengths": values.lengths, "spec_verify_ct": values.num_steps}


@pytest.fixture
def lines(engine: ReferenceEngine, prompts: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What sglang_box would have written, had SGLang computed what the reference engine computes."""
    runs = {}
    for name in ("plain", "dflash2"):
        answers = [answer(engine, p["prompt_ids"], None if name == "plain" else name, SIZE) for p in prompts]
        rows = [{"id": p["id"]} | written(values) for p, values in zip(prompts, answers, strict=True)]
        probed = []
        if name == "dflash2":
            drafts = drafts_along(engine, name, prompts[0]["prompt_ids"], answers[0], 5)
            for draft, length in zip(drafts, answers[0].lengths, strict=False):
                probed.append(
                    {
                        "anchor": answers[0].output_ids[length - 1],
                        "candidate_ids": draft.lattice.candidate_ids.tolist(),
                        "edge_scores": draft.lattice.edge_scores.tolist(),
                    }
                )
        runs[name] = [{"format_version": 1, "probed_answer": written(answers[0]), "probed": probed}, *rows]
    return runs


def read(lines: dict[str, list[dict[str, Any]]], folder: Path) -> dict[str, EngineRun]:
    runs = {}
    for name, rows in lines.items():
        path = folder / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
        runs[name] = read_run(path)
    return runs


def test_an_engine_agrees_with_itself(engine, prompts, lines, tmp_path):
    report = compare(prompts, read(lines, tmp_path), engine)
    assert report["plain"]["num_tokens"] == 2 * SIZE and report["plain"]["divergences"] == []
    drafter = report["drafters"]["dflash2"]
    assert drafter["chunks_are_steps"]
    for part in ("along_sglang_answers", "whole_answers", "before_divergence"):
        assert drafter[part]["difference"] == 0 and drafter[part]["interval"] == [0, 0]
        assert drafter[part]["tau_reference"] > 1
    assert drafter["drafts"]["chains_equal"] == drafter["drafts"]["num_steps"] == 5
    assert drafter["drafts"]["candidates_shared"] == 1 and drafter["drafts"]["largest_difference"] == 0


def test_a_wrong_token_is_listed_with_its_margin(engine, prompts, lines, tmp_path):
    row = lines["plain"][2]
    right = row["output_ids"][20]
    row["output_ids"] = [*row["output_ids"][:20], (right + 1) % 4096, *row["output_ids"][21:]]
    (found,) = compare(prompts, read(lines, tmp_path), engine)["plain"]["divergences"]
    assert (found["id"], found["at"], found["reference"]) == ("own/1", 20, right)
    assert found["margin_nats"] > 0.5


def test_a_wrong_score_and_a_wrong_step_show(engine, prompts, lines, tmp_path):
    step = lines["dflash2"][0]["probed"][3]
    step["edge_scores"][2][0][1] += 5.0
    lines["dflash2"][1]["spec_verify_ct"] += 1
    report = compare(prompts, read(lines, tmp_path), engine)["drafters"]["dflash2"]
    assert report["drafts"]["largest_difference"] == pytest.approx(5.0, abs=1e-3)
    assert not report["chunks_are_steps"]
    step["anchor"] += 1
    with pytest.raises(ConfigError, match="do not begin where"):
        compare(prompts, read(lines, tmp_path), engine)


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "plain.jsonl"
    path.write_text('{"format_version": 2}\n')
    with pytest.raises(ConfigError, match="format_version 1"):
        read_run(path)


def test_the_interval_covers_a_difference_that_is_there_and_none_that_is_not():
    draw = np.random.default_rng(0)
    steps = draw.integers(80, 200, 100)
    ours = [(int(3.0 * count), int(count)) for count in steps]
    noisy = [(int(tokens * draw.normal(1.0, 0.03)), count) for tokens, count in ours]
    low, high = paired_ratio(ours, noisy)["interval"]
    assert low < 0 < high and high - low < 0.02
    low, high = paired_ratio(ours, [(int(1.1 * tokens), count) for tokens, count in noisy])["interval"]
    assert 0.08 < low < 0.1 < high < 0.12


def test_steps_within_counts_whole_steps():
    assert steps_within((1, 4, 5, 9), 9) == (8, 3)
    assert steps_within((1, 4, 5, 9), 8) == (4, 2)
    assert steps_within((1, 4), 0) == (0, 0)
    assert common_length((1, 2, 3), (1, 2, 4)) == 2 and common_length((1, 2), (1, 2, 4)) == 2


@pytest.mark.parametrize("is_cumulative", [True, False])
def test_the_box_program_reads_both_forms_of_a_stream(is_cumulative: bool, tmp_path: Path):
    steps = [[5], [6, 7, 8], [5], [5, 6]]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 7, "ignore_eos": True}
            self.send_response(200)
            self.end_headers()
            for index, ids in enumerate(steps):
                sent = [*chain.from_iterable(steps[: index + 1])] if is_cumulative else ids
                event = {"output_ids": sent, "meta_info": {"completion_tokens": 7, "spec_verify_ct": 3}}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
        got = sglang_box.ask(port, [1, 2], 7)
    assert got["output_ids"] == [5, 6, 7, 8, 5, 5, 6] and got["lengths"] == [1, 4, 5, 7]
    assert got["spec_verify_ct"] == 3 and got["completion_tokens"] == 7


class serving:
    """A loopback server for the time of a block; its port comes back."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self) -> int:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.server.server_address[1]

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_the_launch_line_names_a_drafter_only_when_there_is_one() -> None:
    plain = sglang_box.server_command("m", 1, None, None)
    assert not any("speculative" in part for part in plain)
    drafted = sglang_box.server_command("m", 1, "d", "DSPARK")
    assert drafted[: len(plain)] == plain
    assert drafted[len(plain) :][:4] == [
        "--speculative-algorithm",
        "DSPARK",
        "--speculative-draft-model-path",
        "d",
    ]
