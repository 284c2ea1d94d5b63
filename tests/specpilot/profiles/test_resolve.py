"""Names and ids lead to one row; a row leads to the command, and what is missing is said."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from specpilot.errors import AmbiguousError, ConfigError, Unsupported
from specpilot.profiles import load_profiles, resolve
from specpilot.profiles.mechanisms import CATALOGUE
from specpilot.profiles.speculation import REFERENCE_ARGUMENTS
from specpilot_service.settings import Settings, load_settings
from tests.oracles.sglang_wheel import wheel_root
from tests.specpilot.profiles.row_builder import ROW, changed, write_store

STORE = load_profiles()
NAMES = [profile.name for profile in STORE.profiles]
DEPLOYMENTS = {  # the paper's, and the bundled model's
    ("h100", "Qwen3.8-27B", "bf16", "dflash2", "single-request"),
    ("h100", "Qwen3.8-27B", "bf16", "dspark", "single-request"),
    ("pro6000", "Qwen3.8-27B", "bf16", "dflash2", "single-request"),
    ("pro6000", "Muse-Glimmer-30B", "bf16", "dflash2", "single-request"),
    ("h100", "Qwen3.8-27B", "fp8", "dflash2", "batching"),
    ("h100", "Qwen3.8-27B", "fp8", "dspark", "batching"),
    ("h100", "Qwen3.8-27B", "bf16", "dflash2", "batching"),
    ("h100", "Qwen3.5-4B", "bf16", "dflash2", "batching"),
    ("h100", "Gemma-4-12B", "bf16", "eagle3", "batching"),
    ("h200", "specpilot-bundled", "bf16", "dflash2", "batching"),
    ("cpu", "specpilot-bundled", "bf16", "none", "batching"),
    ("cpu", "specpilot-bundled", "bf16", "dflash2", "single-request"),
}


def test_every_deployment_has_a_row() -> None:
    rows = [profile.deployment for profile in STORE.profiles]
    found = {(d.gpu, d.target.name, d.target.weights, d.drafter.kind, d.regime) for d in rows}
    assert found >= DEPLOYMENTS


@pytest.mark.parametrize("name", NAMES)
def test_every_row_resolves_by_name_and_by_id(name: str) -> None:
    profile = STORE.find(name)
    resolved = resolve(name, store=STORE)
    assert resolve(profile.profile_id, store=STORE) == resolved
    flags = {word for word in resolved.degraded_command if word.startswith("--")}
    assert flags == {key for key in resolved.origins if key.startswith("--")}
    assert len(resolved.mechanisms) == len(profile.mechanisms)
    assert {state.id for state in resolved.missing} == {m.id for m in profile.mechanisms} - {
        state.id for state in resolved.mechanisms if state.is_available
    }


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cpu/")])
def test_a_cpu_row_gives_settings_that_the_service_accepts(name: str) -> None:
    command = resolve(name, port=0, store=STORE).command
    assert command[:4] == [sys.executable, "-P", "-m", "specpilot_service"]
    settings = load_settings(command[4:], {})
    assert settings.drafter == STORE.find(name).deployment.drafter.kind


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("cpu/")])
def test_a_mechanism_without_code_is_shown_and_never_dropped(name: str) -> None:
    resolved, profile = resolve(name, store=STORE), STORE.find(name)
    assert [state.id for state in resolved.mechanisms] == [choice.id for choice in profile.mechanisms]
    if not profile.mechanisms:
        assert resolved.is_runnable
        assert resolved.content()["degraded_command"] is None
        return
    assert all(state.reason for state in resolved.mechanisms)
    with pytest.raises(Unsupported, match="not runnable as specified"):
        _ = resolved.command
    assert resolved.content()["command"] is None
    assert "sglang.launch_server" in resolved.content()["degraded_command"]


def test_a_short_name_needs_the_gpu_where_two_rows_share_it() -> None:
    with pytest.raises(AmbiguousError) as caught:
        resolve("qwen3.8-27b--dflash2--single", store=STORE)
    assert caught.value.candidates == (
        "h100/qwen3.8-27b--dflash2--single",
        "pro6000/qwen3.8-27b--dflash2--single",
    )
    found = resolve("qwen3.8-27b--dflash2--single", "pro6000", store=STORE)
    assert found.name == "pro6000/qwen3.8-27b--dflash2--single"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="cpu/bundled--none--plain"):
        resolve("no-such", store=STORE)


def test_a_profile_of_another_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="is for h100, got cpu"):
        resolve("h100/qwen3.8-27b--dflash2--single", "cpu", store=STORE)


def test_every_value_has_its_origin(tmp_path: Path) -> None:
    store = write_store(tmp_path, ROW)
    resolved = resolve(
        "t--dflash2--single", models=Path("/m"), overrides={"context-length": 1024}, store=store
    )
    command = resolved.degraded_command
    assert command[command.index("--context-length") + 1] == "1024"
    assert command[command.index("--model-path") + 1] == "/m/T"
    assert command[command.index("--speculative-draft-model-path") + 1] == "/m/D"
    assert command[command.index("--speculative-algorithm") + 1] == "DFLASH"
    origins = resolved.origins
    assert origins["--context-length"] == "override"
    assert origins["--mem-fraction-static"] == "profile"
    assert origins["--model-path"] == "deployment.target"
    assert origins["--port"] == "call"


def test_a_flag_that_is_false_is_left_out(tmp_path: Path) -> None:
    store = write_store(tmp_path, changed("engine/arguments/enable-metrics", False))
    assert "--enable-metrics" not in resolve("t--dflash2--single", store=store).degraded_command


@pytest.mark.parametrize("name", ["port", "drafter", "builder", "no-such"])
def test_an_override_that_a_profile_may_not_set_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="override"):
        resolve("cpu/bundled--none--plain", overrides={name: 1}, store=STORE)


def test_flags_of_the_service_are_offered_once_and_all_exist() -> None:
    """A new flag of a mechanism must enter the catalogue, or a profile could not name it."""
    flags = {name.replace("_", "-") for name in Settings.model_fields}
    of_mechanisms = {flag for kind in CATALOGUE.values() for flag in kind.reference_flags.values()}
    of_the_process = {
        "control-key",
        "drain-timeout-s",
        "drafter",
        "host",
        "log-level",
        "max-body-bytes",
        "model",
        "port",
        "record",
        "stall-timeout-s",
    }
    assert of_mechanisms | REFERENCE_ARGUMENTS | of_the_process == flags
    assert not of_mechanisms & REFERENCE_ARGUMENTS


@pytest.mark.skipif(not os.environ.get("SGLANG_WHEEL"), reason="SGLANG_WHEEL names no unpacked wheel")
def test_arguments_of_sglang_exist_in_its_wheel() -> None:
    fields = wheel_root() / "arg_groups" / "fields"
    text = "".join(path.read_text(encoding="utf-8") for path in fields.glob("*.py"))
    for name in NAMES:
        resolved = resolve(name, store=STORE)
        if resolved.engine == "sglang":
            for flag in [word[2:] for word in resolved.degraded_command if word.startswith("--")]:
                assert f"    {flag.replace('-', '_')}: A[" in text, f"{name}: --{flag}"
