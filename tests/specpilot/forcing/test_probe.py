"""A live engine may score only if its scores and its weights are those that were recorded."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from specpilot.errors import ConfigError, ForcingError
from specpilot.forcing.faults.catalogue import Fault
from specpilot.forcing.faults.engine import FaultyEngine
from specpilot.forcing.probe import BUNDLED_PROBE, Probe, check_probe, check_tensors, hash_tensors
from specpilot.forcing.scorers.engine import EngineScorer
from specpilot.models.folders import model_folders


@pytest.fixture(scope="module")
def probe():
    return Probe.read(BUNDLED_PROBE)


def test_the_bundled_target_passes_its_probe(probe, scorer):
    assert check_probe(probe, scorer, 1e-3) < 1e-3
    _, folder, _ = model_folders(None)
    assert check_tensors(folder, probe.tensors) == len(probe.tensors) > 50


def test_one_flipped_bit_of_the_weights_fails_both(probe, tmp_path):
    """Probe sets see an exponent bit; a mantissa bit is for the hashes."""
    wrong = EngineScorer(FaultyEngine(Fault("f", "", 1, hook="w12_exponent"), max_running=4))
    with pytest.raises(ForcingError, match="not the stock target"):
        check_probe(probe, wrong, 1e-3)
    tensors = {"a": torch.ones(4, 4, dtype=torch.bfloat16), "b": torch.zeros(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    expected = hash_tensors(tmp_path)
    assert check_tensors(tmp_path, expected) == 2
    tensors["a"].view(torch.uint8)[1, 2] ^= 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ForcingError, match="tensor 'a'"):
        check_tensors(tmp_path, expected)
    with pytest.raises(ForcingError, match="'c'"):
        check_tensors(tmp_path, hash_tensors(tmp_path) | {"c": "0"})


def test_a_probe_of_another_version_is_refused(probe, tmp_path):
    path = tmp_path / "probe.json"
    shutil.copy(BUNDLED_PROBE, path)
    assert Probe.read(path).logprobs == probe.logprobs
    path.write_text(path.read_text().replace('"version": 2', '"version": 1', 1))
    with pytest.raises(ConfigError, match="no probe"):
        Probe.read(path)


def test_a_probe_written_is_the_probe_read(probe, tmp_path):
    replace(probe, model="other").write(tmp_path / "p.json")
    again = Probe.read(tmp_path / "p.json")
    assert again == replace(probe, model="other")
