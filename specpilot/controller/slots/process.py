"""A system as a process under its arm's own user, started by the spawner and asked over loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from specpilot.controller.isolation import Users
from specpilot.controller.slots.base import Arm, Endpoint, System
from specpilot.controller.slots.http import HttpEndpoint, list_models
from specpilot.controller.spawner import Spawner
from specpilot.errors import ConfigError, EngineError

__all__ = ["ProcessSlot"]

_POLL_S: Final = 0.1
_THERMAL = Path("/sys/class/thermal")


class ProcessSlot:
    """Starts ``launch`` with the system's arguments behind it.

    Parameters
    ----------
    launch
        The operator's command; ``{port}`` stands for a free port and ``{tree}`` for the folder with the system's code.
    environment
        Of the process, CUDA_VISIBLE_DEVICES for instance; ``{tree}`` is replaced here too.
    trees
        Folder that holds a folder for each code snapshot, by its hash; ``stock`` is the controller's.
    """

    is_isolated = True

    def __init__(
        self,
        name: str,
        spawner: Spawner,
        users: Users,
        launch: list[str],
        environment: Mapping[str, str],
        trees: Path,
        start_limit_s: float,
    ) -> None:
        self.name, self._spawner, self._users, self._launch = name, spawner, users, launch
        self._environment, self._trees, self._start_limit_s = dict(environment), trees, start_limit_s

    @contextmanager
    def run(self, system: System, arm: Arm) -> Iterator[Endpoint]:
        tree = self._trees / (system.tree or "stock")
        if not tree.is_dir():
            raise ConfigError(
                f"system {system.name}: got tree {system.tree!r}, expected one the controller took"
            )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        def fill(word: str) -> str:
            return word.replace("{port}", str(port)).replace("{tree}", str(tree))

        command = [*map(fill, self._launch), *system.arguments]
        environment = {name: fill(value) for name, value in self._environment.items()}
        self._spawner.start(arm, command, environment)
        try:
            url = f"http://127.0.0.1:{port}"
            model = self._wait(url, port, arm)
            yield HttpEndpoint(url, model)
        finally:
            self._spawner.stop(arm)

    def environment(self) -> Mapping[str, str]:
        shown = {
            "launch": json.dumps(self._launch),
            "slot environment": json.dumps(self._environment, sort_keys=True),
        }
        return shown | _gpus()

    def notes(self) -> Mapping[str, float]:
        found = {"load_1min": os.getloadavg()[0]}
        for zone in sorted(_THERMAL.glob("thermal_zone*/temp")):
            try:
                found[f"{zone.parent.name}_celsius"] = int(zone.read_text()) / 1000.0
            except (OSError, ValueError):  # a zone without a reading
                continue
        return found

    def _wait(self, url: str, port: int, arm: Arm) -> str:
        """Until the system answers, on a port that its own user listens on: another could have taken it."""
        deadline = time.monotonic() + self._start_limit_s
        while True:
            try:
                [model, *_] = list_models(url)
                break
            except (EngineError, ValueError):
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"slot {self.name}: no answer from the {arm} after {self._start_limit_s:.0f} s"
                    ) from None
                time.sleep(_POLL_S)
        owner, expected = _listener(port), self._users.of_arm(arm)
        if owner != expected:
            raise EngineError(f"slot {self.name}: port {port} belongs to user {owner}, expected {expected}")
        return model


def _listener(port: int) -> int | None:
    """User that listens on a loopback port (/proc/net/tcp: local address, state 0A, uid)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[1].rpartition(":")[2] == f"{port:04X}":
            return int(fields[7])
    return None


def _gpus() -> dict[str, str]:
    """Names, drivers and power limits; empty without an NVIDIA driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    try:
        return {"gpus": subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}
