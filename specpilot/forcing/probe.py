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

PROBE_FORMAT = {"format": "specpilot-probe", "version": 2}
BUNDLED_PROBE = Path(__file__).parent / "bundled_probe.json"
"""Of the bundled target; ``python -m specpilot.forcing.make_probe`` writes it."""

_IMPROBABLE_NATS = 1.0
_IMPROBABLE_SHARE = 0.1
# Where every token is its own argmax, a server that calls whatever it is given the argmax would pass. One token in ten
# that is clearly none is out of reach of chance, and far less than any text of another author has (the bundled: 38%).


@dataclass(frozen=True)
class Probe:
    """Texts of one model with their scores.

    Attributes
    ----------
    answers
        Prompt and teacher-forced tokens; they are not the model's own, so that improbable tokens count as well.
    logprobs, argmax_ids, argmax_logprobs
        One list an answer, one entry a token: of the token, and of the most likely one in its place.
    tensors
        SHA-256 of the bytes of every tensor of the checkpoint, by name.
    """

    model: str
    answers: tuple[Answer, ...]
    logprobs: tuple[tuple[float, ...], ...]
    argmax_ids: tuple[tuple[int, ...], ...]
    argmax_logprobs: tuple[tuple[float, ...], ...]
    tensors: Mapping[str, str]

    def write(self, path: Path) -> None:
        texts = [
            {
                "request_id": answer.request_id,
                "prompt_ids": list(answer.prompt_ids),
                "output_ids": list(answer.output_ids),
                "logprobs": [round(value, 5) for value in logprobs],
                "argmax_ids": list(argmax_ids),
                "argmax_logprobs": [round(value, 5) for value in best],
            }
            for answer, logprobs, argmax_ids, best in zip(
                self.answers, self.logprobs, self.argmax_ids, self.argmax_logprobs, strict=True
            )
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
        try:
            return cls(
                data["model"],
                tuple(Answer(t["request_id"], t["prompt_ids"], t["output_ids"], "length") for t in texts),
                tuple(tuple(text["logprobs"]) for text in texts),
                tuple(tuple(text["argmax_ids"]) for text in texts),
                tuple(tuple(text["argmax_logprobs"]) for text in texts),
                data["tensors"],
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(f"probe: {path} is damaged: {error!r}") from None

    def check_texts(self) -> None:
        """ForcingError for a probe that an engine could pass which calls every token the most likely one."""
        pairs = zip(self.logprobs, self.argmax_logprobs, strict=True)
        margins = [best - value for row in pairs for value, best in zip(*row, strict=True)]
        num_improbable = sum(margin > _IMPROBABLE_NATS for margin in margins)
        if not margins or num_improbable < _IMPROBABLE_SHARE * len(margins):
            raise ForcingError(
                f"probe: got {num_improbable} improbable of {len(margins)} tokens, expected at least "
                f"{_IMPROBABLE_SHARE:.0%}; take texts that are not the model's own"
            )


def make_probe(model: str, answers: Sequence[Answer], scorer: Scorer, folder: Path) -> Probe:
    """The probe of a checkpoint folder, scored by an engine that is trusted."""
    scores = scorer.score(answers)
    probe = Probe(
        model,
        tuple(answers),
        tuple(tuple(score.logprobs.tolist()) for score in scores),
        tuple(tuple(score.argmax_ids.tolist()) for score in scores),
        tuple(tuple(score.argmax_logprobs.tolist()) for score in scores),
        hash_tensors(folder),
    )
    probe.check_texts()
    return probe


def check_probe(probe: Probe, scorer: Scorer, tolerance: float) -> float:
    """The largest difference of a log-probability, in nats; ForcingError above ``tolerance``, or for another argmax.

    Every position counts three times: the token's log-probability, the argmax, and the argmax's log-probability. A
    server may know the first and still name as argmax whatever token it was given. ``tolerance`` is what the scorer's
    arithmetic may differ by: 0.001 for float32, and more for BF16.
    """
    probe.check_texts()
    scores = scorer.score(probe.answers)
    if len(scores) != len(probe.answers):
        raise ForcingError(f"probe: got scores of {len(scores)} texts, expected {len(probe.answers)}")
    worst, size = 0.0, scorer.describe().vocab_size
    for row, (answer, score) in enumerate(zip(probe.answers, scores, strict=True)):
        score.check(len(answer.output_ids), f"probe {answer.request_id!r}", size)
        for found, expected in (
            (score.logprobs, probe.logprobs[row]),
            (score.argmax_logprobs, probe.argmax_logprobs[row]),
        ):
            worst = max(worst, float(np.abs(found - np.array(expected)).max()))
        if worst > tolerance:
            raise ForcingError(
                f"probe {answer.request_id!r}: the scorer's log-probabilities differ by {worst:.4g} nats from the "
                f"reference engine's, expected at most {tolerance}; it is not the stock target of {probe.model}"
            )
        others = np.flatnonzero(score.argmax_ids != np.array(probe.argmax_ids[row]))
        if len(others):
            at = int(others[0])
            raise ForcingError(
                f"probe {answer.request_id!r}: got {int(score.argmax_ids[at])} as most likely at token {at}, expected "
                f"{probe.argmax_ids[row][at]}; it is not the stock target of {probe.model}"
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
