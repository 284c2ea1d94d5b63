"""Values that no cluster could run are refused at render, each by its name; their good neighbours are not."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from specpilot.profiles import load_profiles
from specpilot.profiles.speculation import REFERENCE_ARGUMENTS
from tests.helm.charts import CHART, HELMS, objects, refusal, run_helm

STORE = load_profiles()
H100, H200 = "h100/qwen3.8-27b--dflash2--single", "h200/bundled--none--batching"
CONTRADICTIONS = [
    ("cpu", "engine.port=8000", "engine.port: got 8000, the port of the gateway"),
    ("cpu", "engine.port=8001", "engine.port: got 8001, the port of the admin API"),
    ("cpu", "engine.port=7860", "engine.port: got 7860, the port of the console"),
    (
        "h100-single",
        "engine.profile=cpu/bundled--none--plain",
        "needs engine.arch cpu, with engine.arch sm90",
    ),
    ("cpu", f"engine.profile={H100}", "needs engine.arch sm90, with engine.arch cpu"),
    ("pro6000", f"engine.profile={H100}", "needs engine.arch sm90, with engine.arch sm120"),
    ("h100-single", f"engine.profile={H200}", 'set it to "NVIDIA-H200"'),
    ("cpu", "engine.profile=nope/a--b--c", "whose folder is none of cpu, h100, h200, pro6000"),
    ("cpu", "engine.overrides.max-runing=2", "engine.overrides: got max-runing, expected some of"),
]
MALFORMED: dict[str, list[Any]] = {
    "engine.profile": ["nope/nope", "--evil", "cpu/a--b", "cpu/../a--b--c", "", "a--b--c\n", "sha256-12"],
    "nameOverride": ["Box", "a_b", "-a", "a-", "a b", "a.b", "a\nb", "a" * 64],
    "fullnameOverride": ["Box", "a_b", "1a", "a-", "a: b", "a" * 51],
    "image.tag": ["a b", "-a", "a:b", "a/b", "latest", "a\n", "a" * 129],
    "ingress.host": ["http://localhost", "a_b", "a.example/x", "A.example", "a..b", "a.example:80", "*"],
    "httpRoute.consoleHost": ["a b", "-a.example"],
    "models.subPath": ["/etc", "..", "../a", "a/../b", "a/..", "a//b", "a b", "a\n"],
    "engine.shmSize": ["", "8GB", "1 Gi", "-1Gi"],
    "cache.sizeLimit": ["lots"],
    "engine.resources.requests.cpu": ["two", "1.5.0", "-1", -1, True, "500 m"],
    "sidecar.resources.limits.memory": ["4gb", "4GiB"],
    "console.resources": [{"limit": {"memory": "1Gi"}}],
    "engine.overrides": [{"--evil": 1}, {"a b": 1}, {"a=b": 1}, {"Mode": 1}, {"": 1}],
    "engine.startupBudgetSeconds": [1, 29, 86401, 90.5, "90"],
}
GOOD: dict[str, list[Any]] = {
    "engine.profile": ["cpu/bundled--none--plain", "bundled--none--plain", "sha256-0123456789abcdef"],
    "engine.port": [30000, 8002, 1024],
    "engine.startupBudgetSeconds": [30],
    "engine.overrides": [
        {"max-kv-tokens": 3000000, "mode": "exact"},  # a float would be printed as 3e+06
        {"max-kv-tokens": 1, "mode": "a: b #c"},
    ],
    "engine.resources.requests": [{"cpu": 2, "memory": "1.5Gi", "example.com/fast": "1"}, {"cpu": "500m"}],
    "engine.shmSize": ["1Gi", "64M", "1.5G"],
    "nameOverride": ["", "a", "box-2"],
    "fullnameOverride": ["box", "a-1", "a" * 50],
    "image.tag": ["", "0.1.0-sm90", "_A.b-" + "c" * 123],
    "ingress.enabled": [True],
    "ingress.host": ["a", "llm.a-b.example", "*.example"],
    "ingress.consoleHost": ["", "1.example"],
    "models.existingClaim": ["models"],
    "models.subPath": ["team", "team/a..b/v1.0", "2026"],
}


def nested(paths: dict[str, Any]) -> dict[str, Any]:
    """Dotted path -> value, as the mapping of a values file."""
    found: dict[str, Any] = {}
    for path, value in paths.items():
        *parents, last = path.split(".")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return found


def template(helm: str, home: Path, paths: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    path = home / "values.yaml"
    path.write_text(yaml.safe_dump(nested(paths)), encoding="utf-8")
    return run_helm(helm, home, "template", "box", str(CHART), "--values", str(path))


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("scenario", "settings", "complaint"), CONTRADICTIONS)
def test_what_could_not_start_is_refused(
    helm: str, scenario: str, settings: str, complaint: str, tmp_path: Path
) -> None:
    assert complaint in refusal(helm, tmp_path, settings, scenario=scenario)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("turn", range(max(map(len, MALFORMED.values()))))
def test_a_malformed_value_is_refused_by_its_name(helm: str, turn: int, tmp_path: Path) -> None:
    """Every run has one bad value of each path; Helm names all of them at once."""
    bad = {path: values[turn] for path, values in MALFORMED.items() if turn < len(values)}
    done = template(helm, tmp_path, bad)
    assert done.returncode != 0
    # Helm 3 writes a.b, Helm 4 /a/b.
    said = re.sub(r"at '/([^']*)'", lambda found: found[1].replace("/", "."), done.stderr)
    named = set(re.findall(r"- ([A-Za-z.]+):", said))
    assert set(bad) <= named, (set(bad) - named, done.stderr)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("turn", range(max(map(len, GOOD.values()))))
def test_well_formed_values_render(helm: str, turn: int, tmp_path: Path) -> None:
    good = {path: values[turn % len(values)] for path, values in GOOD.items()}
    done = template(helm, tmp_path, good)
    assert done.returncode == 0, done.stderr
    assert ("Deployment", good["fullnameOverride"]) in objects(done.stdout)
    pod = objects(done.stdout)["Deployment", good["fullnameOverride"]]["spec"]["template"]["spec"]
    engine = pod["containers"][0]
    assert f"--set=max-kv-tokens={good['engine.overrides']['max-kv-tokens']}" in engine["args"]
    assert f"--set=mode={good['engine.overrides']['mode']}" in engine["args"]
    (models,) = [mount for mount in engine["volumeMounts"] if mount["name"] == "models"]
    assert models["subPath"] == good["models.subPath"]


def test_the_chart_knows_the_devices_and_the_budgets_of_all_profiles() -> None:
    text = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    table = re.search(r'define "specpilot.families" -}}\n(.*?){{- end', text, re.DOTALL)
    assert table is not None
    wanted = {"cpu": {"arch": "cpu", "product": ""}}
    for gpu in STORE.gpus:
        wanted[gpu.id] = {"arch": gpu.sm.removesuffix("a").replace("_", ""), "product": gpu.label}
    assert yaml.safe_load(table[1]) == wanted
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    engine = schema["properties"]["engine"]["properties"]
    for profile in STORE.profiles:
        assert profile.name.partition("/")[0] == profile.deployment.gpu
        assert profile.startup_budget_s >= engine["startupBudgetSeconds"]["minimum"]
        for reference in (profile.name, profile.name.partition("/")[2], profile.profile_id):
            assert re.search(engine["profile"]["pattern"], reference), reference
        for name in profile.engine.arguments:
            assert any(re.search(pattern, name) for pattern in engine["overrides"]["patternProperties"]), name


def test_the_chart_knows_the_arguments_of_the_reference_engine(tmp_path: Path) -> None:
    said = refusal("helm4", tmp_path, "engine.overrides.nope=1")
    (known,) = re.findall(r"got nope, expected some of (.*)", said)
    assert set(known.split(", ")) == REFERENCE_ARGUMENTS
