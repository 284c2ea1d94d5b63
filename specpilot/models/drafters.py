"""Loads a drafter folder of any kind: its ``architectures`` say which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from specpilot.draft import BorrowedTarget, Drafter
from specpilot.errors import CheckpointError
from specpilot.refengine.config import read_json_object
from specpilot.refengine.dflash2 import load_dflash2
from specpilot.refengine.dflash2_config import DFLASH2_ARCHITECTURES
from specpilot.refengine.dspark import load_dspark
from specpilot.refengine.dspark_config import DSPARK_ARCHITECTURES
from specpilot.refengine.eagle3 import load_eagle3
from specpilot.refengine.eagle3_config import EAGLE3_ARCHITECTURE

__all__ = ["load_drafter"]

_LOADERS: Final[dict[str, Callable[..., Drafter]]] = {
    **dict.fromkeys(DFLASH2_ARCHITECTURES, load_dflash2),
    **dict.fromkeys(DSPARK_ARCHITECTURES, load_dspark),
    EAGLE3_ARCHITECTURE: load_eagle3,
}


def load_drafter(folder: Path, *, target: BorrowedTarget) -> Drafter:
    """Read a drafter checkpoint and attach it to its target.

    Raises
    ------
    CheckpointError
        The folder is damaged, of a kind that is not known, or belongs to another target.
    Unsupported
        The drafter or the target's class needs something this engine does not compute.
    """
    architectures = read_json_object(folder, "config.json").get("architectures")
    name = architectures[0] if isinstance(architectures, list) and len(architectures) == 1 else None
    loader = _LOADERS.get(name) if isinstance(name, str) else None
    if loader is None:
        raise CheckpointError(
            f"{folder}: architectures: got {architectures!r}, expected a list of one of {sorted(_LOADERS)}; move the "
            "folder away if it is no drafter"
        )
    return loader(folder, target=target)
