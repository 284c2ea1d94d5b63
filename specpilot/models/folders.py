"""Where models are: the bundled ones and folders of the user."""

from __future__ import annotations

from pathlib import Path

from specpilot.errors import CheckpointError
from specpilot_kernels.w12.format import W12_SUFFIX

__all__ = ["BUNDLED_MODEL_ID", "bundled_folder", "model_folders"]

BUNDLED_MODEL_ID = "specpilot-bundled"


def bundled_folder() -> Path:
    """Folder with ``target/`` and one folder per drafter."""
    return Path(__file__).parent / "bundled"


def model_folders(model: str | None) -> tuple[str, Path, dict[str, Path]]:
    """Resolve what the user calls a model.

    ``None`` or the bundled model's id: the bundled models. Otherwise a folder: either a checkpoint, or a folder that
    holds ``target/`` and, beside it, a folder for each drafter.

    Returns
    -------
    (model id, target folder, drafter folders by name)
    """
    root = bundled_folder() if model in (None, BUNDLED_MODEL_ID) else Path(str(model))
    model_id = BUNDLED_MODEL_ID if model in (None, BUNDLED_MODEL_ID) else root.name
    if (root / "config.json").is_file():
        return model_id, root, {}
    if not (root / "target" / "config.json").is_file():
        raise CheckpointError(
            f"model {model or BUNDLED_MODEL_ID!r}: found neither {root}/config.json nor {root}/target/config.json; "
            "give a GGUF file, a checkpoint folder, or a folder with target/ and its drafters beside it"
        )
    for folder in root.iterdir():
        has_weights = any(folder.glob("*.safetensors")) or any(folder.glob(f"*{W12_SUFFIX}"))
        if folder.is_dir() and has_weights and not (folder / "config.json").is_file():
            raise CheckpointError(
                f"{folder}: got weights without config.json; restore it, or move the folder away"
            )
    drafters = {
        folder.name: folder
        for folder in sorted(root.iterdir())
        if folder.name != "target" and (folder / "config.json").is_file()
    }
    return model_id, root / "target", drafters
