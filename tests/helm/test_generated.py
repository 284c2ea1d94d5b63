"""Schema and README follow from the values' comments; dashboard and alerts name metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

import specpilot
from helm.generate_docs import CHART, make_files, read_values
from specpilot_service.metrics import ServiceMetrics


def test_schema_and_readme_are_fresh() -> None:
    for path, text in make_files().items():
        assert path.read_text(encoding="utf-8") == text, "run python helm/generate_docs.py"


def test_a_value_without_a_comment_is_refused() -> None:
    with pytest.raises(SystemExit, match="b has no"):
        read_values("# -- first\na: 1\nb: 2\n")


def test_every_object_is_closed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def open_objects(node: dict[str, Any], path: str) -> list[str]:
        found = [] if "additionalProperties" in node or node.get("type") != "object" else [path]
        for name, child in node.get("properties", {}).items():
            found += open_objects(child, f"{path}.{name}")
        return found

    assert open_objects(schema, "") == [".global"]
    definitions = {"properties": schema["definitions"], "additionalProperties": False}
    assert open_objects(definitions, "") == []


def test_the_chart_installs_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == specpilot.__version__


def queries() -> list[str]:
    rules = yaml.safe_load((CHART / "rules" / "specpilot.yaml").read_text(encoding="utf-8"))
    dashboard = json.loads((CHART / "dashboards" / "specpilot.json").read_text(encoding="utf-8"))
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]] + [
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    ]


def exported(registry: CollectorRegistry) -> set[str]:
    """Sample names: a counter's ``_total``, a histogram's ``_bucket``, ``_sum``, ``_count``."""
    found = set()
    for family in registry.collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        found |= {family.name + end for end in ends}
    return found


class Idle:
    """What the gauges of :class:`ServiceMetrics` ask an engine."""

    def health(self) -> Any:
        class Health:
            num_running = num_waiting = 0

        return Health()


def test_queries_name_metrics_that_exist() -> None:
    from specpilot_service.sidecar.metrics import SidecarMetrics

    known = exported(ServiceMetrics(Idle()).registry) | exported(SidecarMetrics().registry)  # type: ignore[arg-type]
    named = {name for query in queries() for name in re.findall(r"\bspecpilot_[a-z_]+", query)}
    assert named - known == set()
