"""The reference engine over the bundled model with one fault in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specpilot.draft import Drafter
from specpilot.engines.base import GenerateRequest
from specpilot.forcing.faults.catalogue import Fault
from specpilot.forcing.faults.choosers import OneTooMany, UnverifiedChain
from specpilot.forcing.faults.states import SiblingState, StaleWindow
from specpilot.forcing.faults.weights import flip_bit
from specpilot.models.drafters import load_drafter
from specpilot.models.folders import model_folders
from specpilot.refengine.checkpoint import read_tensors, target_shapes
from specpilot.refengine.config import TargetConfig
from specpilot.refengine.engine import ReferenceEngine
from specpilot.refengine.model import TargetModel
from specpilot.refengine.scheduler import Limits
from specpilot.refengine.tokenizer import ChatTokenizer
from specpilot.sampling import TokenChooser
from specpilot_kernels.cpu_jit import num_threads

__all__ = ["FaultyEngine"]

_STATES = {"sibling": SiblingState, "window": StaleWindow}


def _rounded_logits(exact: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    return exact(hidden.bfloat16().float()).bfloat16().float()


class FaultyEngine(ReferenceEngine):
    """Judge mode, the bundled target and its DFlash2 drafter; differs from stock by the fault alone."""

    def __init__(self, fault: Fault, max_running: int = 8) -> None:
        name, target_folder, drafter_folders = model_folders(None)
        config = TargetConfig.from_json(target_folder)
        tensors = read_tensors(target_folder, target_shapes(config), torch.float32)
        if fault.hook.startswith("w12_"):
            tensors = flip_bit(tensors, fault.hook.removeprefix("w12_"))
        target = TargetModel(config, tensors, "judge")
        if fault.hook in _STATES:
            state: Any = _STATES[fault.hook]
            # A method of this one object: every other target keeps its own.
            vars(target)["new_state"] = functools.partial(state, config, period=int(fault.size))
        if fault.hook == "bf16":
            vars(target)["logits"] = functools.partial(_rounded_logits, target.logits)
        drafters: dict[str, Drafter] = {"dflash2": load_drafter(drafter_folders["dflash2"], target=target)}
        self._fault = fault
        super().__init__(
            f"{name}, {fault.what}",
            target,
            drafters,
            ChatTokenizer.from_folder(target_folder),
            default_drafter="dflash2",
            limits=Limits(max_running, 1024, 4096 * max_running),
            num_lanes=num_threads(),
        )

    def _new_chooser(self, request: GenerateRequest) -> TokenChooser:
        if self._fault.hook == "one_too_many":
            return OneTooMany(request, self._fault.size)
        if self._fault.hook == "q_chain":
            return UnverifiedChain(request)
        return super()._new_chooser(request)
