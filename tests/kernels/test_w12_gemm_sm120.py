"""The W12 product by mma.sync: its plan, what the compiler makes of it, and on a GPU its arithmetic."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import specpilot_kernels
from specpilot_kernels.w12.cuda import DeviceW12, encode_on_device
from specpilot_kernels.w12_gemm.sm120 import MAX_ROWS, plan_splits, w12_gemm_sm120
from tests.kernels.w12_cases import ABOVE, FEW_AND_MANY, draw, needs_gpu, one_hot, weight_through


@pytest.mark.parametrize(
    ("shape", "splits"), [((5120, 6144), 8), ((16384, 5120), 2), ((248320, 5120), 1), ((128, 64), 1)]
)
def test_blocks_run_at_once_where_columns_are_split(shape: tuple[int, int], splits: int) -> None:
    assert plan_splits(shape, 188) == splits


def compile_for_sm120(source: Path, *options: str) -> list[tuple[int, int]]:
    """Registers and spilled bytes of every kernel."""
    command = ["nvcc", "-O3", "-std=c++17", "-gencode", "arch=compute_120a,code=sm_120a", "-Xptxas", "-v"]
    run = subprocess.run(
        [*command, *options, "-cubin", "-o", "/dev/null", str(source)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    spills = re.findall(r"(\d+) bytes spill stores", run.stderr)
    registers = re.findall(r"Used (\d+) registers", run.stderr)
    return [(int(r), int(s)) for r, s in zip(registers, spills, strict=True)]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_nothing_is_spilled(tmp_path: Path) -> None:
    found = compile_for_sm120(Path(specpilot_kernels.__file__).parent / "w12_gemm" / "sm120.cu")
    assert len(found) == 4
    assert all(spilled == 0 and registers <= 168 for registers, spilled in found)
    # The parser sees spills where there are some.
    source = tmp_path / "spills.cu"
    source.write_text(
        "__global__ void f(float* p) { float v[48]; for (int i = 0; i < 48; ++i) v[i] = p[i]; __syncthreads();"
        "for (int i = 0; i < 48; ++i) p[i] = v[i] * v[(i * 7) % 48]; }"
    )
    assert compile_for_sm120(source, "-maxrregcount=24")[0][1] > 0


def test_a_cpu_is_refused_and_a_fake_tensor_is_not() -> None:
    weight = encode_on_device(draw((130, 72)))
    x = torch.zeros(2, 72, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="cpu is no CUDA device"):
        w12_gemm_sm120(x, weight)
    fake = DeviceW12(weight.shape, *(part.to("meta") for part in weight.parts))
    assert w12_gemm_sm120(x.to("meta"), fake).shape == (2, 130)
    with pytest.raises(ValueError, match=r"expected contiguous bfloat16 \(1 to 64, 72\)"):
        w12_gemm_sm120(torch.zeros(MAX_ROWS + 1, 72, dtype=torch.bfloat16), weight)


@needs_gpu
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 17, 32, 33, 64])
@pytest.mark.parametrize("shape", [(1, 8), (63, 64), (129, 200), (300, 136), (5120, 640)])
def test_one_hot_rows_give_the_weights_columns(shape: tuple[int, int], rows: int) -> None:
    weight = draw(shape)
    x, columns = one_hot(rows, shape[1])
    found = w12_gemm_sm120(x.cuda(), encode_on_device(weight.cuda())).cpu()
    assert torch.equal(found, weight[:, columns].T + 0.0)


@needs_gpu
@pytest.mark.parametrize("share_escaped", FEW_AND_MANY)
@pytest.mark.parametrize("shape", [(300, 136), (17000, 136), (ABOVE, 136)])
def test_every_number_enters_the_product(shape: tuple[int, int], share_escaped: float) -> None:
    """Both orders of records, slots of all kinds."""
    weight = draw(shape, 6, share_escaped=share_escaped, device="cuda")
    encoded = encode_on_device(weight)
    assert torch.equal(weight_through(lambda x: w12_gemm_sm120(x, encoded), shape[1], 64), weight + 0.0)


@needs_gpu
def test_errors_and_bits_on_a_gpu() -> None:
    weight = draw((5120, 6144), 3).cuda()
    encoded = encode_on_device(weight)
    x = torch.randn(64, 6144, device="cuda").bfloat16()
    expected = x.double() @ weight.double().T
    ours = w12_gemm_sm120(x, encoded)
    assert (ours - expected).norm() <= 1.05 * (x @ weight.T - expected).norm()
    for rows in (1, 8, 9, 32, 33):
        assert torch.equal(w12_gemm_sm120(x[:rows].contiguous(), encoded), ours[:rows])
    for _ in range(100):
        assert torch.equal(w12_gemm_sm120(x, encoded), ours)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = w12_gemm_sm120(x, encoded)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, ours)
