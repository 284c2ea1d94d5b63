"""The verdict on a profile: device, mechanisms, models, memory; every reason is named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from specpilot.models import bundled_folder
from specpilot.profiles import Machine, Profile, check, load_profiles
from specpilot.profiles.preflight import host_free_gib
from tests.specpilot.profiles.row_builder import ROW, write_store


def stock_row() -> dict[str, Any]:
    row = copy.deepcopy(ROW)
    del row["mechanisms"]
    return row


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Folders of a target and a drafter, with nothing but the configurations the preflight reads."""
    for name in ("target", "dflash2"):
        folder = tmp_path / "models" / {"target": "T", "dflash2": "D"}[name]
        folder.mkdir(parents=True)
        config = (bundled_folder() / name / "config.json").read_text(encoding="utf-8")
        (folder / "config.json").write_text(config, encoding="utf-8")
    return tmp_path / "models"


@pytest.fixture
def stock(tmp_path: Path) -> Profile:
    return write_store(tmp_path / "profiles", stock_row()).profiles[0]


@pytest.fixture(autouse=True)
def sglang_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "sglang").mkdir(parents=True)
    (tmp_path / "site" / "sglang" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def change_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | values), encoding="utf-8")


def test_what_fits_is_runnable(stock: Profile, models: Path) -> None:
    verdict = check(stock, Machine("h100", free_gib=79.0), models)
    assert (verdict.status, verdict.reasons, verdict.notes) == ("runnable", (), ())
    assert verdict.needed_gib == pytest.approx(
        50 + 3 + 2 + 1 + 1
    )  # weights, reserve, one state, 16,384 tokens


def test_another_device_is_named(stock: Profile, models: Path) -> None:
    verdict = check(stock, Machine("cpu", free_gib=79.0), models)
    assert verdict.status == "wrong gpu"
    assert "is for h100, this machine is cpu" in verdict.reasons[0]


def test_memory_for_a_smaller_context_only(stock: Profile, models: Path) -> None:
    verdict = check(stock, Machine("h100", free_gib=56.5), models)
    assert verdict.status == "smaller context only"
    assert "room for 8192 of 16384 tokens" in verdict.reasons[0]


def test_no_memory_for_any_useful_context(stock: Profile, models: Path) -> None:
    verdict = check(stock, Machine("h100", free_gib=56.05), models)
    assert (verdict.status, len(verdict.reasons)) == ("cannot run here", 1)


def test_memory_that_is_not_known_is_a_note(stock: Profile, models: Path) -> None:
    verdict = check(stock, Machine("h100"), models)
    assert verdict.status == "runnable"
    assert "free memory was not checked" in verdict.notes[0]


def test_a_drafter_of_another_kind(stock: Profile, models: Path) -> None:
    change_config(models / "D", architectures=["Qwen3DSparkModel"])
    verdict = check(stock, Machine("h100", free_gib=79.0), models)
    assert verdict.status == "wrong drafter"
    assert "Qwen3DSparkModel" in verdict.reasons[0]


def test_a_drafter_of_another_vocabulary(stock: Profile, models: Path) -> None:
    change_config(models / "D", vocab_size=77)
    verdict = check(stock, Machine("h100", free_gib=79.0), models)
    assert verdict.status == "wrong drafter"
    assert "vocabulary 77" in verdict.reasons[0]


def test_models_that_are_not_there(stock: Profile, tmp_path: Path) -> None:
    verdict = check(stock, Machine("h100", free_gib=79.0), tmp_path / "nowhere")
    assert verdict.status == "cannot run here"
    assert [reason.split(":")[0] for reason in verdict.reasons] == ["target", "drafter"]


def test_sglang_that_is_not_installed(stock: Profile, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if not path.endswith("/site")])
    verdict = check(stock, Machine("h100", free_gib=79.0), models)
    assert (verdict.status, verdict.reasons) == ("cannot run here", ("SGLang 0.5.20 is not installed",))


def test_a_missing_mechanism_offers_the_stock_command_by_name(tmp_path: Path, models: Path) -> None:
    (profile,) = write_store(tmp_path / "p", ROW).profiles
    verdict = check(profile, Machine("h100", free_gib=79.0), models)
    assert verdict.status == "not runnable as specified"
    assert verdict.reasons[0].startswith("draft-tree: ")
    assert verdict.content()["degraded"]["stock_command"] == verdict.resolved.degraded_command


def test_cpu_rows_can_run_on_this_machine() -> None:
    free = host_free_gib()
    for profile in load_profiles().profiles:
        if profile.deployment.gpu == "cpu":
            verdict = check(profile, Machine("cpu", free_gib=64.0))
            assert verdict.status == "runnable", verdict.reasons
    assert free is None or free > 0


def test_sglang_reads_a_decoded_copy_of_the_bundled_models(tmp_path: Path) -> None:
    """They are shipped as W12 files, which stock SGLang cannot read."""
    profile = load_profiles().find("bundled--dflash2--batching", "h200")
    verdict = check(profile, Machine("h200", free_gib=100.0), tmp_path)
    decode = f"run `specpilot w12 decode --out {tmp_path / 'specpilot-bundled'}`"
    assert verdict.status == "cannot run here" and all(decode in reason for reason in verdict.reasons)
    for name in ("target", "dflash2"):
        folder = tmp_path / "specpilot-bundled" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes((bundled_folder() / name / "config.json").read_bytes())
    assert check(profile, Machine("h200", free_gib=100.0), tmp_path).status == "runnable"
