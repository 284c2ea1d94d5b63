"""Writes verify steps to files while an engine serves."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Queue

from specpilot.draft.lattice import Lattice
from specpilot.draft.recording import RecordedTimes
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError, EngineError
from specpilot.replay.segment import Segment, segment_bytes
from specpilot.replay.steps import RecordedRequest, RecordedStep, StepColumns

__all__ = ["SEGMENT_SUFFIX", "STEPS_PER_SEGMENT", "FileRecorder"]

log = logging.getLogger(__name__)

SEGMENT_SUFFIX = ".steps.safetensors"

STEPS_PER_SEGMENT = 512
"""Steps of a file, 8 MB at most with 16 positions of 16 candidates: what a crash can lose."""

# Files that wait for the disk; the engine waits when there are more.
_MAX_WAITING = 4


class FileRecorder:
    """A :class:`specpilot.draft.recording.StepRecorder` that writes segments into a folder of its own.

    A segment appears under its name only when all of it is on the disk, so that a reader or a crash never meets half of
    one. ``record`` keeps the step in memory; files are packed and written by a thread of this class. When writing fails
    it is logged once, later steps are dropped and counted, and :meth:`close` raises: requests go on.

    Parameters
    ----------
    folder
        Made if missing; must hold no segments yet.
    model_id, model_hash
        Written into every segment.

    Attributes
    ----------
    num_recorded, num_dropped
        Steps taken and, after a failure, not taken.
    """

    def __init__(
        self, folder: Path, *, model_id: str, model_hash: str, steps_per_segment: int = STEPS_PER_SEGMENT
    ) -> None:
        if steps_per_segment < 1:
            raise ConfigError(f"steps_per_segment: got {steps_per_segment}, expected at least 1")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_used = any(folder.glob(f"*{SEGMENT_SUFFIX}"))
        except OSError as error:
            raise ConfigError(f"record: cannot use the folder {folder}: {error.strerror}") from None
        if is_used:
            raise ConfigError(
                f"record: {folder} holds a recording, expected a folder without one; give another"
            )
        self.folder, self.num_recorded, self.num_dropped = folder, 0, 0
        self._model_id, self._model_hash = model_id, model_hash
        self._steps_per_segment, self._num_segments = steps_per_segment, 0
        self._steps: list[RecordedStep] = []
        self._failure: BaseException | None = None
        self._queue: Queue[list[RecordedStep] | None] = Queue(_MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()
        self._is_closed = False

    def record(
        self,
        request_id: str,
        lattice: Lattice,
        root_id: int,
        tree: DraftTree,
        kept_tokens: Sequence[int],
        times: RecordedTimes,
        *,
        drafter: str,
        position: int,
    ) -> None:
        if self._failure is not None or self._is_closed:
            self.num_dropped += 1
            return
        request = RecordedRequest(request_id, drafter)
        self._steps.append(RecordedStep(request, position, root_id, lattice, tree, tuple(kept_tokens), times))
        self.num_recorded += 1
        if len(self._steps) == self._steps_per_segment:
            self._flush()

    def close(self) -> None:
        """Write what is left; EngineError if any segment could not be written. To be called after the engine's last
        step."""
        if not self._is_closed:
            self._is_closed = True
            self._flush()
            self._queue.put(None)
            self._thread.join()
        if self._failure is not None:
            raise EngineError(
                f"record: writing to {self.folder} failed ({self._failure}); {self._num_segments} files are complete, "
                "the steps after them are lost"
            ) from self._failure

    def _flush(self) -> None:
        if self._steps:
            self._queue.put(self._steps)
            self._steps = []

    def _work(self) -> None:
        while (steps := self._queue.get()) is not None:
            if self._failure is not None:
                continue
            try:
                self._write(steps)
            except Exception as error:
                log.error("recording into %s ends here: %s", self.folder, error)
                self._failure = error

    def _write(self, steps: list[RecordedStep]) -> None:
        requests = tuple(dict.fromkeys(step.request for step in steps))
        columns = StepColumns.of(steps, requests)
        segment = Segment(self._num_segments, self._model_id, self._model_hash, requests, columns)
        path = self.folder / f"{self._num_segments:06}{SEGMENT_SUFFIX}"
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            file.write(segment_bytes(segment))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._num_segments += 1
