"""Arguments that chart and compose give to the programs are ones the programs take."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specpilot_console.settings import read_arguments
from specpilot_service.sidecar.settings import load_sidecar_settings
from tests.helm.charts import SCENARIOS, objects, render, values_of
from tests.images.test_compose import read_config


def containers(scenario: str, home: Path) -> dict[str, list[str]]:
    """Container -> its arguments."""
    found = objects(render("helm3", home, "metrics.open=true", "console.rootPath=/ui", scenario=scenario))
    pods = [item["spec"]["template"]["spec"] for (kind, _), item in found.items() if kind == "Deployment"]
    return {one["name"]: one["args"] for pod in pods for one in pod["containers"]}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_chart_calls_the_sidecar_and_the_console(scenario: str, tmp_path: Path) -> None:
    arguments = containers(scenario, tmp_path)
    assert arguments["sidecar"][0] == "sidecar" and arguments["console"][0] == "console"
    sidecar = load_sidecar_settings(arguments["sidecar"][1:], {})
    assert sidecar.engine_url == "http://127.0.0.1:30000"
    assert (sidecar.port, sidecar.admin_port, sidecar.open_metrics) == (8000, 8001, True)
    values = yaml.safe_load(values_of(scenario).read_text(encoding="utf-8"))
    assert sidecar.startup_budget_s == values["engine"]["startupBudgetSeconds"]
    console = read_arguments(arguments["console"][1:])
    assert console.admin_url.removeprefix("http://") == "box-specpilot-admin:8001"
    assert console.gateway_url.removeprefix("http://") == "box-specpilot:8000"
    assert (console.root_path, console.port) == ("/ui", 7860)


@pytest.mark.parametrize(("options", "name"), [((), ""), (("--profile", "sm90"), "-sm90")])
def test_compose_calls_the_sidecar_and_the_console(options: tuple[str, ...], name: str) -> None:
    services = read_config(*options)["services"]
    sidecar = load_sidecar_settings(services[f"appliance{name}"]["command"][1:], {})
    assert sidecar.profile is not None and sidecar.engine_url is None
    assert read_arguments(services["console"]["command"][1:]).admin_url == "http://appliance:8001"
