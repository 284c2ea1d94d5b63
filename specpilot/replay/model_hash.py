"""Which weights a recording is of."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specpilot.models.folders import model_folders

__all__ = ["hash_model"]

_KINDS = (".json", ".safetensors", ".w12", ".gguf")


def hash_model(model: str | None) -> str:
    """SHA-256 of names and contents of a model's files, drafters included; ``model`` as for ``build_engine``."""
    if model is not None and Path(model).is_file():
        files = {Path(model).name: Path(model)}
    else:
        _, target, drafters = model_folders(model)
        files = {
            f"{name}/{path.name}": path
            for name, folder in {"target": target, **drafters}.items()
            for path in folder.iterdir()
            if path.suffix in _KINDS
        }
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {files[name].stat().st_size};".encode())
        with files[name].open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
