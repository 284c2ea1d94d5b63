"""Renders the chart with Helm 3 or 4 and picks objects out of what came."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.programs import require_program
from tests.source_tree import REPO

CHART = REPO / "helm" / "specpilot"
HELMS = ("helm3", "helm4")
SCENARIOS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))


def run_helm(helm: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [require_program(helm), *words], capture_output=True, text=True, env={"HOME": str(home), **variables}
    )


def values_of(scenario: str) -> Path:
    return CHART / "ci" / f"{scenario}-values.yaml"


def render(helm: str, home: Path, *settings: str, scenario: str = "cpu", chart: Path = CHART) -> str:
    """Manifests of release ``box`` in namespace ``llm``; ``settings`` are ``--set`` arguments."""
    words = ["template", "box", str(chart), "--namespace", "llm"]
    if chart == CHART:
        words += ["--values", str(values_of(scenario))]
    for setting in settings:
        words += ["--set", setting]
    done = run_helm(helm, home, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(helm: str, home: Path, *settings: str, scenario: str = "cpu") -> str:
    """What Helm says to values it must not render."""
    words = ["template", "box", str(CHART), "--values", str(values_of(scenario))]
    for setting in settings:
        words += ["--set", setting]
    done = run_helm(helm, home, *words)
    assert done.returncode != 0, f"rendered with {settings}"
    return done.stderr


def objects(manifests: str) -> dict[tuple[str, str], dict[str, Any]]:
    """(kind, name) -> object."""
    found = {}
    for item in yaml.safe_load_all(manifests):
        if item is not None:
            key = (item["kind"], item["metadata"]["name"])
            assert key not in found, f"{key} is rendered twice"
            found[key] = item
    return found
