"""What a sequence leaves behind in every layer, and the rows of the last forward that are not decided yet."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot.errors import EngineError, RequestError
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.dense_config import DenseConfig
from specpilot.refengine.gdn_rules import PrefixRule, Written, stack_layers

__all__ = ["KV_BLOCK_TOKENS", "KvCache", "SequenceState"]

KV_BLOCK_TOKENS = 256
"""Key and value buffers grow in steps of this many tokens, doubling once they are larger."""


class KvCache:
    """Keys and values of one attention layer, (num_kv_heads, capacity, head_dim) each.

    Rows beyond the committed ones are scratch: the next forward overwrites them.
    """

    def __init__(self, num_heads: int, head_dim: int, max_tokens: int, dtype: torch.dtype) -> None:
        self._max_tokens = max_tokens
        self._buffer = torch.zeros(2, num_heads, min(KV_BLOCK_TOKENS, max_tokens), head_dim, dtype=dtype)

    @property
    def memory_bytes(self) -> int:
        return self._buffer.nbytes

    def reserve(self, num_tokens: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Room for so many tokens in all; the buffers of keys and values as arrays, written by who asked."""
        if num_tokens > self._buffer.shape[2]:
            self._grow(num_tokens)
        keys, values = self._buffer.numpy()
        return keys, values

    def write(self, position: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store rows, (T, num_kv_heads, head_dim), at ``position``; views of all rows up to the last one come
        back."""
        end = position + keys.shape[0]
        if end > self._buffer.shape[2]:
            self._grow(end)
        self._buffer[0, :, position:end] = keys.transpose(0, 1)
        self._buffer[1, :, position:end] = values.transpose(0, 1)
        return self._buffer[0, :, :end], self._buffer[1, :, :end]

    def _grow(self, num_tokens: int) -> None:
        old = self._buffer
        wanted = max(num_tokens, 2 * old.shape[2])
        capacity = min(-(-wanted // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS, self._max_tokens)
        self._buffer = old.new_zeros(2, old.shape[1], capacity, old.shape[3])
        self._buffer[:, :, : old.shape[2]] = old


class SequenceState:
    """State of one sequence. Not safe for use by two threads at once.

    A forward leaves its rows *pending*; :meth:`commit` accepts a prefix of them, and the state is then as if
    only these rows had been run. No snapshot is taken: attention rows are cut off by a count, the convolution
    window is cut out of its input, and the recurrent state is rebuilt from what the rows wrote.

    Attributes
    ----------
    num_tokens : int
        Committed tokens.
    max_tokens : int
        Most tokens, committed and pending together.
    """

    def __init__(self, config: TargetConfig | DenseConfig, max_tokens: int, dtype: torch.dtype) -> None:
        if not 1 <= max_tokens <= config.context_length:
            raise RequestError(
                f"max_tokens: got {max_tokens}, expected 1 to {config.context_length}, the context length",
                param="max_tokens",
                code="context_length_exceeded",
            )
        self.num_tokens = 0
        self.max_tokens = max_tokens
        self._num_pending = 0
        num_gdn = config.layer_types.count("linear_attention") if isinstance(config, TargetConfig) else 0
        num_attention = config.num_layers - num_gdn
        self.kv = [
            KvCache(config.num_kv_heads, config.head_dim, max_tokens, dtype) for _ in range(num_attention)
        ]
        self._recurrent, self._window = torch.empty(0, dtype=dtype), 0
        self._conv: list[Tensor] = []
        self._runs: list[list[Written]] = [[] for _ in range(num_gdn)]
        if not isinstance(config, TargetConfig):
            return
        heads_per_group = config.gdn_num_value_heads // config.gdn_num_key_heads
        self._recurrent = torch.zeros(
            num_gdn,
            config.gdn_num_key_heads,
            config.gdn_key_dim,
            heads_per_group * config.gdn_value_dim,
            dtype=dtype,
        )
        self._window = config.gdn_conv_size - 1
        self._conv = [
            torch.zeros(self._window, config.gdn_conv_channels, dtype=dtype) for _ in range(num_gdn)
        ]

    @property
    def num_pending(self) -> int:
        """Rows of the last forward that wait for :meth:`commit`."""
        return self._num_pending

    @property
    def memory_bytes(self) -> int:
        """Bytes held for committed tokens and the room beside them; pending GDN rows come on top until
        committed."""
        conv = sum(window.nbytes for window in self._conv)
        return sum(cache.memory_bytes for cache in self.kv) + self._recurrent.nbytes + conv

    def open_rows(self, num_rows: int, rule: PrefixRule | None = None) -> None:
        """Announce a forward of ``num_rows`` rows, whose recurrent part, if any, ``rule`` runs and rebuilds."""
        if self._num_pending:
            raise EngineError(
                f"{self._num_pending} rows are pending; commit a prefix of them (0 drops all) first"
            )
        if num_rows < 1 or self.num_tokens + num_rows > self.max_tokens:
            raise RequestError(
                f"rows: got {num_rows} after {self.num_tokens} tokens, expected 1 to "
                f"{self.max_tokens - self.num_tokens} (the sequence holds {self.max_tokens})",
                param="max_tokens",
                code="context_length_exceeded",
            )
        self._num_pending = num_rows
        if rule is not None:
            self._rule = rule

    @torch.inference_mode()
    def commit(self, num_rows: int) -> None:
        """Accept the first ``num_rows`` pending rows; 0 drops all."""
        if not 0 <= num_rows <= self._num_pending:
            raise EngineError(
                f"commit: got {num_rows} rows, expected 0 to {self._num_pending}, the pending ones"
            )
        if num_rows and self._runs:
            run_index = (num_rows - 1) // self._rule.max_rows
            runs = [layer_runs[run_index] for layer_runs in self._runs]
            if run_index > 0:
                self._recurrent = torch.stack([run.start for run in runs])
            rows_of_run = num_rows - run_index * self._rule.max_rows
            self._rule.advance_(self._recurrent, stack_layers(runs, self._recurrent), rows_of_run)
        # A clone, so that a window of three rows does not keep a prompt's worth of rows alive.
        self._conv = [inputs[num_rows : num_rows + self._window].clone() for inputs in self._conv]
        self._runs = [[] for _ in self._runs]
        self.num_tokens += num_rows
        self._num_pending = 0

    def extend_conv(self, gdn_index: int, rows: Tensor) -> Tensor:
        """Append convolution inputs, (T, channels); they come back with the rows their windows reach back to
        in front."""
        before = self._conv[gdn_index]
        self._conv[gdn_index] = inputs = torch.cat((before, rows))
        return inputs if len(before) == self._window else inputs[-(len(rows) + self._window) :]

    def recurrent_start(self, gdn_index: int) -> Tensor:
        """Recurrent state before the next run of a layer."""
        runs = self._runs[gdn_index]
        if not runs:
            return self._recurrent[gdn_index]
        state = runs[-1].start.clone()
        self._rule.advance_(state, runs[-1], self._rule.max_rows)
        return state

    def extend_recurrent(self, gdn_index: int, run: Written) -> None:
        self._runs[gdn_index].append(run)
