"""INT8 and INT6 records and the 8-bit view: layout, the kernels' own decode source on the host, products on a GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.q_gemm import (
    MAX_ROWS,
    DeviceQ,
    q_gemm,
    q_gemm_reference,
    quantise_on_device,
    w12_view_gemm,
    w12_view_gemm_reference,
)
from specpilot_kernels.q_gemm.layout import pack_integers, unpack_integers
from specpilot_kernels.q_gemm.ops import plan_splits
from specpilot_kernels.q_weights import NUM_BITS, NumBits
from specpilot_kernels.q_weights.reference import LARGEST, quantise_reference
from specpilot_kernels.w12 import encode_w12, view_w12
from specpilot_kernels.w12.cuda import encode_on_device, to_device
from specpilot_kernels.w12.layout import slot_of
from tests.kernels.host_build import build_for_host
from tests.kernels.w12_cases import FEW_AND_MANY, draw, needs_gpu, one_hot, weight_through

SHAPES = [(1, 8), (63, 64), (129, 200)]
PLACES = np.array([slot_of(n, k) for n in range(128) for k in range(64)])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_for_host("q_decode_host.cpp", tmp_path_factory.mktemp("host"))


def run(function: ctypes._NamedFuncPointer, *arrays: np.ndarray) -> NDArray[np.uint16]:
    """BF16 bits of a record, (128, 64)."""
    out = np.empty(8192, np.uint16)
    contiguous = [np.ascontiguousarray(array) for array in arrays]
    function(*(ctypes.c_void_p(array.ctypes.data) for array in (*contiguous, out)))
    return out[PLACES].reshape(128, 64)


def integers_of(shape: tuple[int, int], num_bits: NumBits) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_bits)
    return torch.randint(-LARGEST[num_bits], LARGEST[num_bits] + 1, shape, generator=generator).to(torch.int8)


@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_integers_come_back(shape: tuple[int, int], num_bits: NumBits) -> None:
    integers = integers_of(shape, num_bits)
    records = pack_integers(integers, num_bits)
    tiles = -(-shape[0] // 128) * -(-shape[1] // 64)
    assert records.numel() * 4 == tiles * 128 * 64 * num_bits // 8
    weight = DeviceQ(shape, num_bits, records, torch.ones(shape[0]))
    assert torch.equal(unpack_integers(weight), integers)
    weight.records[0, 0] ^= 1
    assert not torch.equal(unpack_integers(weight), integers)


@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_quantising_gives_the_references_numbers(shape: tuple[int, int], num_bits: NumBits) -> None:
    weight = draw(shape, 2)
    weight[0] = 0.0
    found = quantise_on_device(weight, num_bits)
    integers, scales = quantise_reference(weight.float().numpy(), num_bits)
    assert (unpack_integers(found).numpy() == integers).all() and (found.scales.numpy() == scales).all()


def test_wrong_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="num_bits: got 4"):
        quantise_on_device(draw((8, 8)), 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got torch\.float16"):
        quantise_on_device(draw((8, 8)).half(), 8)
    with pytest.raises(ValueError, match="not finite"):
        quantise_on_device(draw((8, 8)) / 0, 8)


@pytest.mark.parametrize("num_bits", NUM_BITS)
def test_the_kernels_decode_gives_the_integers(host: ctypes.CDLL, num_bits: NumBits) -> None:
    """Every integer stands in every register and half: 8,192 places, at most 255 integers."""
    integers = integers_of((128, 64), num_bits)
    function = host.decode_int8 if num_bits == 8 else host.decode_int6
    bits = run(function, pack_integers(integers, num_bits).numpy().view(np.uint32))
    found = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.float(), integers.float())
    assert len(integers.unique()) == 2 * LARGEST[num_bits] + 1


def test_the_kernels_view_is_the_codecs(host: ctypes.CDLL) -> None:
    """All numbers of the window of a row, and rows with base 0, whose zeros and denormals have no midpoint."""
    codes = torch.arange(8192, dtype=torch.int32).view(128, 64) % 2048
    bits = (codes & 0x7FF) | (codes & 1) << 15
    bits[::2] += 112 << 7
    encoded = encode_w12(bits.to(torch.int16).view(torch.bfloat16))
    assert (encoded.bases == 0).any() and (encoded.bases > 0).any() and not len(encoded.escapes)
    found = run(host.decode_view, encoded.records[0, 0], encoded.bases)
    expected = view_w12(encoded).view(torch.int16).numpy().view(np.uint16)
    assert (found == expected).all()


def test_reference_products_are_those_of_the_copies() -> None:
    weight, x = draw((130, 72), 3), torch.randn(3, 72, generator=torch.Generator().manual_seed(0)).bfloat16()
    copy = quantise_on_device(weight, 6)
    expected = x.double() @ (unpack_integers(copy).double() * copy.scales.double()[:, None]).T
    assert torch.allclose(q_gemm_reference(x, copy), expected, rtol=1e-12, atol=0)
    assert torch.equal(
        w12_view_gemm_reference(x, encode_w12(weight)), x.double() @ view_w12(encode_w12(weight)).double().T
    )


def test_splits_do_not_exceed_columns_and_fill_a_gpu() -> None:
    assert [plan_splits(shape) for shape in ((5120, 6144), (16384, 5120), (248320, 5120), (128, 64))] == [
        7,
        2,
        1,
        1,
    ]


def test_a_cpu_is_refused_and_a_fake_tensor_is_not() -> None:
    weight, x = draw((130, 72)), torch.zeros(2, 72, dtype=torch.bfloat16)
    copy, encoded = quantise_on_device(weight, 8), encode_on_device(weight)
    for call in (lambda: q_gemm(x, copy), lambda: w12_view_gemm(x, encoded)):
        with pytest.raises(RuntimeError, match="cpu is no CUDA device"):
            call()
    fake = DeviceQ(copy.shape, 8, copy.records.to("meta"), copy.scales.to("meta"))
    assert q_gemm(x.to("meta"), fake).shape == (2, 130)
    with pytest.raises(ValueError, match=r"expected contiguous bfloat16 \(1 to 32, 72\)"):
        q_gemm(torch.zeros(MAX_ROWS + 1, 72, dtype=torch.bfloat16), copy)


def _product_of(copy: DeviceQ, x: Tensor) -> Tensor:
    return q_gemm(x, copy)


@needs_gpu
@pytest.mark.parametrize("rows", [1, 8, 9, 17, 32])
@pytest.mark.parametrize("shape", [*SHAPES, (300, 136), (5120, 640), (14336, 1024)])
def test_products_on_a_gpu(shape: tuple[int, int], rows: int) -> None:
    weight = draw(shape, 4)
    weight[0] = 0.0
    x, columns = one_hot(rows, shape[1])
    several = torch.randn(rows, shape[1], generator=torch.Generator().manual_seed(rows)).bfloat16()
    encoded = encode_w12(weight)
    copies = [quantise_on_device(weight.cuda(), num_bits) for num_bits in NUM_BITS]
    dense = [unpack_integers(copy).float().cpu() * copy.scales.cpu()[:, None] for copy in copies]
    on_device = to_device(encoded, "cuda")
    cases: list[tuple[Callable[[Tensor], Tensor], Tensor]] = [
        (lambda x: w12_view_gemm(x, on_device), view_w12(encoded).float())
    ]
    cases += [(functools.partial(_product_of, copy), each) for copy, each in zip(copies, dense, strict=True)]
    for call, expected in cases:
        assert torch.equal(call(x.cuda()).cpu() + 0.0, expected[:, columns].T.bfloat16() + 0.0)
        exact = several.double() @ expected.double().T
        rounded = (several.float() @ expected.T).bfloat16()
        found = call(several.cuda()).cpu()
        assert (found - exact).norm() <= 1.05 * (rounded - exact).norm() + 1e-6
        assert torch.equal(call(several[:1].cuda()).cpu(), found[:1])


@needs_gpu
@pytest.mark.parametrize("share_escaped", FEW_AND_MANY)
@pytest.mark.parametrize("shape", [(300, 136), (17000, 136)])
def test_every_number_of_the_view_enters_the_product(shape: tuple[int, int], share_escaped: float) -> None:
    """Both orders of records, slots of all kinds."""
    encoded = encode_w12(draw(shape, 6, share_escaped=share_escaped))
    on_device = to_device(encoded, "cuda")
    found = weight_through(lambda x: w12_view_gemm(x, on_device), shape[1], 32)
    assert torch.equal(found.cpu(), view_w12(encoded) + 0.0)
