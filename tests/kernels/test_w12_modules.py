"""Torch models with W12 linear layers: the same numbers, what is swapped, what memory it takes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from specpilot_kernels.w12 import W12Linear, convert_, encode_w12
from specpilot_kernels.w12.cuda import DeviceW12, encode_on_device, to_device
from specpilot_kernels.w12.device_decode import decode_on_device, decode_rows
from tests.kernels.w12_cases import ABOVE, FEW_AND_MANY, draw, needs_gpu

SHAPES = [(1, 8), (63, 64), (129, 200), (300, 136)]


class Model(nn.Module):
    """An embedding tied to the head, an attention-like layer, a feed-forward block, a small layer, one in float32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(256, 64)
        self.proj = nn.Linear(64, 192)
        self.mlp = nn.Sequential(nn.Linear(192, 256, bias=False), nn.GELU(), nn.Linear(256, 64))
        self.small = nn.Linear(64, 32)
        self.head = nn.Linear(64, 256, bias=False)
        self.bfloat16()
        self.head.weight = self.embed.weight
        self.wide = nn.Linear(64, 256)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.mlp(self.proj(self.embed(ids)))
        return self.head(hidden) + self.small(hidden).sum(-1, keepdim=True)


def spoil_an_escape(encoded: DeviceW12) -> None:
    """One of the first warp's, in its slot or in the list that this names."""
    first, second = encoded.slots[0, 0].tolist()
    if first < 0:
        encoded.escapes[second] ^= 1
    else:
        encoded.slots[0, 0, 0] ^= 1


@pytest.mark.parametrize("share_escaped", FEW_AND_MANY)
@pytest.mark.parametrize("shape", SHAPES)
def test_decoding_where_the_weight_is_gives_its_bits(shape: tuple[int, int], share_escaped: float) -> None:
    weight = draw(shape, 4, share_escaped=share_escaped, infinities=True)
    weight[0, 0] = torch.nan
    encoded = encode_on_device(weight)
    assert torch.equal(decode_on_device(encoded).view(torch.int16), weight.view(torch.int16))
    spoil_an_escape(encoded)
    assert not torch.equal(decode_on_device(encoded).view(torch.int16), weight.view(torch.int16))


@pytest.mark.parametrize("shape", [(300, 136), (17000, 72), (ABOVE, 8)])
def test_some_rows(shape: tuple[int, int]) -> None:
    weight = draw(shape, 5, share_escaped=FEW_AND_MANY[0])
    encoded = to_device(encode_w12(weight), "cpu")
    for first, count in ((128, 100), (256, 44), (0, shape[0])):
        assert torch.equal(decode_rows(encoded, first, count), weight[first : first + count])


def test_wrong_rows_are_refused() -> None:
    encoded = encode_on_device(draw((300, 136)))
    for first, count in ((64, 10), (256, 45), (0, 0)):
        with pytest.raises(ValueError, match=f"rows: got {count} from {first} on"):
            decode_rows(encoded, first, count)


def test_a_converted_model_computes_the_same() -> None:
    model, ids = Model(), torch.arange(24).view(2, 12)
    expected = model(ids)
    report = convert_(model)
    assert torch.equal(model(ids), expected)
    assert report.converted == ["proj", "mlp.0", "head"] and isinstance(model.proj, W12Linear)
    assert report.untied == ["head"] and model.embed.weight.dtype == torch.bfloat16
    assert report.skipped == {
        "mlp.2": "64 outputs, fewer than 128",
        "small": "32 outputs, fewer than 128",
        "wide": "torch.float32, not bfloat16",
    }
    # The head's copy comes on top of the table: 256 x 64 of 12 bits, more than the other two layers save.
    assert report.bytes_after == sum(
        t.untyped_storage().nbytes()
        for t in {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    )
    with torch.no_grad():
        model.proj.bases += 1
    assert not torch.equal(model(ids), expected)


def test_layers_are_selected() -> None:
    model = Model()
    assert convert_(model, "mlp", min_output_rows=64).converted == ["mlp.0", "mlp.2"]
    assert convert_(model, lambda name, _: name == "proj").converted == ["proj"]
    with pytest.raises(ValueError, match="got 'attention'"):
        convert_(model, "attention")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no linear layer was converted"):
        convert_(nn.Sequential(nn.Linear(8, 8)))


def test_large_layers_take_less_memory() -> None:
    model = nn.Sequential(nn.Linear(512, 1024, bias=False).bfloat16())
    report = convert_(model)
    assert 0.745 < report.bytes_after / report.bytes_before < 0.77


def test_state_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(72, 300).bfloat16()
    swapped = W12Linear(layer)
    x = torch.randn(3, 5, 72).bfloat16()
    assert torch.equal(swapped(x), layer(x).detach()) or torch.allclose(
        swapped(x), layer(x), rtol=0.01, atol=0.01
    )
    from specpilot_kernels.w12 import modules

    whole = swapped(x)
    monkeypatch.setattr(modules, "_TILE_ROWS", 128)
    assert torch.equal(swapped(x), whole)
    assert {"records", "bases", "slots", "escapes", "bias"} == set(swapped.state_dict())


def test_a_state_dict_brings_its_own_escapes() -> None:
    layers = [nn.Linear(72, 300).bfloat16() for _ in range(2)]
    with torch.no_grad():
        layers[0].weight[5] = 0.0
        layers[0].weight[5, 5] = 1.0
    first, second = (W12Linear(layer) for layer in layers)
    assert len(first.escapes) > len(second.escapes)
    second.load_state_dict(first.state_dict())
    x = torch.randn(3, 72).bfloat16()
    assert torch.equal(second(x), first(x))


def test_a_state_dict_of_an_earlier_version_is_refused() -> None:
    layer = W12Linear(nn.Linear(72, 300).bfloat16())
    state = layer.state_dict() | {"record_starts": torch.zeros(7, dtype=torch.int32)}
    with pytest.raises(
        RuntimeError, match=r"records: got the form of an earlier version.*make it anew from BF16"
    ):
        nn.ModuleDict({"a": layer}).load_state_dict({f"a.{name}": part for name, part in state.items()})


def load_example() -> ModuleType:
    path = Path(__file__).parents[2] / "kernels" / "examples" / "llama_decode.py"
    spec = importlib.util.spec_from_file_location("llama_decode", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_example_gives_equal_tokens_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    example = load_example()
    monkeypatch.setattr(example, "REPEATS", 1)
    found = example.compare("small", "cpu", 3, 128)
    assert found["equal_tokens_before_the_first_difference"] == 3 and found["layers"] == 11


@needs_gpu
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 64, 65, 128, 129])
def test_layers_on_a_gpu(rows: int, has_bias: bool) -> None:
    layer = nn.Linear(640, 1000, bias=has_bias, dtype=torch.bfloat16, device="cuda").requires_grad_(False)
    x = torch.randn(rows, 640, device="cuda").bfloat16()
    expected = x.double() @ layer.weight.double().T
    if has_bias:
        expected += layer.bias.double()
    error = (W12Linear(layer)(x) - expected).norm()
    assert error <= 1.05 * (layer(x) - expected).norm()
    assert torch.equal(decode_on_device(encode_on_device(layer.weight.detach())), layer.weight)


@needs_gpu
@pytest.mark.parametrize("share_escaped", FEW_AND_MANY)
@pytest.mark.parametrize("shape", [(1, 8), (300, 136), (300, 131), (17000, 72), (ABOVE, 72)])
def test_decoding_on_a_gpu(shape: tuple[int, int], share_escaped: float) -> None:
    """Both orders of records, rows that are no multiple of 16 bytes, slots of all kinds."""
    weight = draw(shape, 5, share_escaped=share_escaped, infinities=True, device="cuda")
    encoded = encode_on_device(weight)
    bits = weight.view(torch.int16)
    assert torch.equal(decode_on_device(encoded).view(torch.int16), bits)
    for first, count in ((0, 1), (128, 100), (256, 44)):
        if first + count <= shape[0]:
            found = decode_rows(encoded, first, count).view(torch.int16)
            assert torch.equal(found, bits[first : first + count])
    encoded.slots.fill_(-1)
    assert shape == (1, 8) or not torch.equal(decode_on_device(encoded).view(torch.int16), bits)
