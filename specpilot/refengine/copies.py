"""What requests may need beside an engine's target: low-precision copies and the certified head, made once each."""

from __future__ import annotations

import threading

from specpilot.engines.mechanisms import QWeights
from specpilot.errors import Unsupported
from specpilot.refengine.dense_config import DenseConfig
from specpilot.refengine.low_precision import LowPrecisionCopy, low_precision_copy
from specpilot.refengine.target import Target
from specpilot.verify.certified_head import CertifiedHead

__all__ = ["TargetCopies"]


class TargetCopies:
    """Made for the first request that asks, kept from then on. Any thread may ask."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._copies: dict[QWeights, LowPrecisionCopy] = {}
        self._head: CertifiedHead | None = None
        self._lock = threading.Lock()

    def q_copy(self, q_weights: QWeights) -> LowPrecisionCopy:
        """The copy of the Q pass."""
        with self._lock:
            if q_weights not in self._copies:
                self._copies[q_weights] = low_precision_copy(self._target, q_weights)
            return self._copies[q_weights]

    def certified_head(self) -> CertifiedHead:
        """The certified LM head.

        Raises
        ------
        Unsupported
            The target scales or caps its logits: the bound says nothing of what that makes equal.
        """
        config = self._target.config
        if isinstance(config, DenseConfig) and (config.logit_scale != 1 or config.logit_cap is not None):
            raise Unsupported(
                f"has_certified_head: got true, but {self._target.architecture} scales or caps its logits "
                f"(scale {config.logit_scale}, cap {config.logit_cap}), for which no bound is stated; leave it out"
            )
        with self._lock:
            if self._head is None:
                self._head = CertifiedHead(self._target._head.packed)
            return self._head

    @property
    def memory_bytes(self) -> int:
        """Bytes of all that has been made."""
        with self._lock:
            copies = sum(made.memory_bytes for made in self._copies.values())
            return copies + (0 if self._head is None else self._head.memory_bytes)
