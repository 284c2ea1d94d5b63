"""What yamllint and checkov say of the chart, run as they come, offline."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.helm.charts import CHART, SCENARIOS, render
from tests.programs import require_program
from tests.source_tree import REPO

ACCEPTED = {
    "CKV_K8S_11": "CPU limits throttle a busy engine in the middle of a stream; requests are set",
    "CKV_K8S_15": "Always needs the registry at every start, which an air gap does not have; tags are versions",
    "CKV_K8S_8": "helm test's pod runs once and ends",
    "CKV_K8S_9": "helm test's pod runs once and ends",
}
"""What checkov finds and why it stays; its free rules have no severities, so everything else counts."""
ONLY_IN_THE_TEST_POD = {"CKV_K8S_8", "CKV_K8S_9"}
DIGEST = "image.digest=sha256:" + "a" * 64


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """Scenario -> rule -> the objects it fails for. ``open`` is the CPU's, with one lock taken off."""
    program, home = require_program("checkov"), tmp_path_factory.mktemp("home")
    folder = tmp_path_factory.mktemp("manifests")
    texts = {scenario: render("helm3", home, DIGEST, scenario=scenario) for scenario in SCENARIOS}
    texts["open"] = texts["cpu"].replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    words = ["--directory", str(folder), "--framework", "kubernetes", "--skip-download", "--quiet"]
    done = subprocess.run([program, *words, "--output", "json"], capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["passed"] > 100 * len(texts), report["summary"]
    assert report["summary"]["parsing_errors"] == 0, report["summary"]
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in texts}
    for check in report["results"]["failed_checks"]:
        found[Path(check["file_path"]).stem][check["check_id"]].add(check["resource"])
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_checkov_finds_nothing_but_what_is_accepted(
    scenario: str, findings: dict[str, dict[str, set[str]]]
) -> None:
    found = findings[scenario]
    assert set(found) <= set(ACCEPTED), {rule: found[rule] for rule in set(found) - set(ACCEPTED)}
    for rule in ONLY_IN_THE_TEST_POD & set(found):
        assert found[rule] == {"Pod.llm.box-specpilot-test"}


def test_checkov_sees_a_container_that_is_not_locked_down(
    findings: dict[str, dict[str, set[str]]],
) -> None:
    assert set(findings["open"]) - set(ACCEPTED) == {"CKV_K8S_20"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_yaml_is_clean(scenario: str, tmp_path: Path) -> None:
    """The chart's own files, and what it renders."""
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(render("helm3", tmp_path, scenario=scenario), encoding="utf-8")
    files = [str(CHART / name) for name in ("Chart.yaml", "values.yaml", "ci", "rules")]
    files += [str(REPO / "docker-compose.yml"), str(REPO / "profiles"), str(manifests)]
    words = [require_program("yamllint"), "--strict", "--config-file", str(REPO / ".yamllint")]
    done = subprocess.run([*words, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
