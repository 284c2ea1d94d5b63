"""y = x W^T by every algorithm that cublasLt's heuristic proposes, for benches; by ctypes, from the library that torch
brings.

Signatures, sizes and numbers are those of cublasLt.h, https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

WORKSPACE_BYTES = 64 * 2**20
"""NVIDIA recommends 32 MB for Hopper; more lets the heuristic propose more."""
ALIGNMENT = 256
"""Bytes: what the heuristic assumes of pointers unless told otherwise."""

_BF16, _FP32, _COMPUTE_FP32 = 14, 0, 68  # CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F
_DESC_TRANSA, _DESC_TRANSB, _PREF_MAX_WORKSPACE_BYTES = 3, 4, 1
_OP_N, _OP_T = 0, 1


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_size", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves_count", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_pointer, _int, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_place = ctypes.POINTER(_pointer)
_SIGNATURES = {
    "cublasLtCreate": (_place,),
    "cublasLtMatmulDescCreate": (_place, _int, _int),
    "cublasLtMatmulDescSetAttribute": (_pointer, _int, _pointer, _size),
    "cublasLtMatmulDescDestroy": (_pointer,),
    "cublasLtMatrixLayoutCreate": (_place, _int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_pointer,),
    "cublasLtMatmulPreferenceCreate": (_place,),
    "cublasLtMatmulPreferenceSetAttribute": (_pointer, _int, _pointer, _size),
    "cublasLtMatmulPreferenceDestroy": (_pointer,),
    # handle, descriptor, layouts of A, B, C, D, preference; how many at most, where to, how many there are
    "cublasLtMatmulAlgoGetHeuristic": (
        *[_pointer] * 7,
        _int,
        ctypes.POINTER(HeuristicResult),
        ctypes.POINTER(_int),
    ),
    # handle, descriptor, alpha, A, its layout, B, its, beta, C, its, D, its, algorithm, workspace, its size, stream
    "cublasLtMatmul": (*[_pointer] * 14, _size, _pointer),
}


@functools.cache
def load_cublaslt() -> ctypes.CDLL:
    """The library that torch has loaded, else the one beside torch.

    Raises
    ------
    RuntimeError
        There is none.
    """
    major = (torch.version.cuda or "13").split(".")[0]
    names = [f"libcublasLt.so.{number}" for number in dict.fromkeys((major, "13", "12"))]
    folder = Path(torch.__file__).parents[1] / "nvidia"
    beside = [str(path) for name in names for path in sorted(folder.glob(f"*/lib/{name}"))]
    refusals = []
    for name in (*names, *beside):
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            refusals.append(str(error))
            continue
        for function, arguments in _SIGNATURES.items():
            getattr(library, function).argtypes = arguments
            getattr(library, function).restype = ctypes.c_int
        return library
    raise RuntimeError(f"no libcublasLt: {'; '.join(refusals)}")


def call(function: str, *arguments: object) -> None:
    """Call a function of cublasLt.

    Raises
    ------
    RuntimeError
        Its status is not CUBLAS_STATUS_SUCCESS; the message has the status and the function.
    """
    status = getattr(load_cublaslt(), function)(*arguments)
    if status:
        raise RuntimeError(f"{function}: status {status}")


def create(kind: str, *arguments: int) -> ctypes.c_void_p:
    """A descriptor (*MatmulDesc*, *MatrixLayout*, *MatmulPreference*); its owner destroys it."""
    made = ctypes.c_void_p()
    call(f"cublasLt{kind}Create", ctypes.byref(made), *arguments)
    return made


def set_attribute(
    kind: str, descriptor: ctypes.c_void_p, attribute: int, value: ctypes._SimpleCData[int]
) -> None:
    call(f"cublasLt{kind}SetAttribute", descriptor, attribute, ctypes.byref(value), ctypes.sizeof(value))


@functools.cache
def handle_of(device: int) -> ctypes.c_void_p:
    """Of the current device, whose number *device* is; kept until the process ends."""
    handle = ctypes.c_void_p()
    call("cublasLtCreate", ctypes.byref(handle))
    return handle


class Product:
    """y[M, N] = x[M, K] W[N, K]^T, BF16 with FP32 sums, into given memory.

    To cublasLt, which thinks in columns, the same memory is W as (K, N), transposed, times x as (K, M); y is (N, M).

    Parameters
    ----------
    x, weight, y : Tensor, bfloat16, contiguous, on the current CUDA device, at addresses that are multiples of
        ``ALIGNMENT``

    Raises
    ------
    ValueError
        A tensor is not as stated.
    RuntimeError
        No cublasLt, or it refuses.
    """

    def __init__(self, x: Tensor, weight: Tensor, y: Tensor) -> None:
        (m, k), (n, _) = x.shape, weight.shape
        if weight.shape != (n, k) or y.shape != (m, n):
            raise ValueError(
                f"x {tuple(x.shape)}, weight {tuple(weight.shape)} and y {tuple(y.shape)} do not fit"
            )
        for name, tensor in (("x", x), ("weight", weight), ("y", y)):
            if not tensor.is_cuda or tensor.device.index != torch.cuda.current_device():
                raise ValueError(f"{name} is on {tensor.device}, not on the current CUDA device")
            if tensor.dtype != torch.bfloat16 or not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
                raise ValueError(f"{name} is not bfloat16, contiguous and at a multiple of {ALIGNMENT} bytes")
        self._tensors = x, weight, y
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=x.device)
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._handle = handle_of(torch.cuda.current_device())
        self._operation = self._create("MatmulDesc", _COMPUTE_FP32, _FP32)
        set_attribute("MatmulDesc", self._operation, _DESC_TRANSA, ctypes.c_int32(_OP_T))
        set_attribute("MatmulDesc", self._operation, _DESC_TRANSB, ctypes.c_int32(_OP_N))
        self._layouts = [
            self._create("MatrixLayout", _BF16, rows, columns, rows)
            for rows, columns in ((k, n), (k, m), (n, m))
        ]

    def _create(self, kind: str, *arguments: int) -> ctypes.c_void_p:
        made = create(kind, *arguments)
        weakref.finalize(self, call, f"cublasLt{kind}Destroy", made)
        return made

    def propose(self, most: int) -> list[HeuristicResult]:
        """The heuristic's algorithms, at most so many, its favourite first."""
        preference = self._create("MatmulPreference")
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        set_attribute("MatmulPreference", preference, _PREF_MAX_WORKSPACE_BYTES, limit)
        results, count = (HeuristicResult * most)(), ctypes.c_int()
        a, b, c = self._layouts
        call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self._handle, self._operation, a, b, c, c, preference, most, results, ctypes.byref(count)),
        )
        return [result for result in results[: count.value] if result.state == 0]

    def run(self, algorithm: Algorithm) -> None:
        """On torch's current stream."""
        (x, weight, y), (a, b, c) = self._tensors, self._layouts
        call(
            "cublasLtMatmul",
            *(self._handle, self._operation, ctypes.byref(self._one)),
            *(weight.data_ptr(), a, x.data_ptr(), b),
            *(ctypes.byref(self._zero), y.data_ptr(), c, y.data_ptr(), c),
            *(ctypes.byref(algorithm), self._workspace.data_ptr(), WORKSPACE_BYTES),
            torch.cuda.current_stream().cuda_stream,
        )


def heuristic_products(x: Tensor, weight: Tensor, y: Tensor, most: int = 16) -> list[Callable[[], None]]:
    """One call an algorithm that runs, the heuristic's favourite first; each writes y as :class:`Product` does.

    Raises
    ------
    ValueError
        A tensor is not as :class:`Product` wants it.
    RuntimeError
        No cublasLt, it refuses, or no algorithm runs.
    """
    product = Product(x, weight, y)
    calls: list[Callable[[], None]] = []
    refusals = []
    for result in product.propose(most):
        run = functools.partial(product.run, result.algorithm)
        try:
            run()
        except RuntimeError as error:
            refusals.append(str(error))
        else:
            calls.append(run)
    torch.cuda.synchronize()
    if not calls:
        raise RuntimeError(
            f"cublasLt has no algorithm for {tuple(x.shape)} by {tuple(weight.shape)}: {refusals}"
        )
    return calls
