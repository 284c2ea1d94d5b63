"""What a sequence leaves behind in every layer, and the rows of the last forward that are not decided yet."""

from __future__ import annotations

from collections.abc import Sequence

from specpilot.errors import EngineError, RequestError
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.dense_config import DenseConfig
from specpilot_kernels.chain_attention import KvMemory, KvPart, KvSegments
from specpilot_kernels.gdn_rows import GdnMemory, GdnPart, GdnSegments, GdnShape, gdn_commit

__all__ = ["Batch", "SequenceState", "commit_rows"]


class SequenceState:
    """State of one sequence. Not safe for use by two threads at once.

    A forward leaves its rows *pending*; :meth:`commit` accepts a prefix of them, and the state is then bit for bit as
    if only these rows had been run. No snapshot is taken: attention rows are cut off by a count, the recurrent state
    is rebuilt from what the rows wrote. Rows that are known to be kept are *decided* from the start and cost less.

    Attributes
    ----------
    num_tokens : int
        Committed tokens.
    max_tokens : int
        Most tokens, committed and pending together.
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

    def open_rows(self, num_rows: int, *, is_decided: bool = False) -> None:
        """Announce a forward of ``num_rows`` rows and make room for them.

        ``is_decided`` promises that all of them will be committed.
        """
        if self._num_pending:
            raise EngineError(
                f"{self._num_pending} rows are pending; commit a prefix of them (0 drops all) first"
            )
        end = self.num_tokens + num_rows
        if num_rows < 1 or end > self.max_tokens:
            raise RequestError(
                f"rows: got {num_rows} after {self.num_tokens} tokens, expected 1 to "
                f"{self.max_tokens - self.num_tokens} (the sequence holds {self.max_tokens})",
                param="max_tokens",
                code="context_length_exceeded",
            )
        self.kv.reserve(end)
        if self.gdn is not None and not is_decided:
            self.gdn.make_room(num_rows)
        self._num_pending, self._is_decided = num_rows, is_decided

    def commit(self, num_rows: int) -> None:
        """Accept the first ``num_rows`` pending rows; 0 drops all."""
        commit_rows([self], [num_rows])

    def kv_part(self) -> KvPart:
        """The pending rows, for the attention kernel."""
        return KvPart(self.kv, self._num_pending, self.num_tokens)

    def gdn_part(self) -> GdnPart:
        """The pending rows, for the GDN kernels; the sequence has such layers."""
        assert self.gdn is not None
        return GdnPart(self.gdn, self._num_pending, self._is_decided)

    def check_commit(self, num_rows: int) -> bool:
        """Whether the recurrent state must be rebuilt for it; EngineError if it cannot be done."""
        least = self._num_pending if self._is_decided else 0
        if not least <= num_rows <= self._num_pending:
            raise EngineError(
                f"commit: got {num_rows} rows, expected {least} to {self._num_pending}, the pending ones"
            )
        return self.gdn is not None and not self._is_decided and num_rows > 0

    def close_rows(self, num_rows: int) -> None:
        """The end of a commit: ``num_rows`` of the pending rows are kept."""
        self.num_tokens += num_rows
        self._num_pending = 0


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


def commit_rows(states: Sequence[SequenceState], num_kept: Sequence[int]) -> None:
    """:meth:`SequenceState.commit` for several sequences of one target at once."""
    rebuilt = [
        (state, kept) for state, kept in zip(states, num_kept, strict=True) if state.check_commit(kept)
    ]
    if rebuilt:
        segments = GdnSegments([state.gdn_part() for state, _ in rebuilt])
        gdn_commit(segments, [kept for _, kept in rebuilt])
    for state, kept in zip(states, num_kept, strict=True):
        state.close_rows(kept)


def _gdn_shape(config: TargetConfig) -> GdnShape:
    return GdnShape(
        config.gdn_num_key_heads,
        config.gdn_num_value_heads // config.gdn_num_key_heads,
        config.gdn_key_dim,
        config.gdn_value_dim,
        config.gdn_conv_size,
    )
