"""Model folders that do not add up, and thread counts that cannot be had, are refused before anything is served."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specpilot.engines.base import GenerateRequest, SamplingParams
from specpilot.errors import CheckpointError, ConfigError
from specpilot.models import bundled_folder, model_folders
from specpilot.models.build import build_engine
from specpilot.models.train.dspark import DSparkShape, TrainDSpark
from specpilot.models.train.export import export_checkpoint
from specpilot.refengine.dspark import DSparkDrafter
from specpilot_kernels.cpu_jit import max_threads


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The bundled target and its first drafter."""
    for part in ("target", "dflash2"):
        shutil.copytree(bundled_folder() / part, tmp_path / "models" / part)
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


def write_dspark(copy: Path, **changes: object) -> DSparkShape:
    """An untrained DSpark drafter for the bundled target, beside it."""
    target = json.loads((copy / "target" / "config.json").read_text())
    shape = DSparkShape(
        target["hidden_size"],
        target["vocab_size"],
        target["num_hidden_layers"],
        mask_token_id=3,
        tap_outputs=(1, 4),
    )
    drafter = TrainDSpark(shape)
    drafter.initialise(0)
    export_checkpoint(copy / "dspark", drafter.config_dict() | changes, drafter.state_dict(), None)
    return shape


def test_a_folder_is_loaded_by_its_architecture(copy: Path) -> None:
    shape = write_dspark(copy)
    engine = build_engine(str(copy), num_threads=1, mode="judge")
    assert engine.describe().drafters == (
        "dflash2",
        "dspark",
        "dflash2+suffix",
        "dspark+suffix",
        "suffix",
    )
    drafter = engine.drafters["dspark"]
    assert isinstance(drafter, DSparkDrafter) and drafter.block_size == shape.block_size + 1
    prompt = engine.apply_chat_template([{"role": "user", "content": "Count to five."}])
    sampled = SamplingParams(max_new_tokens=12, temperature=1.0, seed=3, ignore_eos=True)
    for params in (SamplingParams(max_new_tokens=12, ignore_eos=True), sampled):
        chunks = list(engine.generate(GenerateRequest(prompt, params, "dspark")))
        assert sum(len(chunk.token_ids) for chunk in chunks) == 12
        assert chunks[1].step is not None and chunks[1].step.num_drafted == 7


@pytest.mark.parametrize(
    "architectures", [["LlamaForCausalLM"], [], ["DFlash2DraftModel", "Qwen3DSparkModel"], "x", None]
)
def test_a_folder_that_is_no_drafter_is_refused(copy: Path, architectures: object) -> None:
    write_dspark(copy, architectures=architectures)
    with pytest.raises(CheckpointError, match=r"dspark: architectures: got .*expected a list of one of"):
        build_engine(str(copy), num_threads=1)


def test_a_drafter_for_another_target_is_refused(copy: Path) -> None:
    write_dspark(copy, num_target_layers=6)
    with pytest.raises(
        CheckpointError, match="dspark: num_target_layers: got 6, expected 8 as in the target"
    ):
        build_engine(str(copy), num_threads=1)


@pytest.mark.parametrize("num_threads", [max_threads() + 1, -1])
def test_threads_that_cannot_be_had_are_a_wrong_setting(num_threads: int) -> None:
    with pytest.raises(ConfigError, match=f"num_threads: got {num_threads}"):
        build_engine(num_threads=num_threads)


def test_unknown_model_and_drafter_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found neither"):
        build_engine(str(tmp_path), num_threads=1)
    with pytest.raises(ConfigError, match=r"drafter: got 'eagle9', expected 'none' or one of: .*dflash2"):
        build_engine(drafter="eagle9", num_threads=1)
