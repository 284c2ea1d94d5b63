"""docker-compose.yml: the CPU stack alone by default, one GPU stack in its place, every service locked down."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from specpilot.profiles import load_profiles
from tests.programs import require_program
from tests.source_tree import REPO


def read_config(*options: str, **variables: str) -> dict[str, Any]:
    program = require_program("docker-compose")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    done = subprocess.run(
        [program, *options, "config", "--format", "json"],
        cwd=REPO,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    config: dict[str, Any] = json.loads(done.stdout)
    return config


@pytest.mark.parametrize(
    ("options", "services"),
    [
        ((), {"appliance", "console"}),
        (("--profile", "sm90"), {"appliance-sm90", "console"}),
        (("--profile", "sm120"), {"appliance-sm120", "console"}),
    ],
)
def test_one_stack_at_a_time(options: tuple[str, ...], services: set[str]) -> None:
    config = read_config(*options)
    assert set(config["services"]) == services
    store = load_profiles()
    for name, service in config["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}, name
        assert service["healthcheck"]["test"][1] == "specpilot-probe", name
        assert "latest" not in service["image"], name
        dockerfile = REPO / service["build"]["dockerfile"]
        assert dockerfile.is_file(), name
        profiles = [word.partition("=")[2] for word in service["command"] if word.startswith("--profile=")]
        for profile in profiles:
            gpu = store.find(profile).deployment.gpu
            sm = "cpu" if gpu == "cpu" else store.find_gpu(gpu).sm.removesuffix("a").replace("_", "")
            assert dockerfile.parent.name == sm, "the default profile is for this image"


def test_a_gpu_stack_reserves_one_gpu_and_is_reached_as_appliance() -> None:
    service = read_config("--profile", "sm90")["services"]["appliance-sm90"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 1, ["gpu"])
    assert service["networks"]["default"]["aliases"] == ["appliance"]


def test_ports_models_and_profile_can_be_set() -> None:
    config = read_config(GATEWAY_PORT="18000", MODELS="/srv/models", PROFILE="cpu/bundled--none--plain")
    service = config["services"]["appliance"]
    assert "18000" in {port["published"] for port in service["ports"]}
    assert {
        key: value
        for volume in service["volumes"]
        if volume["target"] == "/models"
        for key, value in volume.items()
        if key != "bind"
    } == {"type": "bind", "source": "/srv/models", "target": "/models", "read_only": True}
    assert "--profile=cpu/bundled--none--plain" in service["command"]
