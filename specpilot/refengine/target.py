"""Any target, and loading one from a model folder by the architecture it names."""

from __future__ import annotations

from pathlib import Path

from specpilot.engines.base import NumericMode
from specpilot.errors import CheckpointError
from specpilot.refengine.config import ARCHITECTURE, read_json_object
from specpilot.refengine.dense import DenseModel, load_dense
from specpilot.refengine.dense_families import DENSE_ARCHITECTURES
from specpilot.refengine.model import TargetModel, load_target

__all__ = ["ARCHITECTURES", "Target", "open_target"]

Target = TargetModel | DenseModel

ARCHITECTURES = (ARCHITECTURE, *DENSE_ARCHITECTURES)
"""What ``architectures`` in a ``config.json`` may name."""


def open_target(path: Path, *, mode: NumericMode) -> Target:
    """Load the target of a model folder in the Hugging Face layout.

    Raises
    ------
    CheckpointError
        The architecture is none of :data:`ARCHITECTURES`, or the folder is damaged or does not fit.
    """
    names = read_json_object(path, "config.json").get("architectures")
    # A config without the key is the hybrid's.
    if names in (None, [ARCHITECTURE]):
        return load_target(path, mode=mode)
    if isinstance(names, list) and len(names) == 1 and names[0] in DENSE_ARCHITECTURES:
        return load_dense(path, mode=mode)
    raise CheckpointError(
        f"target config, architectures: got {names!r}, expected one of: {', '.join(ARCHITECTURES)}"
    )
