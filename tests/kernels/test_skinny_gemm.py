"""The product of few rows: layout, exactness of its order, and a row's independence of everything beside it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest
import torch
from torch import Tensor

from specpilot_kernels import cpu_jit, cpu_pool
from specpilot_kernels.cpu_vector import IS_WIDE
from specpilot_kernels.skinny_gemm import GROUP_PANELS, PANEL_COLUMNS, PackedWeight, skinny_gemm
from specpilot_kernels.skinny_gemm.cpu_numba import _multiply_narrow
from specpilot_kernels.skinny_gemm.reference import skinny_gemm_reference

SIZES = (1, 99, 111, 256, 641, 989)
SHAPES = list(itertools.product(SIZES, SIZES))
LAYERS = [(1408, 256), (256, 704), (772, 256), (4096, 256)]
"""(N, K) of the bundled target's products."""


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread unless a test takes more, and those for the smallest work too."""
    monkeypatch.setattr(cpu_pool, "SHARE_FROM", 0)
    cpu_jit.set_num_threads(1)
    yield
    cpu_jit.set_num_threads(1)


def draw(num_rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


def draw_weight(num_columns: int, num_inputs: int, element_type: str = "bfloat16") -> Tensor:
    weight = draw(num_columns, num_inputs, seed=num_columns + num_inputs)
    return weight.bfloat16() if element_type == "bfloat16" else weight


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("shape", [(256, 256), (65536, 1), (1, 65536), (64, 1024)])
def test_every_bf16_value_is_packed_bit_for_bit(shape: tuple[int, int]) -> None:
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(shape)
    packed = PackedWeight.pack(bits.view(torch.bfloat16))
    assert packed.element_type == "bfloat16"
    unpacked = packed.unpack().view(torch.int32)
    assert torch.equal(unpacked, bits.to(torch.int32) << 16)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element_type", ["bfloat16", "float32"])
def test_a_weight_lies_where_the_layout_says_and_the_rest_is_zero(
    shape: tuple[int, int], element_type: str
) -> None:
    weight = draw_weight(*shape, element_type)
    packed = PackedWeight.pack(weight)
    assert packed.element_type == element_type and packed.num_inputs == shape[1]
    assert packed.panels.shape[0] % GROUP_PANELS == 0
    assert packed.panels.shape[0] * PANEL_COLUMNS - shape[0] < GROUP_PANELS * PANEL_COLUMNS
    assert same_bits(packed.unpack(), weight.float())
    order = np.arange(PANEL_COLUMNS)
    if element_type == "bfloat16":
        order = order.reshape(2, 8).T.reshape(-1)
    for n in {0, shape[0] // 2, shape[0] - 1}:
        place = order.tolist().index(n % PANEL_COLUMNS)
        elements = packed.panels[n // PANEL_COLUMNS, :, place]
        expected = weight[n].view(torch.int16 if element_type == "bfloat16" else torch.int32).numpy()
        assert (elements.view(expected.dtype) == expected).all()
    columns = packed.panels[:, :, np.argsort(order)].transpose(0, 2, 1).reshape(-1, shape[1])
    assert not columns[shape[0] :].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_the_weights_rows(dtype: torch.dtype) -> None:
    """More rows than are packed at once, the last group not full."""
    weight = torch.randn(2130, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    packed = PackedWeight.pack(weight)
    indices = np.array([0, 1, 7, 8, 15, 16, 17, 2047, 2048, 2129, 3, 3])
    assert same_bits(torch.from_numpy(packed.rows(indices)), weight.float()[torch.from_numpy(indices)])
    assert same_bits(packed.unpack(), weight.float())


def test_weights_packed_together_are_one_weight() -> None:
    parts = [draw_weight(num, 99) for num in (1, 111, 64)]
    assert same_bits(PackedWeight.pack(*parts).unpack(), torch.cat(parts).float())
    mixed = PackedWeight.pack(parts[0], draw_weight(3, 99, "float32"))
    assert mixed.element_type == "float32"


def test_bfloat16_is_refused_where_it_would_round() -> None:
    weight = draw_weight(8, 5).float()
    assert PackedWeight.pack(weight).element_type == "bfloat16"
    assert PackedWeight.pack(weight, element_type="float32").element_type == "float32"
    weight[3, 2] = 1 + 2**-8
    assert PackedWeight.pack(weight).element_type == "float32"
    with pytest.raises(ValueError, match=r"1 numbers .* \(3, 2\)"):
        PackedWeight.pack(weight, element_type="bfloat16")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((), "got none"),
        ((torch.zeros(2, 3, dtype=torch.float64),), "float64"),
        ((torch.zeros(2, 3), torch.zeros(2, 4)), r"\(2, 4\) beside \(2, 3\)"),
        ((torch.zeros(0, 3),), r"\(0, 3\)"),
        ((torch.zeros(3),), r"\(3,\)"),
    ],
)
def test_a_wrong_weight_is_refused(weights: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackedWeight.pack(*weights)


@pytest.mark.parametrize("shape", [*SHAPES, *LAYERS])
@pytest.mark.parametrize("element_type", ["bfloat16", "float32"])
def test_error_is_at_most_twice_that_of_torch(shape: tuple[int, int], element_type: str) -> None:
    """Root mean square over at least 500 outputs: a single one is a matter of luck."""
    weight = draw_weight(*shape, element_type)
    # With a single column torch may take a dot product, in an order of its own; beside others it takes its product.
    packed, transposed = PackedWeight.pack(weight), weight.float().repeat(16, 1).t()
    for num_rows in (1, 3, 8, 33):
        error = torch_error = 0.0
        for seed in range(1 + 500 // (shape[0] * num_rows)):
            x = draw(num_rows, shape[1], seed)
            expected = skinny_gemm_reference(x, weight)
            error += (skinny_gemm(x, packed) - expected).square().sum().item()
            torch_error += (torch.mm(x, transposed)[:, : shape[0]] - expected).square().sum().item()
        assert error <= 2**2 * torch_error


@pytest.mark.skipif(not IS_WIDE, reason="this machine has no registers for the wide tiles")
@pytest.mark.parametrize("element_type", ["bfloat16", "float32"])
def test_wide_tiles_give_the_bits_of_narrow_ones(element_type: str) -> None:
    def multiply(x: Any, panels: Any, y: Any) -> None:
        _multiply_narrow(x, panels, y, 0, panels.shape[0] // GROUP_PANELS)

    compiled: Any = numba.njit(error_model="numpy")(multiply)
    for shape in [(1, 1), (99, 111), (641, 256), (4096, 256), (256, 704), (772, 99)]:
        packed = PackedWeight.pack(draw_weight(*shape, element_type))
        for num_rows in (1, 2, 3, 4, 7, 8, 15, 64, 77):
            x = draw(num_rows, shape[1])
            y = torch.full((num_rows, shape[0]), torch.nan)
            compiled(x.numpy(), packed.panels, y.numpy())
            assert same_bits(skinny_gemm(x, packed), y)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_whole_numbers_come_out_exactly(shape: tuple[int, int], num_threads: int) -> None:
    use_threads(num_threads)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randint(-8, 9, shape, generator=generator).float()
    packed = PackedWeight.pack(weight)
    for num_rows in (1, 2, 3, 4, 7, 64, 65):
        x = torch.randint(-8, 9, (num_rows, shape[1]), generator=generator).float()
        assert torch.equal(skinny_gemm(x, packed), (x.long() @ weight.long().t()).float())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element_type", ["bfloat16", "float32"])
def test_a_row_does_not_depend_on_the_rows_beside_it(shape: tuple[int, int], element_type: str) -> None:
    packed = PackedWeight.pack(draw_weight(*shape, element_type))
    x = draw(33, shape[1])
    alone = torch.cat([skinny_gemm(x[row : row + 1], packed) for row in range(33)])
    for num_rows in range(1, 34):
        assert same_bits(skinny_gemm(x[:num_rows], packed), alone[:num_rows])
        assert same_bits(skinny_gemm(x[33 - num_rows :], packed), alone[33 - num_rows :])


def test_a_broken_row_does_not_spread() -> None:
    packed = PackedWeight.pack(draw_weight(111, 99))
    x = draw(8, 99)
    clean = skinny_gemm(x, packed)
    x[3], x[4, 7] = torch.nan, torch.inf
    broken = skinny_gemm(x, packed)
    others = [0, 1, 2, 5, 6, 7]
    assert same_bits(broken[others], clean[others])
    assert broken[3].isnan().all() and not broken[4].isfinite().any()


@pytest.mark.parametrize("shape", [*LAYERS, (99, 989), (641, 641)])
def test_torch_does_depend_on_the_number_of_rows(shape: tuple[int, int]) -> None:
    """The check above can fail: the same rows through torch.mm differ on some row count."""
    weight = draw_weight(*shape).float().t().contiguous()
    x = draw(33, shape[1])
    alone = torch.cat([torch.mm(x[row : row + 1], weight) for row in range(33)])
    if all(same_bits(torch.mm(x[:num], weight), alone[:num]) for num in range(1, 34)):
        pytest.skip("torch.mm of this shape does not depend on the row count on this machine")


DIGESTS_BY_THREADS = """
import hashlib
from specpilot_kernels import cpu_jit, cpu_pool
import torch
from specpilot_kernels.skinny_gemm import PackedWeight, skinny_gemm
cpu_pool.SHARE_FROM = 0
for num_threads in (1, 2, 3):
    cpu_jit.set_num_threads(num_threads)
    digest = hashlib.sha256()
    for columns, inputs in [(1, 1), (64, 99), (99, 111), (256, 704), (641, 256), (989, 641)]:
        generator = torch.Generator().manual_seed(columns)
        packed = PackedWeight.pack(torch.randn(columns, inputs, generator=generator).bfloat16())
        for rows in (1, 2, 5, 33):
            digest.update(skinny_gemm(torch.randn(rows, inputs, generator=generator), packed).numpy().tobytes())
    print(digest.hexdigest())
"""


def test_the_number_of_threads_does_not_matter() -> None:
    """In a process of its own, for three threads may be more than this machine has cores."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS_BY_THREADS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3 and len(set(done.stdout.split())) == 1


@pytest.mark.parametrize("num_threads", [1, 2])
def test_two_python_threads_may_multiply_at_once(num_threads: int) -> None:
    use_threads(num_threads)
    packed = PackedWeight.pack(draw_weight(641, 256))
    x = draw(8, 256)
    expected = skinny_gemm(x, packed)
    results: list[bool] = []

    def multiply_often() -> None:
        results.append(all(same_bits(skinny_gemm(x, packed), expected) for _ in range(200)))

    threads = [threading.Thread(target=multiply_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True, True]


@pytest.mark.parametrize(("num_columns", "num_rows"), [(1, 1), (99, 5), (641, 3), (64, 70)])
def test_out_is_filled_and_nothing_around_it_is_touched(num_columns: int, num_rows: int) -> None:
    packed = PackedWeight.pack(draw_weight(num_columns, 99))
    x = draw(num_rows, 99)
    buffer = torch.full((num_rows + 2, num_columns), 7.0)
    out = buffer[1:-1]
    assert skinny_gemm(x, packed, out) is out
    assert same_bits(out, skinny_gemm(x, packed))
    assert (buffer[0] == 7).all() and (buffer[-1] == 7).all()


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        (torch.zeros(2, 98), None, r"got shape \(2, 98\), expected \(M, 99\)"),
        (torch.zeros(0, 99), None, r"got shape \(0, 99\)"),
        (torch.zeros(99), None, r"got shape \(99,\)"),
        (torch.zeros(2, 99, dtype=torch.float64), None, "x float64"),
        (torch.zeros(2, 99, dtype=torch.bfloat16), None, "BFloat16"),
        (torch.zeros(2, 99, requires_grad=True), None, "requires grad"),
        (torch.zeros(99, 2).t(), None, "contiguous"),
        (torch.zeros(2, 99), torch.zeros(2, 112), r"got shape \(2, 112\), expected \(2, 111\)"),
        (torch.zeros(2, 99), torch.zeros(2, 111, dtype=torch.int32), "out int32"),
        (torch.zeros(2, 99), torch.zeros(111, 2).t(), "contiguous"),
    ],
)
def test_a_wrong_argument_is_refused(x: Tensor, out: Tensor | None, message: str) -> None:
    packed = PackedWeight.pack(draw_weight(111, 99))
    with pytest.raises(ValueError, match=message):
        skinny_gemm(x, packed, out)


def use_threads(num_threads: int) -> None:
    try:
        cpu_jit.set_num_threads(num_threads)
    except ValueError as error:
        pytest.skip(str(error))
