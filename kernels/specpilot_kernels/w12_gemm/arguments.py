"""What is asked of the operands of a product, and of its launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["aligned", "check_bias", "check_launch", "check_rows", "pointers"]


def check_rows(x: Tensor, shape: tuple[int, int], device: torch.device, max_rows: int) -> None:
    """ValueError unless x is contiguous bfloat16 (1 to max_rows, K) on device; shape is (N, K), K a multiple of 8."""
    num_inputs = shape[1]
    if (
        x.dtype != torch.bfloat16
        or x.ndim != 2
        or not 1 <= x.shape[0] <= max_rows
        or x.shape[1] != num_inputs
        or num_inputs % 8
        or not x.is_contiguous()
        or x.device != device
    ):
        raise ValueError(
            f"x: got {x.dtype} {tuple(x.shape)} strides {x.stride()} on {x.device}, expected contiguous bfloat16 (1 to "
            f"{max_rows}, {num_inputs}) on {device}, with columns a multiple of 8"
        )


def check_bias(bias: Tensor | None, shape: tuple[int, int], device: torch.device) -> None:
    """ValueError unless there is none, or it is contiguous bfloat16 (N,) on device; shape is (N, K)."""
    if bias is None:
        return
    if (
        bias.dtype != torch.bfloat16
        or bias.shape != shape[:1]
        or not bias.is_contiguous()
        or bias.device != device
    ):
        raise ValueError(
            f"bias: got {bias.dtype} {tuple(bias.shape)} strides {bias.stride()} on {bias.device}, expected contiguous "
            f"bfloat16 ({shape[0]},) on {device}"
        )


def aligned(x: Tensor) -> Tensor:
    """x, or a copy where it does not begin at a multiple of 16 bytes, which the kernels copy at a time.

    For use inside an operator: a tensor that is traced has no address.
    """
    return x if x.data_ptr() % 16 == 0 else x.clone()


def pointers(tensors: Sequence[Tensor | None]) -> list[int | None]:
    """As the C interface takes them; a tensor that is none is a null pointer."""
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def check_launch(code: int, name: str, x: Tensor, num_columns: int) -> None:
    """RuntimeError for a CUDA error ``code``, what the compiled function returned; 0 is none."""
    if code:
        raise RuntimeError(
            f"{name}: CUDA error {code} for x {tuple(x.shape)} and {num_columns} columns on "
            f"{torch.cuda.get_device_name(x.device)}"
        )
