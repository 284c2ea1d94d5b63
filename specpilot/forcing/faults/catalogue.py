"""The faults, and how each is put into the reference engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specpilot.engines.mechanisms import STOCK, Mechanisms
from specpilot.errors import ConfigError

__all__ = ["FAULTS", "ROUNDED", "TREE", "TWO_LEVELS", "Fault", "fault_named"]

TREE = Mechanisms("best_first", 16)
TWO_LEVELS = Mechanisms("best_first", 16, q_weights="int6")

_EVERY_SEVENTH = tuple(range(0, 4096, 7))


@dataclass(frozen=True)
class Fault:
    """One way to be wrong.

    Attributes
    ----------
    size
        How wrong; what it counts stands in ``what``.
    mechanisms
        How the faulty system speculates.
    bias, bias_after
        Added to logits from so many tokens of the answer on.
    temperature
        Instead of greedy decoding.
    hook
        What else is wrong: a chooser, a state or a weight (:mod:`.engine`).
    """

    name: str
    what: str
    size: float
    mechanisms: Mechanisms = STOCK
    bias: Mapping[int, float] = field(default_factory=dict)
    bias_after: int = 0
    temperature: float = 0.0
    hook: Literal[
        "", "one_too_many", "q_chain", "sibling", "window", "w12_exponent", "w12_mantissa", "bf16"
    ] = ""


def _seventh(size: float) -> Fault:
    return Fault(
        f"bias_every_7th_{size:g}",
        f"logit bias of {size:g} on every 7th id after 32 tokens",
        size,
        bias=dict.fromkeys(_EVERY_SEVENTH, size),
        bias_after=32,
    )


FAULTS = (
    *(_seventh(size) for size in (0.25, 0.5, 1.0, 2.0)),
    Fault("bias_one_id_2", "logit bias of 2 on one frequent id", 2.0, bias={228: 2.0}),
    Fault(
        "w12_exponent_bit",
        "one exponent bit of one W12 record: a weight 256 times as large",
        1,
        hook="w12_exponent",
    ),
    Fault("w12_mantissa_bit", "one mantissa bit of one W12 record", 1, hook="w12_mantissa"),
    Fault("accept_off_by_one", "one draft more than verified, every step", 1.0, hook="one_too_many"),
    Fault("unverified_1_in_100", "a draft emitted unverified in 1 of 100 steps", 0.01, hook="one_too_many"),
    Fault(
        "unverified_1_in_1000", "a draft emitted unverified in 1 of 1,000 steps", 0.001, hook="one_too_many"
    ),
    Fault("sibling_state", "GDN state of a sibling, every commit of a draft", 1, TREE, hook="sibling"),
    Fault("stale_conv", "short convolution not updated, every commit of a draft", 1, hook="window"),
    Fault("q_pass_token", "tokens of the INT6 Q pass emitted unverified", 1, TWO_LEVELS, hook="q_chain"),
    Fault("temperature_0.02", "temperature 0.02 instead of greedy", 0.02, temperature=0.02),
    Fault("temperature_0.2", "temperature 0.2 instead of greedy", 0.2, temperature=0.2),
)


ROUNDED = Fault(
    "bf16_head", "no fault: hidden rows and logits rounded to BF16, as a GPU's head does", 0, hook="bf16"
)
"""Lossless, and not equal: what near-ties cost. For false rejection."""


def fault_named(name: str) -> Fault:
    """ConfigError for a name that is none."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    known = ", ".join(fault.name for fault in FAULTS)
    raise ConfigError(f"fault: got {name!r}, expected one of: {known}")
