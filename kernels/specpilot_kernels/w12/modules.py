"""Linear layers with W12 weights, in place of those of any torch model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from specpilot_kernels.w12.cuda import DeviceW12, encode_on_device, to_device
from specpilot_kernels.w12.device_decode import decode_rows
from specpilot_kernels.w12_gemm.ops import MAX_ROWS, w12_gemm

__all__ = ["ConversionReport", "Selection", "W12Linear", "convert_"]

_PARTS = ("records", "bases", "slots", "escapes")
_MOST_ROWS_IN_PASSES = 128
"""Up to here products of 64 rows each are faster than decoding, on an H200 by 1.2 to 1.6 times
(``kernels/bench/bench_w12_many_rows.py``); from 160 to 256 on it is the other way."""
_TILE_ROWS = 8192
"""Rows of W decoded at once where x has many rows: 64 to 280 MB for usual K."""
_MLP_NAMES = frozenset({"mlp", "feed_forward", "ffn"})

Selection = Literal["all", "mlp"] | Callable[[str, nn.Linear], bool]


class W12Linear(nn.Module):
    """``y = x W^T + bias`` with exactly the BF16 weights of the layer it is made of.

    On a CUDA device up to 128 rows of x go through :func:`specpilot_kernels.w12_gemm.w12_gemm`, 64 at a time; more
    rows, and every other device, decode tiles of W and multiply those. For inference: the weight has no gradient, and
    nothing passes one on through the product on 12 bits.

    The encoded weight stands in buffers, so ``to``, ``state_dict`` and graphs work. A state dict with another number of
    escapes takes memory of its own, which graphs captured before do not see.

    Parameters
    ----------
    linear
        bfloat16. Its bias is kept, its weight is not.
    """

    records: Tensor
    bases: Tensor
    slots: Tensor
    escapes: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        encoded = _encode(linear.weight.detach())
        for name in _PARTS:
            self.register_buffer(name, getattr(encoded, name))
        self.bias = linear.bias

    @property
    def encoded(self) -> DeviceW12:
        parts = (getattr(self, name) for name in _PARTS)
        return DeviceW12((self.out_features, self.in_features), *parts)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        error_msgs: list[str] = rest[-1]
        if prefix + "record_starts" in state_dict:
            error_msgs.append(
                f"{prefix}records: got the form of an earlier version, expected parts {_PARTS}; make it anew from BF16"
            )
            return
        escapes = state_dict.get(prefix + "escapes")
        if isinstance(escapes, Tensor) and escapes.ndim == 1 and len(escapes) != len(self.escapes):
            self.escapes = self.escapes.new_empty(len(escapes))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """x : bfloat16, (..., in_features) -> (..., out_features)."""
        rows = x.reshape(-1, self.in_features)
        if x.is_cuda and 0 < len(rows) <= _MOST_ROWS_IN_PASSES and self.in_features % 8 == 0:
            passes = [w12_gemm(some, self.encoded, self.bias) for some in rows.contiguous().split(MAX_ROWS)]
            y = passes[0] if len(passes) == 1 else torch.cat(passes)
        else:
            weight, step = self.encoded, _TILE_ROWS
            tiles = []
            for first in range(0, self.out_features, step):
                tile = decode_rows(weight, first, min(step, self.out_features - first))
                bias = None if self.bias is None else self.bias[first : first + step]
                tiles.append(nn.functional.linear(rows, tile, bias))
            y = tiles[0] if len(tiles) == 1 else torch.cat(tiles, 1)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


@dataclass
class ConversionReport:
    """What :func:`convert_` did.

    Attributes
    ----------
    converted : list of str
        Names of the layers swapped.
    skipped : dict of str to str
        Names of linear layers left as they are, and why.
    untied : list of str
        Layers that shared their weight with another module, which keeps its BF16 copy.
    bytes_before, bytes_after : int
        Parameters and buffers of the model, shared ones once.
    """

    converted: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    untied: list[str] = field(default_factory=list)
    bytes_before: int = 0
    bytes_after: int = 0


@torch.no_grad()
def convert_(model: nn.Module, select: Selection = "all", *, min_output_rows: int = 128) -> ConversionReport:
    """Swap the linear layers of a model for :class:`W12Linear`, in place and one after the other.

    A layer whose weight another module uses too (a head tied to the embedding) gets a W12 copy of its own, and the
    other module keeps the BF16 table.

    Parameters
    ----------
    model
        Its bfloat16 ``nn.Linear`` layers are candidates; subclasses, which may do more, are not.
    select
        "all"; "mlp", layers below a module named mlp, feed_forward or ffn; or a function of name and layer.
    min_output_rows
        Layers with fewer outputs stay as they are.

    Raises
    ------
    ValueError
        ``select`` is none of these, or no layer was converted.
    """
    if not callable(select) and select not in ("all", "mlp"):
        raise ValueError(f"select: got {select!r}, expected 'all', 'mlp' or a function of name and layer")
    report = ConversionReport(bytes_before=_memory_bytes(model))
    users: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    layers = [(name, layer) for name, layer in model.named_modules() if type(layer) is nn.Linear and name]
    for name, layer in layers:
        reason = _why_not(name, layer, select, min_output_rows)
        if reason:
            report.skipped[name] = reason
            continue
        if users[id(layer.weight)] > 1:
            report.untied.append(name)
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, W12Linear(layer))
        report.converted.append(name)
    if not report.converted:
        raise ValueError(f"model: no linear layer was converted; left alone: {report.skipped}")
    report.bytes_after = _memory_bytes(model)
    return report


def _encode(weight: Tensor) -> DeviceW12:
    if weight.device.type != "cpu":
        return encode_on_device(weight)
    from specpilot_kernels.w12.ops import encode_w12  # compiles the codec

    return to_device(encode_w12(weight), "cpu")


def _why_not(name: str, layer: nn.Linear, select: Selection, min_output_rows: int) -> str:
    if layer.weight.dtype != torch.bfloat16:
        return f"{layer.weight.dtype}, not bfloat16"
    if layer.bias is not None and layer.bias.dtype != torch.bfloat16:
        return f"a bias of {layer.bias.dtype}, not bfloat16"
    if layer.out_features < min_output_rows:
        return f"{layer.out_features} outputs, fewer than {min_output_rows}"
    is_selected = (
        select(name, layer) if callable(select) else select == "all" or _MLP_NAMES & {*name.split(".")}
    )
    return "" if is_selected else "not selected"


def _memory_bytes(model: nn.Module) -> int:
    """Every storage once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (*model.parameters(), *model.buffers())
    }
    return sum(storages.values())
