"""Which mechanism which engine of this build carries, with which options; the one place that says so.

A mechanism that an engine does not carry stays in a profile and is shown as not available with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from specpilot.errors import ConfigError
from specpilot.profiles.records import Scalar
from specpilot.profiles.schema import EngineKind, MechanismChoice

__all__ = ["CATALOGUE", "MechanismKind", "arguments_of", "check_options", "why_not_available"]

_NO_PLUGIN: Final = "the SGLang plugin that carries it is not part of this build"
_NO_FLAG: Final = "the reference engine computes it in the library, but `specpilot serve` has no flag for it"
_NO_CODE: Final = "no engine of this build computes it"


@dataclass(frozen=True)
class MechanismKind:
    """A mechanism of the paper.

    Attributes
    ----------
    options
        Option name -> its types or choices.
    reference_flags
        Option name -> flag of ``specpilot serve``; "" is a flag the mechanism as such needs.
    missing
        Engine -> why it does not carry the mechanism; an engine that is not named carries it.
    """

    title: str
    section: str
    options: Mapping[str, type | tuple[Scalar, ...]] = field(default_factory=dict)
    reference_flags: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[EngineKind, str] = field(default_factory=dict)


def _lacking(reference: str) -> Mapping[EngineKind, str]:
    return {"reference": reference, "sglang": _NO_PLUGIN}


_SGLANG_LACKS: Final[Mapping[EngineKind, str]] = {"sglang": _NO_PLUGIN}

CATALOGUE: Final[Mapping[str, MechanismKind]] = {
    "draft-tree": MechanismKind(
        "trees built on the drafter's lattice",
        "4.2",
        {
            "builder": ("best_first", "ddtree", "eagle2", "sequoia"),
            "nodes": int,
            "positions": int,
            "cost_aware": bool,
            "scores": ("selector", "markov", "calibrated"),
        },
        {"builder": "builder", "nodes": "nodes", "positions": "positions", "cost_aware": "cost-aware"},
        _SGLANG_LACKS,
    ),
    "gdn-tree-verify": MechanismKind(
        "Gated DeltaNet rows of a tree without a snapshot per node",
        "4.2",
        {"form": ("path", "wy")},
        {"form": "gdn-form"},
        _SGLANG_LACKS,
    ),
    "shared-node-budget": MechanismKind(
        "one node budget for all requests of a step",
        "4.4",
        {"nodes": int},
        {"nodes": "node-budget"},
        _SGLANG_LACKS,
    ),
    "drafter-blocks": MechanismKind(
        "16, 12 or 8 drafted rows a request", "4.4", {}, {"": "drafter-blocks"}, _SGLANG_LACKS
    ),
    "prompt-admission": MechanismKind(
        "prompt rows in the verify step",
        "4.4",
        {"whole_prompt_rows": int, "segment_rows": int},
        {"whole_prompt_rows": "whole-prompt-rows", "segment_rows": "prompt-rows"},
        _SGLANG_LACKS,
    ),
    "w12-weights": MechanismKind(
        "lossless 12-bit weights of the target",
        "4.1",
        {"head": bool, "mlp_only": bool},
        missing=_lacking(_NO_FLAG),
    ),
    "certified-head": MechanismKind(
        "LM head by an INT8 screen with exact rescoring", "4.1", {}, {"": "certified-head"}, _SGLANG_LACKS
    ),
    "two-level-verification": MechanismKind(
        "a low-precision pass, a second draft, one exact pass over both trees",
        "4.3",
        {"weights": ("w12_view", "int8", "int6", "int6_int8"), "gated": bool},
        {"weights": "q-weights", "gated": "q-gate"},
        _SGLANG_LACKS,
    ),
    "drafter-weights": MechanismKind(
        "low-precision weights of the drafter", "B", {"format": ("fp8", "int4")}, missing=_lacking(_NO_CODE)
    ),
    "split-kv-attention": MechanismKind(
        "tree attention with each key sequence split over thread blocks", "5.3", missing=_lacking(_NO_CODE)
    ),
    "kernel-fusion": MechanismKind(
        "fused and pre-staged kernels of the verify step",
        "B",
        {"l2_prefetch": bool},
        missing=_lacking(_NO_CODE),
    ),
    "ngram-chain": MechanismKind(
        "an n-gram chain attached to the EAGLE tree", "5.3", missing=_lacking(_NO_CODE)
    ),
}


def check_options(choice: MechanismChoice) -> None:
    """Refuse what the catalogue does not know.

    Raises
    ------
    ConfigError
        Unknown mechanism or option, or a value of the wrong type.
    """
    kind = CATALOGUE.get(choice.id)
    if kind is None:
        raise ConfigError(f"mechanism: got {choice.id!r}, expected one of: {', '.join(CATALOGUE)}")
    for name, value in choice.options.items():
        allowed = kind.options.get(name)
        if allowed is None:
            raise ConfigError(
                f"mechanism {choice.id}: got unknown option {name!r}, expected some of: {', '.join(kind.options)}"
            )
        is_right = value in allowed if isinstance(allowed, tuple) else type(value) is allowed
        if not is_right:
            raise ConfigError(f"mechanism {choice.id}: {name}: got {value!r}, expected {allowed}")


def why_not_available(choice: MechanismChoice, engine: EngineKind) -> str | None:
    """Why this engine cannot run the mechanism with these options; None when it can."""
    kind = CATALOGUE[choice.id]
    if engine in kind.missing:
        return kind.missing[engine]
    without_flag = [name for name in choice.options if name not in kind.reference_flags]
    if engine == "reference" and without_flag:
        return f"`specpilot serve` has no flag for the option {without_flag[0]!r}"
    return None


def arguments_of(choice: MechanismChoice) -> dict[str, Scalar]:
    """Flags of ``specpilot serve`` for an available mechanism."""
    flags = CATALOGUE[choice.id].reference_flags
    own: dict[str, Scalar] = {flags[""]: True} if "" in flags else {}
    return own | {flags[name]: value for name, value in choice.options.items()}
