"""INT8 and INT6 records and the 8-bit view: layout, the kernels' own source for it on the host, products on a GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
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
from specpilot_kernels.q_weights import NUM_BITS, NumBits
from specpilot_kernels.q_weights.reference import LARGEST, quantise_reference
from specpilot_kernels.w12 import decode_w12, encode_w12, view_w12
from specpilot_kernels.w12.cuda import encode_on_device, to_device
from specpilot_kernels.w12.device_order import BAND, in_device_order
from specpilot_kernels.w12.layout import num_records
from specpilot_kernels.w12.words import from_slot
from specpilot_kernels.w12_gemm import Kernel, Plan, plan_product
from tests.kernels.host_build import build_for_host
from tests.kernels.w12_cases import ABOVE, FEW_AND_MANY, draw, needs_gpu, one_hot, weight_through

SHAPES = [(1, 8), (63, 64), (129, 200)]
TWO_BANDS, MANY_TILES = (128 * BAND + 300, 136), (ABOVE, 8)
CLASSES = ((1, 8), (9, 16), (17, 32))
"""First and last number of rows of x with one order of sums."""
GPU_SHAPES = [
    *SHAPES,
    (300, 136),
    (5120, 640),
    (6144, 128),
    (14336, 1024),
    (8192, 136),
    (28672, 256),
    (34816, 128),
    (34816, 136),
    (79000, 128),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_for_host("q_decode_host.cpp", tmp_path_factory.mktemp("host"))


def read_all(
    function: ctypes._NamedFuncPointer,
    shape: tuple[int, int],
    records: Tensor,
    bases: Tensor | None = None,
    *,
    is_shared: bool,
) -> Tensor:
    """All numbers of a weight as the kernels find and decode them, (N, K) bfloat16."""
    tiles = num_records(shape)
    out = torch.empty(tiles[0] * tiles[1], 8192, dtype=torch.bfloat16)
    pointers = [None if part is None else ctypes.c_void_p(part.data_ptr()) for part in (records, bases)]
    function(*pointers, *tiles, int(is_shared), ctypes.c_void_p(out.data_ptr()))
    return from_slot(out, shape)


def integers_of(shape: tuple[int, int], num_bits: NumBits) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_bits)
    return torch.randint(-LARGEST[num_bits], LARGEST[num_bits] + 1, shape, generator=generator).to(torch.int8)


def copy_of(integers: Tensor, num_bits: NumBits) -> DeviceQ:
    """With scales of 1."""
    shape = integers.shape[0], integers.shape[1]
    records = in_device_order(pack_integers(integers, num_bits), shape)
    return DeviceQ(shape, num_bits, records, torch.ones(shape[0]))


@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", [*SHAPES, TWO_BANDS])
def test_integers_come_back(shape: tuple[int, int], num_bits: NumBits) -> None:
    integers = integers_of(shape, num_bits)
    weight = copy_of(integers, num_bits)
    tiles = -(-shape[0] // 128) * -(-shape[1] // 64)
    assert weight.records.numel() * 4 == tiles * 128 * 64 * num_bits // 8
    assert torch.equal(unpack_integers(weight), integers)
    weight.records[0, 0] ^= 1
    assert not torch.equal(unpack_integers(weight), integers)


@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", [*SHAPES, (128 * BAND + 200, 72)])
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


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", [(128, 64), (129, 200), TWO_BANDS, MANY_TILES])
def test_the_kernels_find_and_decode_the_integers(
    host: ctypes.CDLL, shape: tuple[int, int], num_bits: NumBits, is_shared: bool
) -> None:
    """From the device's memory, as few rows read, and from a copy of a record's pieces, as the ring does."""
    integers = integers_of(shape, num_bits)
    assert len(integers[:128].unique()) == 2 * LARGEST[num_bits] + 1 or shape == MANY_TILES
    copy = copy_of(integers, num_bits)
    function = host.decode_int8 if num_bits == 8 else host.decode_int6
    assert torch.equal(read_all(function, shape, copy.records, is_shared=is_shared).float(), integers.float())
    copy.records[0, 0] ^= 1
    assert not torch.equal(
        read_all(function, shape, copy.records, is_shared=is_shared).float(), integers.float()
    )


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("shape", [(128, 64), (129, 200), TWO_BANDS])
def test_the_kernels_find_and_decode_w12_and_its_view(
    host: ctypes.CDLL, shape: tuple[int, int], is_shared: bool
) -> None:
    """Every number of a row's window, so that nothing is an escape; and rows with base 0, whose zeros and denormals
    have no midpoint."""
    codes = torch.arange(shape[0] * shape[1], dtype=torch.int32).view(shape) % 2048
    bits = (codes & 0x7FF) | (codes & 1) << 15
    bits[::2] += 112 << 7
    encoded = encode_w12(bits.to(torch.int16).view(torch.bfloat16))
    assert (encoded.bases == 0).any() and (encoded.bases > 0).any() and not len(encoded.escapes)
    device = to_device(encoded, "cpu")
    for function, expected in ((host.decode_w12, decode_w12(encoded)), (host.decode_view, view_w12(encoded))):
        found = read_all(function, shape, device.records, device.bases, is_shared=is_shared)
        assert torch.equal(found.view(torch.int16), expected.view(torch.int16))


def test_rows_past_the_last_have_a_scale_that_is_there(host: ctypes.CDLL) -> None:
    scales, out = np.arange(1, 21, dtype=np.float32), (ctypes.c_float * 2)()
    for n, expected in ((0, (1, 9)), (11, (12, 20)), (12, (13, 20)), (19, (20, 20)), (23, (20, 20))):
        host.scales_of(ctypes.c_void_p(scales.ctypes.data), n, len(scales), out)
        assert tuple(out) == expected


def test_reference_products_are_those_of_the_copies() -> None:
    weight, x = draw((130, 72), 3), torch.randn(3, 72, generator=torch.Generator().manual_seed(0)).bfloat16()
    copy = quantise_on_device(weight, 6)
    expected = x.double() @ (unpack_integers(copy).double() * copy.scales.double()[:, None]).T
    assert torch.allclose(q_gemm_reference(x, copy), expected, rtol=1e-12, atol=0)
    assert torch.equal(
        w12_view_gemm_reference(x, encode_w12(weight)), x.double() @ view_w12(encode_w12(weight)).double().T
    )


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


def test_shapes_for_a_gpu_have_every_plan() -> None:
    """Of each class: few rows of all numbers of blocks and warps, one and many blocks of a row tile, streams."""
    plans = {last: {plan_product(last, shape) for shape in GPU_SHAPES} for _, last in CLASSES}
    few = {last: {(plan.split, plan.warps) for plan in found if plan.warps} for last, found in plans.items()}
    assert few == {8: {(2, 4), (1, 4), (1, 6), (1, 8)}, 16: {(2, 4), (1, 6)}, 32: set()}
    for last, found in plans.items():
        splits = {min(plan.split, 3) for plan in found if plan.kernel is Kernel.SPLIT}
        assert splits == {1, 2, 3} and Plan(Kernel.STREAM) in found, last


@functools.cache
def _cases(shape: tuple[int, int]) -> list[tuple[Callable[[Tensor], Tensor], Tensor]]:
    """Products of one weight and what they multiply with, float32; made once for all numbers of rows of x."""
    weight = draw(shape, 4)
    weight[0] = 0.0
    encoded = encode_w12(weight)
    on_device = to_device(encoded, "cuda")
    cases: list[tuple[Callable[[Tensor], Tensor], Tensor]] = [
        (lambda x: w12_view_gemm(x, on_device), view_w12(encoded).float().cuda())
    ]
    for num_bits in NUM_BITS:
        copy = quantise_on_device(weight.cuda(), num_bits)
        dense = unpack_integers(copy).float() * copy.scales[:, None]
        cases.append((functools.partial(_product_of, copy), dense))
    return cases


@needs_gpu
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 17, 32])
@pytest.mark.parametrize("shape", GPU_SHAPES)
def test_products_on_a_gpu(shape: tuple[int, int], rows: int) -> None:
    x, columns = (part.cuda() for part in one_hot(rows, shape[1]))
    several = torch.randn(rows, shape[1], generator=torch.Generator().manual_seed(rows)).bfloat16().cuda()
    fewer = next(first for first, last in CLASSES if rows <= last)
    for call, expected in _cases(shape):
        assert torch.equal(call(x) + 0.0, expected[:, columns].T.bfloat16() + 0.0)
        exact = several.double() @ expected.double().T
        rounded = exact.bfloat16()
        found = call(several)
        assert (found - exact).norm() <= 1.05 * (rounded - exact).norm() + 1e-6
        assert torch.equal(call(several[:fewer].contiguous()), found[:fewer])
        for _ in range(20):
            assert torch.equal(call(several), found)


@needs_gpu
@pytest.mark.parametrize("rows", [8, 16, 32])
def test_a_graph_gives_the_same_bits(rows: int) -> None:
    x = torch.randn(rows, 136, generator=torch.Generator().manual_seed(rows)).bfloat16().cuda()
    for call, _ in _cases((34816, 136)):
        expected = call(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call(x)
        for _ in range(3):
            captured.fill_(float("nan"))
            graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, expected)


@needs_gpu
@pytest.mark.parametrize("share_escaped", FEW_AND_MANY)
@pytest.mark.parametrize("rows", [8, 16, 32])
@pytest.mark.parametrize("shape", [(300, 136), (300, 192), (17000, 192), (79000, 128)])
def test_every_number_of_the_view_enters_the_product(
    shape: tuple[int, int], share_escaped: float, rows: int
) -> None:
    """Both orders of records, whole and broken tiles of columns, slots of all kinds."""
    encoded = encode_w12(draw(shape, 6, share_escaped=share_escaped))
    on_device = to_device(encoded, "cuda")
    found = weight_through(lambda x: w12_view_gemm(x, on_device), shape[1], rows)
    assert torch.equal(found.cpu(), view_w12(encoded) + 0.0)


@needs_gpu
@pytest.mark.parametrize("rows", [8, 16, 32])
@pytest.mark.parametrize("num_bits", NUM_BITS)
@pytest.mark.parametrize("shape", [(300, 136), (300, 192), (17000, 192), (79000, 128)])
def test_every_integer_enters_the_product(shape: tuple[int, int], num_bits: NumBits, rows: int) -> None:
    integers = integers_of(shape, num_bits)
    copy = copy_of(integers, num_bits)
    on_device = DeviceQ(shape, num_bits, copy.records.cuda(), copy.scales.cuda())
    found = weight_through(lambda x: q_gemm(x, on_device), shape[1], rows)
    assert torch.equal(found.cpu(), integers.bfloat16())
