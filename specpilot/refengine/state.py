"""What a sequence leaves behind in every layer, and the rows of the last forward that are not decided yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specpilot.errors import EngineError, RequestError
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.dense_config import DenseConfig
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments
from specpilot_kernels.gdn_rows import GdnMemory, GdnPart, GdnSegments, GdnShape, gdn_commit
from specpilot_kernels.row_tree import RowTree, is_path

__all__ = ["Batch", "SequenceState", "commit_rows"]


class SequenceState:
    """State of one sequence. Not safe for use by two threads at once.

    A forward leaves its rows *pending*; :meth:`commit` accepts a prefix of them, and the state is then bit for bit as
    if only these rows had been run. No snapshot is taken: attention rows are cut off by a count, the recurrent state
    is rebuilt from what the rows wrote. Rows that are known to be kept are *decided* from the start and cost less.

    Rows may form a tree. Each then sees the committed tokens and its ancestors, stands at ``num_tokens`` plus its depth
    and gets, bit for bit, what its root path gives as a chain; a commit accepts a path from the root on.

    Attributes
    ----------
    num_tokens : int
        Committed tokens.
    max_tokens : int
        Most tokens, committed and pending together; of a tree its longest path counts.
    kv, gdn
        Memory of the attention layers, and of the Gated DeltaNet layers where there are any.
    """

    def __init__(self, config: TargetConfig | DenseConfig, max_tokens: int) -> None:
        if not 1 <= max_tokens <= config.context_length:
            raise RequestError(
                f"max_tokens: got {max_tokens}, expected 1 to {config.context_length}, the context length",
                param="max_tokens",
                code="context_length_exceeded",
            )
        self.num_tokens, self.max_tokens = 0, max_tokens
        self._num_pending, self._is_decided = 0, False
        self._tree: RowTree | None = None
        num_gdn = config.layer_types.count("linear_attention") if isinstance(config, TargetConfig) else 0
        self.kv = KvMemory(config.num_layers - num_gdn, config.num_kv_heads, config.head_dim, max_tokens)
        self.gdn = None
        if isinstance(config, TargetConfig) and num_gdn:
            self.gdn = GdnMemory(num_gdn, _gdn_shape(config))

    @property
    def num_pending(self) -> int:
        """Rows of the last forward that wait for :meth:`commit`."""
        return self._num_pending

    @property
    def memory_bytes(self) -> int:
        """Bytes held for committed tokens, the room beside them and pending rows."""
        return self.kv.memory_bytes + (0 if self.gdn is None else self.gdn.memory_bytes)

    def open_rows(
        self, num_rows: int, *, is_decided: bool = False, parents: NDArray[np.int64] | None = None
    ) -> None:
        """Announce a forward of ``num_rows`` rows and make room for them.

        Parameters
        ----------
        num_rows : int
        is_decided : bool
            Promises that all of them will be committed. Not for a tree.
        parents : array, int64, (num_rows,), optional
            Makes the rows a tree: ``parents[0]`` is -1, the root, and ``0 <= parents[i] < i``. Left out, they are a
            chain.

        Raises
        ------
        EngineError
            Rows are pending, or ``parents`` is not as stated.
        RequestError
            The rows reach past ``max_tokens``.
        """
        if self._num_pending:
            raise EngineError(
                f"{self._num_pending} rows are pending; commit a prefix of them (0 drops all) first"
            )
        tree = None if parents is None else _tree_of(parents, num_rows, is_decided)
        height = num_rows if tree is None else tree.height
        if num_rows < 1 or self.num_tokens + height > self.max_tokens:
            raise RequestError(
                f"rows: got {height} after {self.num_tokens} tokens, expected 1 to "
                f"{self.max_tokens - self.num_tokens} (the sequence holds {self.max_tokens})",
                param="max_tokens",
                code="context_length_exceeded",
            )
        self.kv.reserve(self.num_tokens + num_rows)
        if self.gdn is not None and not is_decided:
            self.gdn.make_room(num_rows)
        self._num_pending, self._is_decided, self._tree = num_rows, is_decided, tree

    def commit(self, kept: int | NDArray[np.int64]) -> None:
        """Accept pending rows and drop the others.

        Parameters
        ----------
        kept : int or array, int64
            So many rows from the first on, 0 drops all; or the numbers of the rows, from 0, the root, on, each the
            parent of the next.

        Raises
        ------
        EngineError
            The rows are not pending, are no path, or are not all of decided ones.
        """
        commit_rows([self], [kept])

    def kv_part(self) -> KvPart:
        """The pending rows, for the attention kernel."""
        return KvPart(self.kv, self._num_pending, self.num_tokens, self._tree)

    def gdn_part(self) -> GdnPart:
        """The pending rows, for the GDN kernels; the sequence has such layers."""
        assert self.gdn is not None
        return GdnPart(self.gdn, self._num_pending, self._is_decided, self._tree)

    def path_of(self, kept: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the pending rows that a commit keeps; EngineError if it cannot be done."""
        least = self._num_pending if self._is_decided else 0
        if not isinstance(kept, np.ndarray):
            if not least <= kept <= self._num_pending:
                raise EngineError(
                    f"commit: got {kept} rows, expected {least} to {self._num_pending}, the pending ones"
                )
            kept = np.arange(kept)
        if len(kept) < least or not is_path(kept, self._num_pending, self._tree):
            shape = "a chain" if self._tree is None else f"a tree of parents {self._tree.parents.tolist()}"
            raise EngineError(
                f"commit: got rows {kept.tolist()} ({kept.dtype}) of {self._num_pending} pending ones, {shape}; "
                f"expected int64 numbers from 0, the root, on, each the parent of the next, at least {least}"
            )
        return kept

    def is_rebuilt(self, path: NDArray[np.int64]) -> bool:
        """Whether the recurrent state must be rebuilt for a commit."""
        return self.gdn is not None and not self._is_decided and len(path) > 0

    def close_rows(self, path: NDArray[np.int64]) -> None:
        """The end of a commit: keys and values of the kept rows move to their places."""
        if self._tree is not None:
            self.kv.keep_path(self.num_tokens, path)
        self.num_tokens += len(path)
        self._num_pending, self._tree = 0, None


class Batch:
    """Pending rows of several sequences, in one order for all layers.

    Attributes
    ----------
    num_rows : int
    kv : KvSegments
    gdn : GdnSegments or None
        None for a target without Gated DeltaNet layers.
    """

    def __init__(self, states: Sequence[SequenceState]) -> None:
        self.kv = KvSegments([state.kv_part() for state in states])
        self.gdn = None if states[0].gdn is None else GdnSegments([state.gdn_part() for state in states])
        self.num_rows = self.kv.num_rows


def commit_rows(states: Sequence[SequenceState], kept: Sequence[int | NDArray[np.int64]]) -> None:
    """:meth:`SequenceState.commit` for several sequences of one target at once; EngineError before anything is done."""
    paths = [state.path_of(rows) for state, rows in zip(states, kept, strict=True)]
    rebuilt = [(state, path) for state, path in zip(states, paths, strict=True) if state.is_rebuilt(path)]
    if rebuilt:
        segments = GdnSegments([state.gdn_part() for state, _ in rebuilt])
        gdn_commit(segments, [path for _, path in rebuilt])
    for state, path in zip(states, paths, strict=True):
        state.close_rows(path)


def _tree_of(parents: NDArray[np.int64], num_rows: int, is_decided: bool) -> RowTree:
    if parents.shape != (num_rows,) or is_decided:
        raise EngineError(
            f"parents: got {parents.shape} for {num_rows} rows, decided: {is_decided}; expected one a row, of rows "
            "that are not decided"
        )
    try:
        return RowTree(parents)
    except ValueError as error:
        raise EngineError(str(error)) from error


def _gdn_shape(config: TargetConfig) -> GdnShape:
    return GdnShape(
        config.gdn_num_key_heads,
        config.gdn_num_value_heads // config.gdn_num_key_heads,
        config.gdn_key_dim,
        config.gdn_value_dim,
        config.gdn_conv_size,
    )
