"""A system for process slots, standard library only: so many milliseconds a token, and what a cheat may do beside.

Run as ``python slot_server.py PORT MS_PER_TOKEN [FILE]``. With FILE it tells in its last token whether it could read it
(1) or not (0), starts a child that detaches itself, and patches the clocks of its own process to stand still.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Handler"]

sleep = time.sleep


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "made-up"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for number in range(body["max_tokens"]):
            sleep(float(sys.argv[2]) / 1000.0)
            is_last = number == body["max_tokens"] - 1
            choice = {
                "text": "x",
                "token_ids": [can_read() if is_last else number],
                "finish_reason": "length" if is_last else None,
            }
            self.send(json.dumps({"choices": [choice], "timing_s": 0.0}))
        self.send("[DONE]")

    def send(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def can_read() -> int:
    if len(sys.argv) < 4:
        return 0
    try:
        with open(sys.argv[3]) as file:
            file.read()
    except OSError:
        return 0
    return 1


if __name__ == "__main__":
    if len(sys.argv) > 3:
        time.monotonic = time.perf_counter = time.time = lambda: 0.0
        subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
