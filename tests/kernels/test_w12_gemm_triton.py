"""The W12 product in Triton: on a GPU compiled, elsewhere in Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed")

from specpilot_kernels.w12 import device_order, encode_w12
from specpilot_kernels.w12.cuda import NO_ESCAPE, encode_on_device
from specpilot_kernels.w12_gemm import w12_gemm_reference
from specpilot_kernels.w12_gemm.triton import MAX_ROWS, w12_gemm_triton
from tests.kernels.w12_cases import draw, one_hot

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SHAPES = [(1, 8), (33, 64), (130, 72)]


def on_device(tensor: Tensor) -> Tensor:
    return tensor.to(DEVICE)


@pytest.mark.parametrize("most_tiles_in_bands", [1, 600])
@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_hot_rows_give_the_weights_columns(
    shape: tuple[int, int], rows: int, most_tiles_in_bands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both orders of records: with a limit of 1 the last shape's two row tiles lie one after the other."""
    monkeypatch.setattr(device_order, "MOST_TILES_IN_BANDS", most_tiles_in_bands)
    weight = draw(shape, share_escaped=0.004)
    weight[:3, 0] = 0.0  # a list of three or more; of one row a single escape
    encoded = encode_on_device(on_device(weight))
    assert len(encoded.escapes)
    x, columns = one_hot(rows, shape[1])
    x[0], columns[0] = 0, 0
    x[0, 0] = 1
    found = w12_gemm_triton(on_device(x), encoded).cpu()
    assert torch.equal(found, weight[:, columns].T + 0.0)
    # The comparison sees one escape that is not put in its place.
    encoded.slots.fill_(NO_ESCAPE - 2**32)
    assert not torch.equal(w12_gemm_triton(on_device(x), encoded).cpu(), found)


@pytest.mark.parametrize("rows", [1, 9, 64])
def test_error_is_that_of_a_product_in_float32(rows: int) -> None:
    weight = draw((65, 136), 1, share_escaped=0.002)
    x = torch.randn(rows, 136, generator=torch.Generator().manual_seed(rows)).bfloat16()
    found = w12_gemm_triton(on_device(x), encode_on_device(on_device(weight))).cpu()
    expected = w12_gemm_reference(x, encode_w12(weight))
    bound = ((x.float() @ weight.float().T).bfloat16() - expected).norm()
    assert (found - expected).norm() <= 1.05 * bound


def test_wrong_arguments_are_refused() -> None:
    encoded = encode_on_device(draw((33, 64)))
    with pytest.raises(
        ValueError, match=r"got torch.bfloat16 \(65, 64\).*expected contiguous bfloat16 \(1 to 64, 64\)"
    ):
        w12_gemm_triton(torch.zeros(MAX_ROWS + 1, 64, dtype=torch.bfloat16), encoded)
