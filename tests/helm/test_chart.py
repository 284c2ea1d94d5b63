"""The chart: what it renders is valid Kubernetes, closed, repeatable, and says what the values say."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from specpilot.profiles import load_profiles
from specpilot_service.sidecar.settings import load_sidecar_settings
from tests.helm.charts import CHART, HELMS, SCENARIOS, objects, refusal, render, run_helm, values_of
from tests.programs import require_program

STORE = load_profiles()
EVERYTHING = (
    "metrics.open=true",
    "metrics.serviceMonitor=true",
    "metrics.prometheusRule=true",
    "metrics.grafanaDashboard=true",
    "persistence.enabled=false",
    "replicas=2",
    "console.replicas=2",
    "console.rootPath=/console",
    "rounds.enabled=true",
    "ingress.enabled=true",
    "ingress.host=a.example",
    "ingress.consoleHost=b.example",
    "ingress.tlsSecret=tls",
    "ingress.className=nginx",
    "httpRoute.enabled=true",
    "httpRoute.host=a.example",
    "httpRoute.consoleHost=b.example",
    "httpRoute.parentRefs[0].name=gateway",
    "imagePullSecrets[0].name=registry",
    "test.existingSecret=key",
    "commonLabels.team=inference",
    "podAnnotations.a=b",
    "nodeSelector.disk=fast",
    "priorityClassName=high",
    "models.existingClaim=models",
    "models.subPath=team",
    "cache.existingClaim=cache",
    "extraObjects[0].apiVersion=v1",
    "extraObjects[0].kind=ConfigMap",
    "extraObjects[0].metadata.name=extra",
)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_lint(helm: str, scenario: str, tmp_path: Path) -> None:
    done = run_helm(helm, tmp_path, "lint", "--strict", str(CHART), "--values", str(values_of(scenario)))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_renders_are_equal(helm: str, scenario: str, tmp_path: Path) -> None:
    assert render(helm, tmp_path, scenario=scenario) == render(helm, tmp_path, scenario=scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_helms_render_the_same_objects(scenario: str, tmp_path: Path) -> None:
    three, four = (objects(render(helm, tmp_path, scenario=scenario)) for helm in HELMS)
    assert three == four


def validate(manifests: str, folder: Path) -> None:
    program = require_program("kubernetes-validate")
    # Kinds of operators are not in the schemas of Kubernetes; their versions and fields are tested below.
    own = [
        item
        for item in objects(manifests).values()
        if not re.search(r"coreos|keda|gateway\.", item["apiVersion"])
    ]
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(own), encoding="utf-8")
    done = subprocess.run([program, "--strict", "--quiet", str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and "WARN" not in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_manifests_are_strictly_valid(scenario: str, tmp_path: Path) -> None:
    validate(render("helm3", tmp_path, scenario=scenario), tmp_path)


@pytest.mark.parametrize("scaler", ["hpa", "keda"])
def test_everything_at_once_is_strictly_valid(scaler: str, tmp_path: Path) -> None:
    found = render(
        "helm4",
        tmp_path,
        *EVERYTHING,
        f"autoscaling.{scaler}=true",
        "autoscaling.prometheusUrl=http://localhost:9090",
    )
    validate(found, tmp_path)
    kinds = {kind for kind, _ in objects(found)}
    wanted = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}
    assert wanted[scaler] in kinds and len(kinds & set(wanted.values())) == 1
    assert {
        "ServiceMonitor",
        "PrometheusRule",
        "Ingress",
        "HTTPRoute",
        "PodDisruptionBudget",
        "Role",
    } <= kinds
    assert (
        "replicas" not in objects(found)["Deployment", "box-specpilot"]["spec"]
    )  # the scaler owns the number


def test_nothing_set_is_valid(tmp_path: Path) -> None:
    done = run_helm("helm3", tmp_path, "template", "box", str(CHART))
    assert done.returncode == 0, done.stderr
    validate(done.stdout, tmp_path)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["colour=red"], "colour"),
        (["engine.profil=x"], "profil"),
        (["replicas=0"], "replicas"),
        (["image.tag=latest"], "tag"),
        (["image.digest=sha256:1"], "digest"),
        (["replicas=2"], "ReadWriteOnce state volume"),
        (["replicas=2", "persistence.accessMode=ReadWriteMany"], "serves one sidecar"),
        (["autoscaling.hpa=true"], "ReadWriteOnce state volume"),
        (["persistence.enabled=false", "autoscaling.hpa=true", "autoscaling.keda=true"], "hpa and keda"),
        (["persistence.enabled=false", "autoscaling.keda=true"], "prometheusUrl"),
        (["autoscaling.minReplicas=5"], "minReplicas 5 above maxReplicas 4"),
        (["engine.rollout=surge"], "surge with a state volume"),
        (["gpu.count=1"], "engine.arch cpu"),
        (["engine.arch=sm90"], "gpu.count: got 0"),
        (["metrics.serviceMonitor=true"], "viewer key"),
        (["ingress.enabled=true"], "ingress.host"),
        (["httpRoute.enabled=true", "httpRoute.host=a"], "httpRoute"),
        (["console.enabled=false", "ingress.consoleHost=a"], "consoleHost"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    helm: str, settings: list[str], complaint: str, tmp_path: Path
) -> None:
    assert complaint in refusal(helm, tmp_path, *settings)


def test_all_contradictions_are_named_at_once(tmp_path: Path) -> None:
    said = refusal("helm3", tmp_path, "replicas=2", "gpu.count=1")
    assert "state volume" in said and "engine.arch cpu" in said


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "cpu"])
def test_one_gpu_never_gets_a_surge(scenario: str, tmp_path: Path) -> None:
    deployment = objects(render("helm3", tmp_path, scenario=scenario))["Deployment", "box-specpilot"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    without_volume = render("helm3", tmp_path, "persistence.enabled=false", scenario=scenario)
    assert objects(without_volume)["Deployment", "box-specpilot"]["spec"]["strategy"] == {"type": "Recreate"}
    said = refusal("helm3", tmp_path, "engine.rollout=surge", "persistence.enabled=false", scenario=scenario)
    assert "surge with one GPU pod" in said
    several = render("helm3", tmp_path, "persistence.enabled=false", "replicas=3", scenario=scenario)
    assert objects(several)["Deployment", "box-specpilot"]["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }


def test_a_cpu_without_a_volume_surges(tmp_path: Path) -> None:
    found = objects(render("helm3", tmp_path, "persistence.enabled=false"))["Deployment", "box-specpilot"]
    assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize(("budget", "threshold"), [(30, 6), (31, 7), (120, 24), (901, 181), (86400, 17280)])
def test_probes_follow_the_start_up_budget(budget: int, threshold: int, tmp_path: Path) -> None:
    found = render("helm3", tmp_path, f"engine.startupBudgetSeconds={budget}")
    spec = objects(found)["Deployment", "box-specpilot"]["spec"]
    for container in spec["template"]["spec"]["containers"]:
        probe = container["startupProbe"]
        assert (probe["periodSeconds"], probe["failureThreshold"]) == (5, threshold)
        # The kubelet does not end an engine that the sidecar still waits for, nor much later.
        assert 0 <= probe["periodSeconds"] * probe["failureThreshold"] - budget < probe["periodSeconds"]
    sidecar = next(one for one in spec["template"]["spec"]["containers"] if one["name"] == "sidecar")
    assert load_sidecar_settings(sidecar["args"][1:], {}).startup_budget_s == budget
    assert spec["progressDeadlineSeconds"] >= budget


def test_the_pod_outlives_its_drain(tmp_path: Path) -> None:
    found = render("helm3", tmp_path, "sidecar.drainDelaySeconds=7", "sidecar.drainTimeoutSeconds=100")
    pod = objects(found)["Deployment", "box-specpilot"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 107
    engine = next(container for container in pod["containers"] if container["name"] == "engine")
    assert "--until-gone" in engine["lifecycle"]["preStop"]["exec"]["command"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_values_of_a_scenario_are_those_of_its_profile(scenario: str, tmp_path: Path) -> None:
    values = yaml.safe_load(values_of(scenario).read_text(encoding="utf-8"))
    profile = STORE.find(values["engine"]["profile"])
    assert values["engine"]["startupBudgetSeconds"] == profile.startup_budget_s
    if profile.deployment.gpu == "cpu":
        assert values["engine"]["arch"] == "cpu"
        return
    gpu = STORE.find_gpu(profile.deployment.gpu)
    assert values["gpu"]["product"] == gpu.label
    assert values["engine"]["arch"] == gpu.sm.removesuffix("a").replace("_", "")
    assert values["sidecar"]["maxInFlight"] == max(profile.deployment.num_requests)
    pod = objects(render("helm3", tmp_path, scenario=scenario))["Deployment", "box-specpilot"]["spec"]
    spec = pod["template"]["spec"]
    engine = next(container for container in spec["containers"] if container["name"] == "engine")
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert engine["resources"]["limits"]["memory"] == values["engine"]["resources"]["limits"]["memory"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": gpu.label}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["runtimeClassName"] == "nvidia"


def pods(found: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    templates = [
        item["spec"]["template"]["spec"] for (kind, _), item in found.items() if kind == "Deployment"
    ]
    return templates + [item["spec"] for (kind, _), item in found.items() if kind == "Pod"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_container_is_locked_down(scenario: str, tmp_path: Path) -> None:
    found = pods(objects(render("helm3", tmp_path, scenario=scenario)))
    assert len(found) == 3
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_secret_is_made(scenario: str, tmp_path: Path) -> None:
    assert "Secret" not in {kind for kind, _ in objects(render("helm3", tmp_path, scenario=scenario))}
    templates = "".join(
        path.read_text(encoding="utf-8") for path in CHART.rglob("templates/**/*") if path.is_file()
    )
    assert not re.search(
        r"\b(randAlpha|randAlphaNum|randNumeric|randBytes|genPrivateKey|uuidv4|lookup|now)\b", templates
    )


def test_only_rounds_give_a_pod_a_token(tmp_path: Path) -> None:
    found = objects(render("helm3", tmp_path, "rounds.enabled=true"))
    spec = found["Deployment", "box-specpilot"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is True
    assert found["Role", "box-specpilot-rounds"]["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]}
    ]
    assert "Role" not in {kind for kind, _ in objects(render("helm3", tmp_path))}


def test_what_no_rule_names_is_denied(tmp_path: Path) -> None:
    found = objects(render("helm3", tmp_path, scenario="h100-single"))
    policies = {name: item["spec"] for (kind, name), item in found.items() if kind == "NetworkPolicy"}
    labels = {
        item["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for (kind, _), item in found.items()
        if kind == "Deployment"
    }
    covered = {
        spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for spec in policies.values()
    }
    assert covered == labels | {"test"}
    server = policies["box-specpilot"]
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies.values())
    assert "ingress" not in policies["box-specpilot-test"]
    ports = {port["port"] for rule in server["ingress"] for port in rule["ports"]}
    assert ports == {"gateway", "admin"}  # the engine's port has no rule
    (admin,) = [rule for rule in server["ingress"] if rule["ports"][0]["port"] == "admin"]
    assert {json.dumps(peer, sort_keys=True) for peer in admin["from"]} == {
        json.dumps(peer, sort_keys=True)
        for peer in [
            {
                "podSelector": {
                    "matchLabels": {
                        "app.kubernetes.io/name": "specpilot",
                        "app.kubernetes.io/instance": "box",
                        "app.kubernetes.io/component": "console",
                    }
                }
            },
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
        ]
    }
    destinations = [port["port"] for rule in server["egress"] for port in rule["ports"]]
    assert destinations == [53, 53]


def test_the_engine_listens_on_loopback_alone(tmp_path: Path) -> None:
    found = objects(render("helm3", tmp_path))
    containers = found["Deployment", "box-specpilot"]["spec"]["template"]["spec"]["containers"]
    engine = next(container for container in containers if container["name"] == "engine")
    assert "--host=127.0.0.1" in engine["args"] and "ports" not in engine


@pytest.mark.parametrize("helm", HELMS)
def test_the_chart_works_as_a_subchart(helm: str, tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    (parent / "charts" / "specpilot").symlink_to(CHART)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n", encoding="utf-8")
    values = {"global": {"team": "a"}, "specpilot": {"engine": {"profile": "cpu/bundled--none--plain"}}}
    (parent / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    found = objects(render(helm, tmp_path, chart=parent))
    engine = found["Deployment", "box-specpilot"]["spec"]["template"]["spec"]["containers"][0]
    assert engine["args"][1] == "cpu/bundled--none--plain"


def test_a_digest_wins_over_the_tag(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    found = objects(
        render("helm3", tmp_path, f"image.digest={digest}", "image.tag=x", "image.registry=r.example/team/")
    )
    images = {container["image"] for pod in pods(found) for container in pod["containers"]}
    assert images == {f"r.example/team/specpilot@{digest}"}
    tags = {
        container["image"]
        for pod in pods(objects(render("helm3", tmp_path)))
        for container in pod["containers"]
    }
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert tags == {f"specpilot:{version}-cpu"}


def test_a_monitor_without_open_metrics_has_a_key(tmp_path: Path) -> None:
    found = objects(render("helm3", tmp_path, scenario="h100-single"))
    (endpoint,) = found["ServiceMonitor", "box-specpilot"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "specpilot-viewer", "key": "key"}
