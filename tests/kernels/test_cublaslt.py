"""The benches' rival: cublasLt's own descriptors where the library loads, its products where there is a GPU."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor

import cublaslt
from cublaslt import Algorithm, HeuristicResult, Product, heuristic_products

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def load() -> ctypes.CDLL:
    try:
        return cublaslt.load_cublaslt()
    except RuntimeError as error:
        pytest.skip(str(error))


def operands(rows: int, n: int, k: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, k, generator=generator).bfloat16().to(device) for size in (rows, n))
    return x, weight, torch.full((rows, n), torch.nan, dtype=torch.bfloat16, device=device)


def test_structures_lie_as_in_the_header() -> None:
    """Numbers that a C program prints with cublasLt.h of CUDA 13.0."""
    assert (ctypes.sizeof(Algorithm), ctypes.sizeof(HeuristicResult)) == (64, 96)
    fields = ("algorithm", "workspace_size", "state", "waves_count", "reserved")
    assert [getattr(HeuristicResult, field).offset for field in fields] == [0, 64, 72, 76, 80]


def test_descriptors_hold_what_they_were_given() -> None:
    """The library makes them without a device."""
    library = load()
    layout = cublaslt.create("MatrixLayout", 14, 5120, 14336, 5121)
    get = library.cublasLtMatrixLayoutGetAttribute
    get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    found = []
    for attribute, value in ((0, ctypes.c_uint32()), *((a, ctypes.c_uint64()) for a in (2, 3, 4))):
        assert get(layout, attribute, ctypes.byref(value), ctypes.sizeof(value), None) == 0
        found.append(value.value)
    assert found == [14, 5120, 14336, 5121]  # type, rows, columns, leading dimension
    cublaslt.call("cublasLtMatrixLayoutDestroy", layout)


def test_a_refusal_names_function_and_status() -> None:
    load()
    operation = cublaslt.create("MatmulDesc", 68, 0)
    with pytest.raises(RuntimeError, match=r"cublasLtMatmulDescSetAttribute: status 7"):
        cublaslt.set_attribute("MatmulDesc", operation, 3, ctypes.c_int64(1))  # takes 4 bytes
    cublaslt.call("cublasLtMatmulDescDestroy", operation)


def test_tensors_elsewhere_or_of_other_shapes_are_refused() -> None:
    x, weight, y = operands(3, 40, 64, "cpu")
    with pytest.raises(ValueError, match="not on the current CUDA device"):
        Product(x, weight, y)
    with pytest.raises(ValueError, match="do not fit"):
        Product(x, weight.T, y)
    with pytest.raises(ValueError, match="do not fit"):
        Product(x, weight, y.T)


@needs_gpu
@pytest.mark.parametrize("rows", [1, 8, 33, 64])
def test_every_algorithm_gives_the_product(rows: int) -> None:
    x, weight, y = operands(rows, 640, 1536, "cuda")
    expected = x.double() @ weight.double().T
    calls = heuristic_products(x, weight, y)
    assert calls
    for call in calls:
        y.fill_(torch.nan)
        call()
        assert (y.double() - expected).norm() <= 0.02 * expected.norm()


@needs_gpu
def test_what_is_not_contiguous_or_aligned_is_refused() -> None:
    x, weight, y = operands(8, 640, 1536, "cuda")
    with pytest.raises(ValueError, match="weight is not bfloat16, contiguous"):
        heuristic_products(x, weight.T.contiguous().T, y)
    with pytest.raises(ValueError, match="x is not bfloat16, contiguous and at a multiple of 256 bytes"):
        heuristic_products(
            torch.cat([x.flatten(), x[0]])[1536 + 8 :][: 7 * 1536].view(7, 1536), weight, y[:7]
        )
