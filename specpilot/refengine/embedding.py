"""Looking up embedding rows: from the packed head of a tied target, or from a table of its own."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from specpilot.errors import RequestError
from specpilot_kernels.skinny_gemm import PackedWeight

__all__ = ["EmbeddingTable"]


class EmbeddingTable:
    """(T,) ids -> (T, hidden_size) rows.

    A tied target's rows come out of its head, which holds them already; numbers that BF16 can hold are kept as BF16.
    """

    def __init__(self, table: Tensor | PackedWeight) -> None:
        self._packed = table if isinstance(table, PackedWeight) else None
        if isinstance(table, PackedWeight):
            self._num_rows = table.num_columns
            return
        self._num_rows = table.shape[0]
        narrow = table.bfloat16()
        self._table = narrow if torch.equal(narrow.float(), table.float()) else table

    @property
    def memory_bytes(self) -> int:
        """Bytes beyond those of a tied head."""
        return 0 if self._packed is not None else self._table.nbytes

    def rows(self, ids: Tensor) -> NDArray[np.float32]:
        """New float32 rows; RequestError for an id outside the vocabulary."""
        if not ids.numel() or int(ids.min()) < 0 or int(ids.max()) >= self._num_rows:
            got = f"{int(ids.min())} to {int(ids.max())}" if ids.numel() else "none"
            raise RequestError(f"token ids: got {got}, expected 0 to {self._num_rows - 1}, at least one")
        if self._packed is not None:
            return self._packed.rows(ids.numpy())
        # A lookup in a float32 table is new memory too.
        return F.embedding(ids, self._table).float().numpy()
