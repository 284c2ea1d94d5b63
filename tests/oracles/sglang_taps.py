"""Oracle: which hidden states SGLang 0.5.20 hands to a DFlash2 drafter, transcribed from its target classes.

Sources in the wheel: srt/models/qwen3_5.py (layers are marked; a marked layer's call appends),
srt/layers/communicator.py (what is appended is the residual stream the layer receives, before its norm),
srt/models/qwen3_5_text.py and srt/models/qwen3_vl.py (how checkpoint ids become marks).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Layer = Callable[[Tensor], Tensor]


class _Body:
    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.marked: set[int] = set()

    def set_dflash_layers_to_capture(self, layers_to_capture: list[int]) -> None:
        for layer_id in layers_to_capture:
            self.layers[layer_id]  # an id past the end is an IndexError, as in the wheel
            self.marked.add(layer_id)

    def run(self, stream: Tensor) -> list[Tensor]:
        captured = []
        for index, layer in enumerate(self.layers):
            if index in self.marked:
                captured.append(stream)
            stream = layer(stream)
        return captured


class _Qwen3_5ForCausalLM:
    """Two methods of one name stand in this class; the second one is what an instance has."""

    def __init__(self, body: _Body) -> None:
        self.model = body

    def set_dflash_layers_to_capture(self, layer_ids: list[int]) -> None:
        self.model.set_dflash_layers_to_capture([layer_id + 1 for layer_id in layer_ids])

    def set_dflash_layers_to_capture(self, layers_to_capture: list[int]) -> None:  # type: ignore[no-redef]  # noqa: F811
        self.model.set_dflash_layers_to_capture(layers_to_capture)


class _Qwen3_5ForConditionalGeneration:
    def __init__(self, body: _Body) -> None:
        self.model = body

    def set_dflash_layers_to_capture(self, layer_ids: list[int]) -> None:
        self.model.set_dflash_layers_to_capture([layer_id + 1 for layer_id in layer_ids])


def captured_states(
    architecture: str, layer_ids: list[int], layers: list[Layer], stream: Tensor
) -> list[Tensor]:
    """What reaches the drafter for a checkpoint's ``target_layer_ids``, in the order it is concatenated."""
    body = _Body(layers)
    target: Any = {
        "Qwen3_5ForCausalLM": _Qwen3_5ForCausalLM,
        "Qwen3_5ForConditionalGeneration": _Qwen3_5ForConditionalGeneration,
    }[architecture](body)
    target.set_dflash_layers_to_capture(layer_ids)
    return body.run(stream)
