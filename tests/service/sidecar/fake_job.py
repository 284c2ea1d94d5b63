"""A job of the tests, as a program and as a kind. It ends by itself after ``--lifetime-s``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FakeKind"]


class FakeKind:
    """Options are those of the program below; ``gate`` are those of its gate jobs."""

    def __init__(self, name: str, gate: Mapping[str, Any] | None = None) -> None:
        self.name, self.gate, self.why = name, dict(gate or {}), ""

    def unavailable(self) -> str:
        return self.why

    def unavailable_for(self, resolved: Any) -> str:
        return ""

    def gate_options(self) -> Mapping[str, Any]:
        return self.gate

    def command(self, options: Mapping[str, Any], place: Any) -> list[str]:
        from specpilot.errors import ConfigError

        known = {"verdict", "steps", "pause_s", "how"}
        if unknown := sorted(set(options) - known):
            raise ConfigError(f"options: got {unknown}, expected: {sorted(known)}")
        command = [sys.executable, __file__, "--result", str(place.result)]
        command += ["--engine-url", place.engine_url or "none"]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return command


def main(options: argparse.Namespace) -> int:
    facts = {
        "nice": os.nice(0),
        "scheduler": os.sched_getscheduler(0),
        "pid": os.getpid(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "engine_url": options.engine_url,
    }
    print(json.dumps({"pid": os.getpid()}), flush=True)  # no progress: it goes to the log
    if options.how == "child":  # a process of its own that must end with the job
        pid = os.fork()
        if pid == 0:
            time.sleep(options.lifetime_s)
            os._exit(0)
        Path("child").write_text(str(pid))
    end_s = time.monotonic() + options.lifetime_s
    for done in range(options.steps):
        print(json.dumps({"done": done, "total": options.steps, "message": f"step {done}"}), flush=True)
        time.sleep(options.pause_s)
        if options.how == "spin":
            sum(range(200_000))
        if time.monotonic() > end_s:
            return 3
    if options.how == "die":
        print("fake job: dies as asked", file=sys.stderr)
        return 7
    if options.how == "silent":
        return 0
    if options.how == "garbage":
        options.result.write_text('{"passed": "yes", "message": 3}')
        return 0
    passed = {"passed": True, "failed": False, "undecided": None}[options.verdict]
    options.result.write_text(json.dumps({"passed": passed, "message": f"fake: {options.verdict}", **facts}))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--engine-url", required=True)
    parser.add_argument("--verdict", default="passed", choices=("passed", "failed", "undecided"))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--how", choices=("die", "silent", "garbage", "child", "spin"))
    parser.add_argument("--lifetime-s", type=float, default=60.0)
    sys.exit(main(parser.parse_args()))
