"""Scorers over HTTP: our own endpoint as it runs, and SGLang's protocol spoken by the reference engine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from specpilot.forcing import ForcingError
from specpilot.forcing.scorers.completions import CompletionsScorer
from specpilot.forcing.scorers.http import JsonServer
from specpilot.forcing.scorers.sglang import SglangScorer
from specpilot.forcing.served import served_answers


class Server(ThreadingHTTPServer):
    engine: Any
    info: dict
    change: Any
    client: JsonServer


class Sglang(BaseHTTPRequestHandler):
    """``/server_info`` and ``/generate`` as SGLang 0.5.20 answers them; ``change`` spoils the reply."""

    server: Server

    def do_GET(self):
        self.reply(self.server.info)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        engine, ids = self.server.engine, body["input_ids"]
        if body.get("return_logprob"):
            start = body["logprob_start_len"]
            score = engine.score(ids, start + 1, num_top=1)
            tokens = [[None, ids[start], None]]
            tokens += [[value, i, None] for value, i in zip(score.logprobs, ids[start + 1 :], strict=True)]
            tops = [None, *([[value, i, None]] for [(i, value)] in score.top)]
            meta = {"input_token_logprobs": tokens, "input_top_logprobs": tops}
            self.server.change(meta)
            self.reply({"output_ids": [], "meta_info": meta})
        else:
            most = body["sampling_params"]["max_new_tokens"]
            score = engine.score([*ids, 0], len(ids))
            self.reply(
                {
                    "output_ids": [score.argmax_ids[0]] * min(most, 1),
                    "meta_info": {"finish_reason": {"type": "length", "length": most}},
                }
            )

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def sglang(engine):
    server = Server(("127.0.0.1", 0), Sglang)
    server.engine, server.change = engine, lambda meta: None
    server.info = {
        "version": "0.5.20",
        "model_path": "m",
        "enable_fp32_lm_head": True,
        "context_length": 8192,
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.client = JsonServer(f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def assert_same(scores, expected, places=1e-6):
    for one, other in zip(scores, expected, strict=True):
        assert np.abs(one.logprobs - other.logprobs).max() < places
        assert (one.argmax_ids == other.argmax_ids).all()


def test_sglang_scores_are_the_engines(sglang, scorer, stock):
    found = SglangScorer(sglang.client)
    assert found.describe().head == "fp32"
    assert_same(found.score(stock[:3]), scorer.score(stock[:3]))
    ids = [*stock[0].prompt_ids, *stock[0].output_ids]
    assert found.rescore(ids, len(ids) - 3) == pytest.approx(scorer.rescore(ids, len(ids) - 3))
    assert found.continue_greedily(stock[0].prompt_ids, 1) == [stock[0].output_ids[0]]
    [answer] = served_answers(sglang.client, [("a", stock[0].prompt_ids)], 1, model=None)
    assert answer.output_ids == (stock[0].output_ids[0],) and answer.finish_reason == "length"


def drop(meta):
    del meta["input_top_logprobs"]


def shift(meta):
    meta["input_token_logprobs"][-1][1] += 1


def blank(meta):
    meta["input_token_logprobs"][-1][0] = None


@pytest.mark.parametrize(("change", "cause"), [(drop, "missing"), (shift, "other tokens"), (blank, "NaN")])
def test_sglang_scores_that_are_none_are_refused(change, cause, sglang, stock):
    sglang.change = change
    with pytest.raises(ForcingError, match=cause):
        for score in SglangScorer(sglang.client).score(stock[:1]):
            score.check(len(stock[0].output_ids), "x", 4096)


def test_a_scorer_that_speculates_is_refused(sglang):
    sglang.info["speculative_algorithm"] = "DFLASH"
    with pytest.raises(ForcingError, match="speculates"):
        SglangScorer(sglang.client)


def test_a_head_that_is_not_fp32_is_told(sglang):
    sglang.info["enable_fp32_lm_head"] = False
    assert "not fp32" in SglangScorer(sglang.client).describe().head


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(ForcingError, match=r"127\.0\.0\.1:9"):
        CompletionsScorer(JsonServer("http://127.0.0.1:9", timeout_s=2))
    with pytest.raises(ForcingError, match="expected http"):
        JsonServer("file:///etc/passwd")
