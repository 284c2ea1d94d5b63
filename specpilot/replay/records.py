"""A recording: its segments, and the tokens that truly followed every step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.draft.recording import RecordedTimes
from specpilot.draft.tree import DraftTree
from specpilot.errors import ConfigError
from specpilot.replay.recorder import SEGMENT_SUFFIX
from specpilot.replay.segment import Segment, read_segment
from specpilot.replay.steps import RecordedRequest

__all__ = ["ReplayStep", "find_segments", "read_records"]


@dataclass(frozen=True, eq=False)
class ReplayStep:
    """A recorded step with the target's own continuation.

    Attributes
    ----------
    truth : array, int64, (T,)
        Tokens the target emitted after the root, as far as the recording goes.
    tree, kept_tokens, times
        What the live engine verified and emitted in this step, and what it took.
    """

    request: RecordedRequest
    position: int
    root_id: int
    lattice: Lattice
    truth: NDArray[np.int64]
    tree: DraftTree
    kept_tokens: tuple[int, ...]
    times: RecordedTimes

    @property
    def is_whole(self) -> bool:
        """The continuation reaches one token past the lattice, so that whatever is drafted from it can be judged."""
        return len(self.truth) > self.lattice.depth


def find_segments(paths: Sequence[Path]) -> list[Path]:
    """Segment files; a folder stands for all in it and below it."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob(f"*{SEGMENT_SUFFIX}")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(f"records: {path} holds no recording, expected files named *{SEGMENT_SUFFIX}")
        found += inside
    return found


def read_records(paths: Sequence[Path], *, drafter: str | None = None) -> list[ReplayStep]:
    """Steps of files or folders, by request and place in the answer.

    ``drafter`` selects the requests that used it.

    Raises
    ------
    ConfigError
        A file is refused (:func:`specpilot.replay.segment.read_segment`), files of one recording are missing or of
        different models, steps of a request contradict each other, or nothing is left.
    """
    segments: dict[Path, list[Segment]] = defaultdict(list)
    for path in find_segments(paths):
        segments[path.parent].append(read_segment(path))
    steps: list[ReplayStep] = []
    for folder, group in segments.items():
        _check_group(folder, group)
        for request, mine in _by_request(group).items():
            if drafter in (None, request.drafter):
                steps += _joined(folder, request, mine)
    if not steps:
        of = "" if drafter is None else f" of drafter {drafter!r}"
        raise ConfigError(f"records: got no steps{of}, expected at least one")
    return steps


def _check_group(folder: Path, group: list[Segment]) -> None:
    numbers = sorted(segment.number for segment in group)
    missing = sorted(set(range(numbers[-1] + 1)) - set(numbers))
    if missing or len(numbers) != len(set(numbers)):
        raise ConfigError(
            f"records: {folder}: got segments {numbers}, expected each from 0 to {numbers[-1]} once; give the "
            "whole folder"
        )
    hashes = {segment.model_hash for segment in group}
    if len(hashes) > 1:
        raise ConfigError(
            f"records: {folder}: got segments of {len(hashes)} models, expected one; they do not belong together"
        )
    group.sort(key=lambda segment: segment.number)


def _by_request(group: list[Segment]) -> dict[RecordedRequest, list[ReplayStep]]:
    steps: dict[RecordedRequest, list[ReplayStep]] = defaultdict(list)
    for segment in group:
        for request, step in _read_steps(segment):
            steps[request].append(step)
    return steps


def _read_steps(segment: Segment) -> Iterator[tuple[RecordedRequest, ReplayStep]]:
    columns = segment.columns
    unknown = np.empty(0, np.int64)
    for index, (lattice, tree, kept) in enumerate(
        zip(columns.lattices(), columns.trees(), columns.kept(), strict=True)
    ):
        request = segment.requests[int(columns.request[index])]
        times = RecordedTimes(*columns.times_us[index].tolist())
        position, root_id = int(columns.position[index]), int(columns.root_id[index])
        tokens = tuple(kept.tolist())
        yield request, ReplayStep(request, position, root_id, lattice, unknown, tree, tokens, times)


def _joined(folder: Path, request: RecordedRequest, steps: list[ReplayStep]) -> list[ReplayStep]:
    """Steps in the order of the answer, each with what followed it."""
    steps.sort(key=lambda step: step.position)
    begin = steps[0].position
    known: dict[int, int] = {}
    for step in steps:
        for offset, token in enumerate((step.root_id, *step.kept_tokens)):
            if known.setdefault(step.position + offset, token) != token:
                raise ConfigError(
                    f"records: {folder}: request {request.request_id!r}, position {step.position + offset}: got tokens "
                    f"{known[step.position + offset]} and {token}, expected one; its steps are of different answers"
                )
    end = begin
    while end in known:
        end += 1
    if len(known) != end - begin:
        raise ConfigError(
            f"records: {folder}: request {request.request_id!r}: got no step that emits position {end}, expected "
            f"all from {begin} on; a part of the recording is missing"
        )
    answer = np.array([known[place] for place in range(begin, end)], np.int64)
    return [
        ReplayStep(
            request,
            step.position,
            step.root_id,
            step.lattice,
            answer[step.position - begin + 1 :],
            step.tree,
            step.kept_tokens,
            step.times,
        )
        for step in steps
    ]
