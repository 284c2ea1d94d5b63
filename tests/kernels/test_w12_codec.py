"""W12: every bit of a BF16 weight comes back, and every bit of the layout lies where the reference says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.w12 import W12Weight, decode_w12, encode_w12, view_w12
from specpilot_kernels.w12.layout import RECORD_COLUMNS, RECORD_ROWS, place_of, slot_of
from specpilot_kernels.w12.reference import (
    decode_w12_reference,
    encode_w12_reference,
    view_w12_reference,
)

Bits = NDArray[np.uint16]

_EDGES = (0, 0x8000, 1, 0x807F, 0x7F, 0x80, 0x7F7F, 0x7F80, 0xFF80, 0x7F81, 0xFFFF, 0x7FC0, 0x3F80)
"""+0, -0, denormals, the smallest and the largest normal number, Inf, NaN with payloads, 1."""


def _tensor(bits: Bits) -> Tensor:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


def _bits(weight: Tensor) -> Bits:
    return weight.contiguous().view(torch.int16).numpy().view(np.uint16)


def _assert_same(got: Bits, expected: Bits) -> None:
    wrong = np.argwhere(got != expected)
    if len(wrong):
        n, k = wrong[0].tolist()
        pytest.fail(
            f"{len(wrong)} differ, first at ({n}, {k}): {got[n, k]:#06x}, expected {expected[n, k]:#06x}"
        )


def _check(bits: Bits) -> W12Weight:
    """Round trip, and equality with the reference in every part."""
    weight, reference = encode_w12(_tensor(bits)), encode_w12_reference(bits)
    for name in ("records", "bases", "escapes", "record_starts"):
        np.testing.assert_array_equal(getattr(weight, name), getattr(reference, name), name)
    _assert_same(_bits(decode_w12(weight)), bits)
    _assert_same(decode_w12_reference(weight), bits)
    _assert_same(_bits(view_w12(weight)), view_w12_reference(weight))
    return weight


def _normal(shape: tuple[int, int], seed: int) -> Bits:
    generator = torch.Generator().manual_seed(seed)
    return _bits(torch.randn(shape, generator=generator).bfloat16()).copy()


def _inside_one_window(bits: Bits) -> Bits:
    """What little a normal row has outside of its window becomes 1."""
    bits[(bits >> 7 & 255) < 120] = 0x3F80
    return bits


def test_all_bf16_values_come_back() -> None:
    values = np.arange(65536, dtype=np.uint16)
    for bits in (values.reshape(256, 256), np.random.default_rng(0).permutation(values).reshape(128, 512)):
        _assert_same(_bits(decode_w12(encode_w12(_tensor(bits)))), bits)


def test_every_value_in_every_window() -> None:
    """For each exponent of a row's bulk, all 65,536 values beside it; most become escapes."""
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    for exponent in range(0, 256, 15):
        # As many numbers of the bulk as outvote the 16 exponents of any window.
        bulk = np.full((256, 4600), exponent << 7, np.uint16)
        bits = np.concatenate((values, bulk), 1)
        _assert_same(_bits(decode_w12(encode_w12(_tensor(bits)))), bits)


@settings(max_examples=12, deadline=None)
@given(
    num_rows=st.sampled_from((1, 63, 64, 65, 127, 129)),
    num_columns=st.sampled_from((1, 63, 64, 65, 127, 129)),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from((0.0, 4.0, 30.0)),
    share=st.sampled_from((0.0, 0.001, 0.2)),
)
def test_any_shape(num_rows: int, num_columns: int, seed: int, spread: float, share: float) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((num_rows, num_columns)) * np.exp2(
        spread * rng.standard_normal((num_rows, 1))
    )
    bits = _bits(torch.from_numpy(numbers).bfloat16()).copy()
    is_edge = rng.random(bits.shape) < share
    bits[is_edge] = rng.choice(np.array(_EDGES, np.uint16), int(is_edge.sum()))
    _check(bits)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_no_numbers(shape: tuple[int, int]) -> None:
    weight = encode_w12(torch.empty(shape, dtype=torch.bfloat16))
    assert decode_w12(weight).shape == shape
    assert view_w12(weight).shape == shape
    assert len(weight.escapes) == 0


def test_rows_of_zeros_are_no_escapes() -> None:
    bits = _inside_one_window(_normal((130, 70), 1))
    bits[3], bits[128], bits[129] = 0, 0x8000, np.array([0, 0x8000] * 35, np.uint16)
    weight = _check(bits)
    assert len(weight.escapes) == 0
    view = _bits(view_w12(weight))
    for row in (3, 128, 129):
        _assert_same(view[row : row + 1], bits[row : row + 1])


def test_one_escape_per_record() -> None:
    bits = _inside_one_window(_normal((256, 192), 2))
    for tile in range(2):
        for column in range(3):
            bits[tile * RECORD_ROWS + 127 * (column % 2), column * RECORD_COLUMNS + 63 * (tile % 2)] = 0
    weight = _check(bits)
    np.testing.assert_array_equal(np.diff(weight.record_starts), 1)
    assert weight.escape_rate == 6 / bits.size


def test_two_clusters_of_exponents() -> None:
    """20 binades apart: the larger cluster is the window, the other one escapes; both are exact."""
    rng = np.random.default_rng(3)
    is_upper = rng.random((128, 128)) < 0.3
    bits = ((100 + 20 * is_upper) << 7 | rng.integers(0, 128, is_upper.shape)).astype(np.uint16)
    weight = _check(bits)
    assert len(weight.escapes) == is_upper.sum()
    np.testing.assert_array_equal(weight.bases, 100)


def test_of_equal_windows_the_highest() -> None:
    weight = encode_w12(_tensor(np.full((1, 1), 120 << 7, np.uint16)))
    assert weight.bases[0] == 120
    # The last window stops before Inf and NaN.
    assert encode_w12(_tensor(np.full((1, 1), 254 << 7, np.uint16))).bases[0] == 239
    assert encode_w12(_tensor(np.full((1, 1), 255 << 7, np.uint16))).escape_rate == 1.0


def _bases(exponents: NDArray[np.int64]) -> list[int]:
    """By counting every window; of equal ones the highest."""
    bases = []
    for row in exponents:
        sums = np.concatenate((np.zeros(1, np.int64), np.bincount(row, minlength=256).cumsum()))
        covered = sums[16:256] - sums[:240]
        bases.append(239 - int(covered[::-1].argmax()))
    return bases


@settings(max_examples=40, deadline=None)
@given(
    top=st.integers(0, 255),
    num_top=st.integers(0, 6),
    num_below=st.integers(0, 6),
    depth=st.integers(0, 40),
    gap=st.integers(0, 15),
    num_columns=st.sampled_from((13, 64, 577)),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_windows_where_the_highest_exponent_weighs_as_much_as_what_lies_below(
    top: int, num_top: int, num_below: int, depth: int, gap: int, num_columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    middle = rng.integers(max(0, top - max(15, gap)), max(0, top - gap) + 1, (8, num_columns)).clip(0, 255)
    middle[:, :num_top] = top
    middle[:, num_top : num_top + num_below] = max(0, top - 16 - depth)
    exponents = rng.permuted(middle, axis=1)
    noise = rng.integers(0, 65536, exponents.shape) & 0x807F
    weight = encode_w12(_tensor((exponents << 7 | noise).astype(np.uint16)))
    assert weight.bases[:8].tolist() == _bases(exponents)


def test_the_windows_of_long_rows() -> None:
    """Longer than a count of 16 bits holds: 40,000 zeros, or 70,000 numbers of the highest exponent."""
    exponents = np.full((4, 140_000), 120)
    exponents[0, :40_000], exponents[1, :80_000], exponents[2, 69_990:] = 0, 0, 100
    exponents[3, 32_768], exponents[3, 65_536] = 130, 90
    weight = encode_w12(_tensor((exponents << 7).astype(np.uint16)))
    assert weight.bases[:4].tolist() == _bases(exponents)


def test_the_view_is_the_first_two_thirds_of_a_record() -> None:
    """Plane B does not enter, and what does keeps sign, exponent and three mantissa bits, the rest in the middle."""
    bits = _normal((128, 64), 4)
    weight = encode_w12(_tensor(bits))
    is_escape = np.zeros(bits.shape, bool)
    for n, k in np.ndindex(bits.shape):
        is_escape[n, k] = slot_of(n, k) in set((weight.escapes >> 16).tolist())
    expected = np.where(is_escape, bits, bits & 0xFFF0 | 8)
    _assert_same(_bits(view_w12(weight)), expected.astype(np.uint16))
    other = weight.records.copy()
    other[:, :, 2] ^= 0xFFFFFFFF
    changed = W12Weight(weight.shape, other, weight.bases, weight.escapes, weight.record_starts)
    _assert_same(_bits(view_w12(changed)), _bits(view_w12(weight)))
    assert (_bits(decode_w12(changed)) != bits).any()


def test_slots_are_all_different() -> None:
    slots = {slot_of(n, k) for n in range(RECORD_ROWS) for k in range(RECORD_COLUMNS)}
    assert slots == set(range(RECORD_ROWS * RECORD_COLUMNS))
    assert all(place_of(slot_of(n, k)) == (n, k) for n in range(RECORD_ROWS) for k in range(RECORD_COLUMNS))
    # By hand, from the words of the layout: row 70 = 16 * 4 + 6, column 43 = 16 * 2 + 8 + 3.
    assert slot_of(70, 43) == (32 * 4 + 4 * 6 + 1) << 5 | 2 << 3 | 2 << 1 | 1


def test_bits_per_weight_of_whole_records() -> None:
    weight = encode_w12(torch.randn(1024, 1024, generator=torch.Generator().manual_seed(5)).bfloat16())
    # 12 bits, 8 a row, 32 a record and 32 an escape.
    expected = 12 + 8 / 1024 + (32 * 129 + 32 * len(weight.escapes)) / 1024**2
    assert weight.bits_per_weight == pytest.approx(expected)
    assert weight.escape_rate < 1e-3


@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads_change_nothing(num_threads: int, kernel_threads: object) -> None:
    assert callable(kernel_threads)
    kernel_threads(num_threads)
    bits = np.random.default_rng(6).integers(0, 65536, (300, 200)).astype(np.uint16)
    weight, reference = encode_w12(_tensor(bits)), encode_w12_reference(bits)
    np.testing.assert_array_equal(weight.records, reference.records)
    np.testing.assert_array_equal(weight.escapes, reference.escapes)
    _assert_same(_bits(decode_w12(weight)), bits)


def test_what_is_no_weight_is_refused() -> None:
    for wrong in (
        torch.zeros(2, 2),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(1, 2, 2, dtype=torch.bfloat16),
    ):
        with pytest.raises(ValueError, match="expected bfloat16"):
            encode_w12(wrong)


def test_parts_that_do_not_fit_are_refused() -> None:
    weight = encode_w12(torch.ones(3, 3, dtype=torch.bfloat16))
    parts = {name: getattr(weight, name) for name in ("records", "bases", "escapes", "record_starts")}
    wrong = {
        "records": parts["records"][:, :, :2],
        "bases": np.full(128, 240, np.uint8),
        "escapes": np.zeros(1, np.uint32),
        "record_starts": np.array([0, 1], np.uint32),
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name if name != "escapes" else "record_starts"):
            W12Weight((3, 3), **parts | {name: value})
