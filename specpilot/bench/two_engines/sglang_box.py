"""Starts stock SGLang 0.5.20 on one GPU, asks it every prompt, writes what came back, stops it.

Standard library only: run it as a file on the GPU machine, where ``import sglang`` works. CUDA graphs are off, so that
the probe sees every draft.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["NUM_PROBED_STEPS", "ask", "collect", "main", "server_command"]

NUM_PROBED_STEPS = 20


def server_command(model: str, port: int, draft: str | None, algorithm: str | None) -> list[str]:
    """The launch line; ``draft`` and ``algorithm`` None for plain decoding."""
    command = [
        sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--skip-tokenizer-init",
        "--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none",
        "--page-size", "1", "--disable-cuda-graph", "--disable-radix-cache", "--max-running-requests", "8",
        "--max-total-tokens", "32768", "--context-length", "8192", "--skip-server-warmup",
        "--mem-fraction-static", "0.5", "--stream-interval", "1", "--port", str(port),
    ]  # fmt: skip
    if draft and algorithm:
        command += ["--speculative-algorithm", algorithm, "--speculative-draft-model-path", draft]
        command += ["--speculative-draft-attention-backend", "triton"]
    return command


def ask(port: int, prompt_ids: list[int], max_new_tokens: int, timeout_s: float = 300.0) -> dict[str, Any]:
    """Greedy, end-of-text ignored. Returns output_ids, the output length after every chunk, and SGLang's own counts."""
    body = {
        "input_ids": prompt_ids,
        "stream": True,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": max_new_tokens, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    output: list[int] = []
    lengths: list[int] = []
    meta: dict[str, Any] = {}
    with urllib.request.urlopen(request, timeout=timeout_s) as reply:
        for raw in reply:
            line = raw.decode().strip()
            if not line.startswith("data:") or line == "data: [DONE]":
                continue
            event = json.loads(line[5:])
            ids = event["output_ids"]
            output = ids if ids[: len(output)] == output and len(ids) >= len(output) else output + ids
            lengths.append(len(output))
            meta = event["meta_info"]
    kept = ("completion_tokens", "spec_verify_ct", "spec_accept_length", "spec_accept_histogram")
    return {"output_ids": output, "lengths": lengths} | {name: meta.get(name) for name in kept}


def collect(port: int, prompts: list[dict[str, Any]], max_new_tokens: int, out: Path, probe: Path) -> None:
    """The first prompt alone, probed; the others eight at a time. One JSON object a line, in the prompts' order."""
    (probe / "on").touch()
    rows: dict[int, dict[str, Any]] = {0: ask(port, prompts[0]["prompt_ids"], 8 * NUM_PROBED_STEPS)}
    (probe / "on").unlink()
    first = dict(rows[0])
    todo = list(range(len(prompts)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not todo:
                    return
                index = todo.pop(0)
            rows[index] = ask(port, prompts[index]["prompt_ids"], max_new_tokens)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    probed = [json.loads(path.read_text()) for path in sorted(probe.glob("*.json"))]
    with open(out, "w", encoding="utf-8") as file:
        file.write(json.dumps({"format_version": 1, "probed_answer": first, "probed": probed}) + "\n")
        for index, prompt in enumerate(prompts):
            file.write(json.dumps({"id": prompt["id"]} | rows[index]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--algorithm", choices=("DFLASH", "DSPARK"))
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--probe", type=Path, required=True, help="An empty folder for the probe.")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--max-new-tokens", type=int, default=512)
    parser.add_argument("--start-limit-s", type=float, default=300.0)
    arguments = parser.parse_args()
    prompts = [json.loads(line) for line in arguments.prompts.read_text(encoding="utf-8").splitlines()]
    arguments.probe.mkdir(parents=True, exist_ok=True)
    hook = str(Path(__file__).parent / "probe")
    environment = os.environ | {
        "SPECPILOT_PROBE": str(arguments.probe),
        "PYTHONPATH": os.pathsep.join([hook, os.environ.get("PYTHONPATH", "")]),
    }
    command = server_command(arguments.model, arguments.port, arguments.draft, arguments.algorithm)
    begun = time.monotonic()
    with open(arguments.log, "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while True:
            if server.poll() is not None or time.monotonic() - begun > arguments.start_limit_s:
                sys.exit(f"server: not ready after {time.monotonic() - begun:.0f} s, see {arguments.log}")
            try:
                ask(arguments.port, prompts[0]["prompt_ids"], 2, timeout_s=200)
                break
            except (OSError, KeyError):
                time.sleep(2)
        print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)
        collect(arguments.port, prompts, arguments.max_new_tokens, arguments.out, arguments.probe)
        print(f"{len(prompts)} answers after {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # the group this program started, server and its workers
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
