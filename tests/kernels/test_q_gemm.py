"""INT8 and INT6 records and the 8-bit view: layout, the kernels' own decode source on the host, products on a GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specpilot_kernels.q_gemm.layout import DeviceQ, pack_integers, unpack_integers
from specpilot_kernels.q_gemm.quantise import quantise_on_device
from specpilot_kernels.q_weights import NUM_BITS, NumBits
from specpilot_kernels.q_weights.reference import LARGEST, quantise_reference
from specpilot_kernels.w12 import encode_w12, view_w12
from specpilot_kernels.w12.layout import slot_of
from tests.kernels.host_build import build_for_host
from tests.kernels.w12_cases import draw

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
