"""Is a scorer that shares the audited engine still the stock target? Fixed texts with known scores, and hashed weights.

Where there is no room for a second engine, the audit scores in the live one with every mechanism bypassed. That engine
is believed only if it gives a fixed probe set the scores which the reference engine gave it beforehand, and if the
weights on disk, decoded, are the checkpoint's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specpilot.errors import CheckpointError, ConfigError, ForcingError
from specpilot.forcing.answer import Answer
from specpilot.forcing.scorers.base import Scorer
from specpilot.refengine.checkpoint import stored_tensors

__all__ = [
    "BUNDLED_PROBE",
    "PROBE_FORMAT",
    "Probe",
    "check_probe",
    "check_tensors",
    "hash_tensors",
    "make_probe",
]

PROBE_FORMAT = {"format": "specpilot-probe", "version": 1}
BUNDLED_PROBE = Path(__file__).parent / "bundled_probe.json"
"""Of the bundled target; ``python -m specpilot.forcing.make_probe`` writes it."""


@dataclass(frozen=True)
class Probe:
    """Texts of one model with their scores.

    Attributes
    ----------
    answers
        Prompt and teacher-forced tokens; they are not the model's own, so that improbable tokens count as well.
    logprobs, argmax_ids
        One list an answer, one entry a token.
    tensors
        SHA-256 of the bytes of every tensor of the checkpoint, by name.
    """

    model: str
    answers: tuple[Answer, ...]
    logprobs: tuple[tuple[float, ...], ...]
    argmax_ids: tuple[tuple[int, ...], ...]
    tensors: Mapping[str, str]

    def write(self, path: Path) -> None:
        texts = [
            {
                "request_id": answer.request_id,
                "prompt_ids": list(answer.prompt_ids),
                "output_ids": list(answer.output_ids),
                "logprobs": [round(value, 5) for value in logprobs],
                "argmax_ids": list(argmax_ids),
            }
            for answer, logprobs, argmax_ids in zip(self.answers, self.logprobs, self.argmax_ids, strict=True)
        ]
        data = PROBE_FORMAT | {"model": self.model, "tensors": dict(self.tensors), "texts": texts}
        path.write_text(json.dumps(data) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Probe:
        """ConfigError for another format."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"probe: cannot read {path}: {error}") from None
        if {name: data.get(name) for name in PROBE_FORMAT} != PROBE_FORMAT:
            raise ConfigError(f"probe: {path} is no probe of {PROBE_FORMAT}")
        texts: list[dict[str, Any]] = data["texts"]
        return cls(
            data["model"],
            tuple(Answer(t["request_id"], t["prompt_ids"], t["output_ids"], "length") for t in texts),
            tuple(tuple(text["logprobs"]) for text in texts),
            tuple(tuple(text["argmax_ids"]) for text in texts),
            data["tensors"],
        )


def make_probe(model: str, answers: Sequence[Answer], scorer: Scorer, folder: Path) -> Probe:
    """The probe of a checkpoint folder, scored by an engine that is trusted."""
    scores = scorer.score(answers)
    return Probe(
        model,
        tuple(answers),
        tuple(tuple(score.logprobs.tolist()) for score in scores),
        tuple(tuple(score.argmax_ids.tolist()) for score in scores),
        hash_tensors(folder),
    )


def check_probe(probe: Probe, scorer: Scorer, tolerance: float) -> float:
    """The largest difference of a log-probability, in nats; ForcingError above ``tolerance``.

    ``tolerance`` is what the scorer's arithmetic may differ by: 0.001 for float32, and more for BF16.
    """
    worst = 0.0
    for answer, expected, score in zip(
        probe.answers, probe.logprobs, scorer.score(probe.answers), strict=True
    ):
        score.check(len(expected), f"probe {answer.request_id!r}")
        worst = max(worst, float(np.abs(score.logprobs - np.array(expected)).max()))
    if worst > tolerance:
        raise ForcingError(
            f"probe: the scorer's log-probabilities differ by up to {worst:.4g} nats from the reference engine's, "
            f"expected at most {tolerance}; it is not the stock target of {probe.model}"
        )
    return worst


def hash_tensors(folder: Path) -> dict[str, str]:
    """SHA-256 of the bytes of every tensor of a model folder, by name; W12 files are decoded."""
    try:
        return {name: _sha256(tensor) for name, tensor in stored_tensors(folder)}
    except CheckpointError as error:
        raise ForcingError(f"weights: {error}") from error


def check_tensors(folder: Path, expected: Mapping[str, str]) -> int:
    """Number of tensors, all of them equal to ``expected``; ForcingError that names the first other one."""
    found = hash_tensors(folder)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise ForcingError(
                f"weights: tensor {name!r} in {folder.name} has sha256 {str(found.get(name))[:12]}, expected "
                f"{str(expected.get(name))[:12]}; the weights are not the checkpoint's"
            )
    return len(found)


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
