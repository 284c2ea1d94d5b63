"""The bundled weights are the bytes they were trained to, whatever format they are shipped in."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specpilot.models import bundled_folder
from specpilot_kernels.w12.checkpoint import decode_checkpoint

DIGESTS = {
    "dflash2/model.safetensors": "d6ae2714aab6a914a491ea58c3aab8764ea29b4219ae486ec49b0549eb49b169",
    "dspark/model.safetensors": "78c99d08e8e7b6152ee67217aecf1c8b85046f2940e63c5affc41e37c4f1269a",
    "eagle3/model.safetensors": "6ee4b1c20894c41a2a9bbbce058abfe6710a5f9e633e291aeb5a4279b12ccaae",
    "target/model-00001-of-00002.safetensors": "be1e40998b2a8c301e224e3208b0bc0d0f9bcee05e73849f1629eb858cc4fbd4",
    "target/model-00002-of-00002.safetensors": "d121867255fdec255bb8d07188bf8e3232e7e23fdf93720502a8472ac4242540",
}
"""SHA-256 of the files that training wrote."""


def test_decoded_files_are_those_that_were_trained(tmp_path: Path) -> None:
    made = decode_checkpoint(bundled_folder(), tmp_path / "plain")
    digests = {
        str(file.relative_to(tmp_path / "plain")): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in made
    }
    assert digests == DIGESTS
    for folder in ("target", "dflash2", "dspark", "eagle3"):
        # With the other files beside them, so that another engine can load the folder.
        config = (tmp_path / "plain" / folder / "config.json").read_bytes()
        assert config == (bundled_folder() / folder / "config.json").read_bytes()
