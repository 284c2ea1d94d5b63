"""Puts an engine together from model folders."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from specpilot.draft import Drafter, SuffixDrafter
from specpilot.draft.recording import StepRecorder
from specpilot.draft.with_suffix import SuffixAttached
from specpilot.engines.base import NumericMode
from specpilot.engines.mechanisms import BatchMechanisms
from specpilot.errors import ConfigError
from specpilot.models.drafters import load_drafter
from specpilot.models.folders import model_folders
from specpilot.models.gguf import load_gguf
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.scheduler import Limits
from specpilot.refengine.step_costs import measure_step_costs
from specpilot.refengine.target import Target, open_target
from specpilot.refengine.tokenizer import ChatTokenizer
from specpilot_kernels.cpu_jit import max_threads, set_num_threads
from specpilot_kernels.cpu_jit import num_threads as kernel_threads

__all__ = ["SWITCH_INTERVAL_S", "build_engine"]

SWITCH_INTERVAL_S = 3e-4
"""Set for the whole process, as the threads are."""


def build_engine(
    model: str | None = None,
    *,
    mode: NumericMode = "serve",
    drafter: str | None = None,
    max_running: int = 8,
    max_waiting: int = 64,
    max_kv_tokens: int | None = None,
    num_threads: int | None = None,
    batch: BatchMechanisms | None = None,
    recorder: StepRecorder | None = None,
    has_step_costs: bool = False,
) -> ReferenceEngine:
    """Load target, drafters and tokenizer.

    Parameters
    ----------
    model
        What :func:`specpilot.models.model_folders` takes, or a GGUF file; None is the bundled model.
    drafter
        Default drafter, ``"none"`` for plain decoding; None takes the first one found in the model's folder, or
        ``suffix``, which needs no weights and is there for every model. ``NAME+suffix`` is drafter NAME with the suffix
        drafter's chain attached to its trees.
    max_running, max_waiting, max_kv_tokens
        See :class:`specpilot.refengine.scheduler.Limits`. None: 4,096 tokens for every running request, and at least
        one context length in all.
    num_threads
        Threads of a matrix product, and steps that run at the same time when several requests do; None: the cores
        this process may use, at most 4 (the bundled matrices are too small for more). It is set for the whole process.
        torch itself gets one thread: its products are not used.
    batch, recorder
        See :class:`specpilot.refengine.engine.ReferenceEngine`.
    has_step_costs
        Measure what steps cost, a second or so, so that requests may ask for trees that stop by it.
    """
    torch.set_num_threads(1)
    # Readers of answers hold Python's lock for microseconds, but the engine's thread waits for it up to this long after
    # every kernel: 8 requests at once made 902 tokens/s with Python's 5 ms and 1,159 with 0.3 ms (measured, 2 cores).
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        set_num_threads(num_threads or min(4, max_threads()))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    drafter_folders: dict[str, Path] = {}
    is_file = model is not None and Path(model).is_file()
    if is_file:
        model_id = Path(str(model)).stem
    else:
        model_id, target_folder, drafter_folders = model_folders(model)
    if SuffixDrafter.name in drafter_folders:
        folder = drafter_folders[SuffixDrafter.name]
        raise ConfigError(
            f"{folder}: the name {SuffixDrafter.name!r} belongs to the built-in drafter; rename it"
        )
    attached = {f"{name}+{SuffixDrafter.name}": name for name in drafter_folders}
    names = (*drafter_folders, *attached, SuffixDrafter.name)
    if drafter not in (None, "none", *names):
        known = ", ".join(names)
        raise ConfigError(f"drafter: got {drafter!r}, expected 'none' or one of: {known}")
    target: Target
    if is_file:
        target, tokenizer = load_gguf(Path(str(model)), mode=mode)
    else:
        target, tokenizer = open_target(target_folder, mode=mode), ChatTokenizer.from_folder(target_folder)
    if tokenizer.vocab_size > target.config.vocab_size:
        raise ConfigError(
            f"{model_id}: tokenizer has {tokenizer.vocab_size} tokens, the model {target.config.vocab_size}; "
            "they do not fit"
        )
    drafters: dict[str, Drafter] = {
        name: load_drafter(folder, target=target) for name, folder in drafter_folders.items()
    }
    drafters.update({name: SuffixAttached(drafters[inner]) for name, inner in attached.items()})
    drafters[SuffixDrafter.name] = SuffixDrafter()
    default = None if drafter == "none" else drafter or names[0]
    if max_kv_tokens is None:
        max_kv_tokens = max(target.config.context_length, 4096 * max_running)
    limits = Limits(max_running, max_waiting, max_kv_tokens)
    return ReferenceEngine(
        model_id,
        target,
        drafters,
        tokenizer,
        default_drafter=default,
        limits=limits,
        num_lanes=kernel_threads(),
        batch=batch,
        recorder=recorder,
        step_costs=measure_step_costs(target, drafters) if has_step_costs else None,
    )
