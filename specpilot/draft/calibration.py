"""Acceptance probabilities from a drafter's own, by isotonic regression on recorded trees.

A drafter says how likely a child is after its parent; how often it is the right one when the parent is right can be
counted on recorded lattices whose true continuation is known. :func:`fit_edges` makes of these counts one rising map a
depth, and :meth:`EdgeCalibration.apply` puts the mapped probabilities in place of the drafter's. A map never turns the
order of the children of one node round, it changes how they compare with nodes elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from specpilot.draft.lattice import Lattice
from specpilot.errors import CheckpointError, ConfigError

__all__ = [
    "CALIBRATION_FILE",
    "FLOOR",
    "EdgeCalibration",
    "IsotonicMap",
    "fit_edges",
    "fit_isotonic",
    "recorded_edges",
]

_Floats = NDArray[np.float64]

CALIBRATION_FILE = "calibration.json"
"""Name in a drafter's folder."""

FLOOR = 1e-6
"""Least mapped probability: a logarithm must exist, and none of so few recorded hits is known to be 0."""


@dataclass(frozen=True)
class IsotonicMap:
    """A map of probabilities that does not fall: straight between its points, level outside them.

    ``predicted`` increasing, ``accepted`` not falling, from 0 to 1, as many of both and at least one.
    """

    predicted: tuple[float, ...]
    accepted: tuple[float, ...]

    def __post_init__(self) -> None:
        x, y = np.array(self.predicted), np.array(self.accepted)
        is_map = len(x) > 0 and x.shape == y.shape and (np.diff(x) > 0).all() and (np.diff(y) >= 0).all()
        if not is_map or not all(0.0 <= value <= 1.0 for value in (*self.predicted, *self.accepted)):
            raise ConfigError(
                f"isotonic map: got predicted {self.predicted} and accepted {self.accepted}, expected as many of both, "
                "at least one, from 0 to 1, predicted increasing, accepted not falling"
            )

    def __call__(self, predicted: _Floats) -> _Floats:
        values: _Floats = np.interp(predicted, self.predicted, self.accepted)
        return values


def fit_isotonic(predicted: _Floats, is_accepted: NDArray[np.bool_]) -> IsotonicMap:
    """Least-squares fit of a step function that does not fall, by pooling adjacent violators.

    Neighbours in the order of ``predicted`` are pooled as long as a share of accepted ones would fall; a point of the
    map is a pool, at the mean of its predictions. Equal predictions are one pool from the start.

    Parameters
    ----------
    predicted : array, float64, (n,), n >= 1
        Probabilities.
    is_accepted : array, bool, (n,)
    """
    if predicted.shape != is_accepted.shape or predicted.ndim != 1 or not len(predicted):
        raise ConfigError(
            f"calibration: got {predicted.shape} predictions and {is_accepted.shape} outcomes, expected as many of "
            "both, at least one"
        )
    values, index = np.unique(predicted, return_inverse=True)
    counts = np.bincount(index).astype(np.float64)
    hits = np.bincount(index, weights=is_accepted)
    pools: list[tuple[float, float, float]] = []  # (count, sum of predictions, hits)
    for pool in zip(counts.tolist(), (values * counts).tolist(), hits.tolist(), strict=True):
        while pools and pools[-1][2] * pool[0] >= pool[2] * pools[-1][0]:
            below = pools.pop()
            pool = (below[0] + pool[0], below[1] + pool[1], below[2] + pool[2])
        pools.append(pool)
    return IsotonicMap(
        tuple(total / count for count, total, _ in pools), tuple(hit / count for count, _, hit in pools)
    )


@dataclass(frozen=True)
class EdgeCalibration:
    """One map a depth, the last one for all depths beyond."""

    maps: tuple[IsotonicMap, ...]

    def __post_init__(self) -> None:
        if not self.maps:
            raise ConfigError("calibration: got no map, expected one a depth")

    def apply(self, lattice: Lattice) -> Lattice:
        """The lattice with mapped probabilities of its edges, as log-probabilities."""
        edges = lattice.edge_logprobs.numpy()
        chances = np.exp(edges.astype(np.float64))
        for depth, rows in enumerate(chances):
            rows[:] = self.maps[min(depth, len(self.maps) - 1)](rows)
        mapped = np.log(np.maximum(chances, FLOOR)).astype(np.float32)
        mapped[edges == -np.inf] = -np.inf
        return Lattice(lattice.candidate_ids, torch.from_numpy(mapped), are_logprobs=True)

    @classmethod
    def beside(cls, folder: Path) -> EdgeCalibration | None:
        """That of a drafter's folder, or None where it has no ``calibration.json``."""
        path = folder / CALIBRATION_FILE
        return cls.read(path) if path.exists() else None

    @classmethod
    def read(cls, path: Path) -> EdgeCalibration:
        """Read a file that :meth:`write` made.

        Raises
        ------
        CheckpointError
            The file is damaged; the message names it.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["version"] != 1:
                raise CheckpointError(f"{path}: version is {fields['version']!r}, expected 1")
            maps = [IsotonicMap(tuple(one["predicted"]), tuple(one["accepted"])) for one in fields["maps"]]
            return cls(tuple(maps))
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(
                f"{path}: no calibration: {error!r}; fit it again or move it away"
            ) from error

    def write(self, path: Path) -> None:
        """JSON: ``version`` 1 and ``maps``, each with ``predicted`` and ``accepted``."""
        maps = [{"predicted": one.predicted, "accepted": one.accepted} for one in self.maps]
        path.write_text(json.dumps({"version": 1, "maps": maps}, indent=1) + "\n", encoding="utf-8")


def recorded_edges(
    steps: Iterable[tuple[Lattice, Sequence[int]]],
) -> list[tuple[_Floats, NDArray[np.bool_]]]:
    """What can be learned from recorded steps: by depth, probabilities of children and whether each was the right one.

    The children of the nodes on the true path count; the path is followed as long as it is in the lattice.

    Parameters
    ----------
    steps
        A lattice and the tokens that truly followed its root.

    Returns
    -------
    list of (predicted float64 (n,), is_accepted bool (n,)), one a depth that any step reached
    """
    found: list[tuple[list[_Floats], list[NDArray[np.bool_]]]] = []
    for lattice, following in steps:
        ids, edges = lattice.candidate_ids.numpy(), lattice.edge_logprobs.numpy()
        row = 0
        for depth, token in zip(range(lattice.depth), following, strict=False):
            is_there = edges[depth, row] > -np.inf
            if not is_there.any():
                break
            if depth == len(found):
                found.append(([], []))
            is_right = (ids[depth] == token) & is_there
            found[depth][0].append(np.exp(edges[depth, row][is_there].astype(np.float64)))
            found[depth][1].append(is_right[is_there])
            if not is_right.any():
                break
            row = int(is_right.argmax())
    return [(np.concatenate(predicted), np.concatenate(right)) for predicted, right in found]


def fit_edges(steps: Iterable[tuple[Lattice, Sequence[int]]], *, min_edges: int = 500) -> EdgeCalibration:
    """A map for each depth that ``min_edges`` edges or more are known of; deeper ones use the last.

    Raises
    ------
    ConfigError
        Not even depth 0 has so many.
    """
    maps: list[IsotonicMap] = []
    for predicted, is_accepted in recorded_edges(steps):
        if len(predicted) < min_edges:
            break
        maps.append(fit_isotonic(predicted, is_accepted))
    if not maps:
        raise ConfigError(f"calibration: got fewer than {min_edges} edges, record more steps")
    return EdgeCalibration(tuple(maps))
