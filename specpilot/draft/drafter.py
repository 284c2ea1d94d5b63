"""What every drafter offers the engine, and what it may borrow from the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specpilot.draft.lattice import Lattice

__all__ = ["BorrowedTarget", "Draft", "Drafter", "DrafterState", "TargetDimensions"]


@dataclass(frozen=True, eq=False)
class Draft:
    """One proposal: a chain, the law it was drawn from, and the lattice it was read off.

    Attributes
    ----------
    token_ids : Tensor, int64, (D,)
        The chain after the anchor; D = 0 when the drafter has nothing to propose.
    q_rows : Tensor or None, float64, (D, K)
        Law of each token over ``support_ids[t]``; None for a greedy chain.
    lattice : Lattice
    q_ids : Tensor or None, int64, (D, K)
        What ``q_rows`` stand over when it is not the lattice's candidates.
    survival : Tensor or None, float32, (D,)
        The drafter's estimate that drafts 0 .. t are all accepted; None from a drafter that makes none.
    """

    token_ids: Tensor
    q_rows: Tensor | None
    lattice: Lattice
    q_ids: Tensor | None = None
    survival: Tensor | None = None

    @property
    def support_ids(self) -> Tensor:
        """Token ids that ``q_rows`` stand over, int64, (D, K)."""
        return self.lattice.candidate_ids if self.q_ids is None else self.q_ids


class DrafterState(Protocol):
    """What a drafter remembers of one request. Used by one thread at a time; never shared between
    requests."""

    @property
    def num_tokens(self) -> int:
        """Committed tokens seen so far."""
        ...

    @property
    def memory_bytes(self) -> int: ...


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens; whatever it proposes, the target's verification decides.

    Attributes
    ----------
    name
        Name in requests, records and metrics.
    block_size
        Most rows of a chain verify step, root included: at most ``block_size - 1`` drafts are proposed unless
        asked otherwise.
    target_taps
        0-based target layers whose output (the residual stream after the layer, before any norm)
        ``append_context`` needs, in increasing order.
    """

    @property
    def name(self) -> str: ...

    @property
    def block_size(self) -> int: ...

    @property
    def max_positions(self) -> int:
        """Most positions of one draft, whatever is asked for."""
        ...

    @property
    def target_taps(self) -> tuple[int, ...]: ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of the drafter's own weights."""
        ...

    def new_state(self, max_tokens: int) -> DrafterState:
        """State for a request of at most ``max_tokens`` committed tokens."""
        ...

    def append_context(self, state: DrafterState, token_ids: Tensor, taps: Tensor) -> None:
        """Add committed tokens, in order, each once.

        Parameters
        ----------
        state
            Advanced in place by n tokens.
        token_ids : Tensor, int64, (n,)
        taps : Tensor, (n, len(target_taps) * H)
            Outputs of the tapped layers at these tokens, side by side in the order of ``target_taps``.
        """
        ...

    def propose(
        self,
        state: DrafterState,
        anchor_id: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        num_positions: int | None = None,
    ) -> Draft:
        """Draft what follows the anchor; the committed context in ``state`` is not changed.

        The draft has D tokens, 0 <= D <= ``num_positions``: fewer than asked where the drafter knows no more or
        expects more rows to cost more than they bring. With D = 0 (``token_ids`` (0,), a lattice of depth 0) the
        step verifies the root alone, which is plain decoding.

        Parameters
        ----------
        state
            Holds every committed token before the anchor.
        anchor_id
            Last committed token, the root; its own taps are not known yet.
        temperature
            0 walks the best chain; otherwise the chain is drawn with ``generator`` from a law that ``q_rows``
            states. A drafter that draws nothing states the law that is 1 on its tokens.
        num_positions
            Most drafted positions, 1 or more; ``block_size - 1`` when None.
        """
        ...


class TargetDimensions(Protocol):
    """The part of a target's configuration a drafter is checked against."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def num_layers(self) -> int: ...


class BorrowedTarget(Protocol):
    """What a drafter without embedding and head of its own uses of the target."""

    @property
    def config(self) -> TargetDimensions: ...

    @property
    def architecture(self) -> str:
        """Class name in the target's ``architectures``."""
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
        """Token ids (T,) int64 -> embeddings (T, H)."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden rows (R, H) -> logits (R, V) float32: the LM head alone, no norm before it."""
        ...
