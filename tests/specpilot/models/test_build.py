"""Model folders that do not add up, and thread counts that cannot be had, are refused before anything is served."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specpilot.errors import CheckpointError, ConfigError
from specpilot.models import bundled_folder, model_folders
from specpilot.models.build import build_engine
from specpilot_kernels.cpu_jit import max_threads


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(bundled_folder(), tmp_path / "models")
    return tmp_path / "models"


def test_weights_without_a_config_are_no_reason_to_decode_plainly(copy: Path) -> None:
    (copy / "dflash2" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"dflash2: got weights without config\.json"):
        model_folders(str(copy))


def test_a_block_longer_than_the_engine_holds_is_refused(copy: Path) -> None:
    path = copy / "dflash2" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"block_size": 64}))
    with pytest.raises(CheckpointError, match="block_size is 64, expected 2 to 32"):
        build_engine(str(copy), num_threads=1)


@pytest.mark.parametrize("num_threads", [max_threads() + 1, -1])
def test_threads_that_cannot_be_had_are_a_wrong_setting(num_threads: int) -> None:
    with pytest.raises(ConfigError, match=f"num_threads: got {num_threads}"):
        build_engine(num_threads=num_threads)


def test_unknown_model_and_drafter_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found neither"):
        build_engine(str(tmp_path), num_threads=1)
    with pytest.raises(ConfigError, match=r"drafter: got 'eagle9', expected 'none' or one of: dflash2"):
        build_engine(drafter="eagle9", num_threads=1)
