"""Recording of an engine that serves: every start gets a folder of its own."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from specpilot.models.folders import BUNDLED_MODEL_ID
from specpilot.replay.model_hash import hash_model
from specpilot.replay.recorder import FileRecorder

__all__ = ["start_recording"]


def start_recording(folder: Path, model: str | None) -> FileRecorder:
    """A recorder in ``folder``/START, START being the time and the process; ``model`` as for ``build_engine``.

    ``specpilot replay`` reads all starts of a folder together.
    """
    start = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    model_id = BUNDLED_MODEL_ID if model is None else Path(model).stem
    return FileRecorder(folder / start, model_id=model_id, model_hash=hash_model(model))
