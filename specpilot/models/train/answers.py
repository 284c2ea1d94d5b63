"""Regenerated answers on disk and as batches for drafter training."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specpilot.models.train.regenerate import regenerate
from specpilot.models.train.target import TrainTarget

__all__ = ["Answers", "read_prompts", "regenerate_answers"]


def read_prompts(path: Path) -> list[list[int]]:
    """Prompts of ``chat_prompts.npz``: ``ids`` uint16 end to end, ``offsets`` uint32 (num_prompts + 1)."""
    with np.load(path) as file:
        ids, offsets = file["ids"], file["offsets"].astype(np.int64)
    return [ids[a:b].tolist() for a, b in pairwise(offsets)]


@dataclass(frozen=True)
class Answers:
    """Prompt and answer of each sequence, cut to ``length`` tokens.

    Attributes
    ----------
    ids : Tensor, int64, (num_sequences, length)
        Padded with zeros after ``ends``.
    begins, ends : Tensor, int64, (num_sequences,)
        First answer token and one past the last token.
    """

    ids: Tensor
    begins: Tensor
    ends: Tensor

    @classmethod
    def load(cls, path: Path, device: str) -> Answers:
        with np.load(path) as file:
            return cls(
                *(
                    torch.from_numpy(file[name].astype(np.int64)).to(device)
                    for name in ("ids", "begins", "ends")
                )
            )

    def save(self, path: Path) -> None:
        np.savez_compressed(
            path,
            ids=self.ids.cpu().numpy().astype(np.uint16),
            begins=self.begins.cpu().numpy().astype(np.uint16),
            ends=self.ends.cpu().numpy().astype(np.uint16),
        )

    def split(self, held_out: int) -> tuple[Answers, Answers]:
        """(training part, the last ``held_out`` sequences)."""
        cut = self.ids.shape[0] - held_out
        return (
            Answers(self.ids[:cut], self.begins[:cut], self.ends[:cut]),
            Answers(self.ids[cut:], self.begins[cut:], self.ends[cut:]),
        )

    def by_length(self) -> Answers:
        """The same sequences, shortest first: what :meth:`batch` draws from."""
        order = self.ends.argsort(stable=True)
        return Answers(self.ids[order], self.begins[order], self.ends[order])

    def batch(self, size: int, anchors: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Neighbours in length from a random place, so that little is padding.

        Returns ids (size, longest), anchors (size, anchors) inside the answers, ends (size,). The longest is rounded up
        to a multiple of 64, which keeps the number of distinct shapes small.
        """
        device = self.ids.device
        size = min(size, self.ids.shape[0])
        first = int(torch.randint(self.ids.shape[0] - size + 1, (1,), generator=generator, device=device))
        rows = slice(first, first + size)
        begins, ends = self.begins[rows], self.ends[rows]
        longest = min(-(-int(ends.max()) // 64) * 64, self.ids.shape[1])
        share = torch.rand(size, anchors, generator=generator, device=device)
        return self.ids[rows, :longest], begins[:, None] + (share * (ends - 1 - begins)[:, None]).long(), ends


def regenerate_answers(
    model: TrainTarget,
    prompts: list[list[int]],
    path: Path,
    *,
    end_id: int,
    length: int,
    max_new_tokens: int,
    greedy_share: float,
    temperature: float,
    passes: int,
    rows: int,
    seed: int,
    time_limit_s: float,
    device: str,
) -> Answers:
    """Answer every prompt of at most ``length - max_new_tokens`` tokens and store the result at ``path``.

    Every prompt is answered ``passes`` times: the first time greedily with probability ``greedy_share``, else, and
    every other time, by sampling at ``temperature``. Prompts of similar length are answered together; the answers keep
    the order of the prompts, those of one prompt side by side. After ``time_limit_s`` seconds no further group is
    begun, and what was answered is the result.
    """
    deadline = time.monotonic() + time_limit_s
    usable = [prompt for prompt in prompts if len(prompt) <= length - max_new_tokens for _ in range(passes)]
    order = sorted(range(len(usable)), key=lambda index: len(usable[index]))
    generator = torch.Generator(device=device).manual_seed(seed)
    ids = np.zeros((len(usable), length), dtype=np.int64)
    begins, ends = (np.zeros(len(usable), dtype=np.int64) for _ in range(2))
    groups = [order[first : first + rows] for first in range(0, len(order), rows)]
    np.random.default_rng(seed).shuffle(groups)  # so that an early end leaves out no length in particular
    for group in groups:
        if time.monotonic() > deadline:
            break
        is_first = torch.tensor([index % passes == 0 for index in group], device=device)
        is_greedy = is_first & (torch.rand(len(group), generator=generator, device=device) < greedy_share)
        answers = regenerate(
            model,
            [usable[index] for index in group],
            max_new_tokens=max_new_tokens,
            end_id=end_id,
            temperature=torch.where(is_greedy, 0.0, temperature),
            generator=generator,
            enough=0.97,
        )
        for index, answer in zip(group, answers, strict=True):
            if answer is None:
                continue
            ids[index, : len(answer)] = answer
            begins[index], ends[index] = len(usable[index]), len(answer)
    keep = ends - begins >= 4  # shorter answers hold no block worth learning
    result = Answers(*(torch.from_numpy(part[keep]).to(device) for part in (ids, begins, ends)))
    result.save(path)
    return result
