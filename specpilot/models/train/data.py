"""Token streams for training: a flat uint16 file cut into rows that begin where a document begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specpilot.errors import ConfigError

__all__ = ["TokenStream"]


@dataclass(frozen=True)
class TokenStream:
    """Documents one after another, each ended by ``end_id``.

    Attributes
    ----------
    tokens : ndarray, uint16, (num_tokens,)
    end_id
        Token that ends a document; the token after it begins the next one.
    """

    tokens: np.ndarray
    end_id: int

    @classmethod
    def open(cls, path: Path, end_id: int) -> TokenStream:
        tokens = np.fromfile(path, dtype="<u2")
        if tokens.size < 2 or not (tokens == end_id).any():
            raise ConfigError(
                f"{path}: got {tokens.size} tokens without an end-of-document id {end_id}; rebuild the corpus"
            )
        return cls(tokens, end_id)

    def batch(self, rows: int, length: int, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw rows of ``length`` tokens and their successors.

        A row begins at the first document start within ``length // 4`` tokens of a random place, or at the place itself
        when a long document covers that stretch. Returns ids (rows, length) int64, labels (rows, length) int64 and
        starts (rows, length) bool (true at the first token of a document or of the row).
        """
        places = generator.integers(0, self.tokens.size - length - 1 - length // 4, size=rows)
        ids = np.empty((rows, length + 1), dtype=np.int64)
        for row, place in enumerate(places):
            ends = np.flatnonzero(self.tokens[place : place + length // 4] == self.end_id)
            begin = place + ends[0] + 1 if ends.size else place
            ids[row] = self.tokens[begin : begin + length + 1]
        starts = np.zeros((rows, length), dtype=bool)
        starts[:, 1:] = ids[:, : length - 1] == self.end_id
        starts[:, 0] = True
        return (
            torch.from_numpy(ids[:, :-1].copy()),
            torch.from_numpy(ids[:, 1:].copy()),
            torch.from_numpy(starts),
        )
