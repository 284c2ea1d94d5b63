"""Recordings made without an engine: random lattices along a known answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from specpilot.draft import DraftTree, Lattice
from specpilot.draft.recording import RecordedTimes
from specpilot.replay.recorder import FileRecorder

__all__ = ["random_lattice", "record_answers"]


def random_lattice(
    generator: torch.Generator, depth: int, width: int, vocab_size: int, truth: list[int] | None = None
) -> Lattice:
    """Candidates without repetition, gaussian scores; ``truth`` is put among the candidates of its depths."""
    ids = torch.stack([torch.randperm(vocab_size, generator=generator)[:width] for _ in range(depth)])
    for place, token in enumerate((truth or [])[:depth]):
        if token not in ids[place]:
            ids[place, int(torch.randint(width, (1,), generator=generator))] = token
    scores = torch.randn(depth, width, width, generator=generator) * 2
    scores[0] = scores[0, 0].clone()
    return Lattice(ids, scores)


def record_answers(
    folder: Path,
    *,
    num_answers: int = 2,
    num_tokens: int = 40,
    depth: int = 5,
    width: int = 4,
    vocab_size: int = 50,
    seed: int = 0,
    steps_per_segment: int = 16,
) -> dict[str, list[int]]:
    """Plain decoding with a lattice at every position; gives the answers by request id."""
    generator = torch.Generator().manual_seed(seed)
    recorder = FileRecorder(
        folder, model_id="random", model_hash="0" * 64, steps_per_segment=steps_per_segment
    )
    answers = {}
    for number in range(num_answers):
        answer = torch.randint(vocab_size, (num_tokens,), generator=generator).tolist()
        answers[f"answer-{number}"] = answer
        for place in range(num_tokens - 1):
            truth = answer[place + 1 : place + 1 + int(torch.randint(depth + 1, (1,), generator=generator))]
            lattice = random_lattice(generator, depth, width, vocab_size, truth)
            root = DraftTree(np.array([answer[place]]), np.array([-1]), np.zeros(1, np.float32))
            recorder.record(
                f"answer-{number}",
                lattice,
                answer[place],
                root,
                [answer[place + 1]],
                RecordedTimes(1.0, 2.0, 3.0),
                drafter="random",
                position=10 + place,
            )
    recorder.close()
    return answers
