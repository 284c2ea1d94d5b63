"""Lanes: running requests shared out among engine threads, each of which runs steps of its own.

The products of a step of a small model are too small to start a second thread for, and between them stands Python. Two
steps at the same time on two cores, of half the requests each, keep both cores busy: kernels run without Python's lock.
A row's bits do not depend on the rows beside it, so a request's answer is the same in any lane.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from specpilot.refengine.jobs import Job

__all__ = ["Lane", "Lanes"]


class Lane:
    """Requests that run in the same steps. Its thread is started by whoever puts the first job in.

    Attributes
    ----------
    jobs : list[Job]
        In the order they came. Only the lane's own thread takes jobs out, between two of its steps.
    """

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.thread: threading.Thread | None = None

    @property
    def num_rows(self) -> int:
        """Rows of a decoding step of all jobs that go on, by which lanes are balanced."""
        return sum(job.num_step_rows for job in self.jobs if not (job.is_over or job.is_given_up))


class Lanes:
    """All lanes of an engine; every method is called under the scheduler's lock."""

    def __init__(self, num_lanes: int) -> None:
        self._lanes = [Lane() for _ in range(num_lanes)]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    @property
    def jobs(self) -> list[Job]:
        """Of all lanes."""
        return [job for lane in self._lanes for job in lane.jobs]

    @property
    def num_busy(self) -> int:
        """Lanes with jobs."""
        return sum(bool(lane.jobs) for lane in self._lanes)

    def add(self, job: Job) -> Lane:
        """Put a job into the lane with the fewest rows, the first of equals."""
        lane = min(self._lanes, key=lambda lane: lane.num_rows)
        lane.jobs.append(job)
        return lane

    def hand_over(self, lane: Lane) -> list[Lane]:
        """Give jobs of a lane, between two of its steps, to lanes that then have fewer rows than it had.

        Returns
        -------
        list[Lane]
            Who got one. The latest job that fits goes first, and one by one, so that nothing goes back and forth.
        """
        receivers: list[Lane] = []
        while True:
            other = min(self._lanes, key=lambda one: one.num_rows)
            most = lane.num_rows - other.num_rows
            job = next((job for job in reversed(lane.jobs) if job.num_step_rows < most), None)
            if job is None:
                return receivers
            lane.jobs.remove(job)
            other.jobs.append(job)
            receivers.append(other)
