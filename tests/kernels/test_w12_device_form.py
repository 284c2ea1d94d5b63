"""W12 weights as devices hold them: the order of records, slots and escapes, and the kernels' own source for both."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from specpilot_kernels.w12 import W12Weight, encode_w12
from specpilot_kernels.w12.cuda import (
    ESCAPE_LIST,
    NO_ESCAPE,
    DeviceW12,
    encode_on_device,
    slot_escapes,
    to_device,
)
from specpilot_kernels.w12.device_order import (
    BAND,
    MOST_TILES_IN_BANDS,
    in_device_order,
    in_file_order,
    planes_together,
    put_row_tiles,
    warps_together,
)
from specpilot_kernels.w12.layout import num_records, slot_of
from tests.kernels.host_build import build_for_host
from tests.kernels.w12_cases import ABOVE, draw

TWO_BANDS = 128 * BAND + 300
SHAPES = [(1, 8), (63, 64), (129, 200), (300, 136), (TWO_BANDS, 136)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = build_for_host("record_order_host.cpp", tmp_path_factory.mktemp("host"))
    library.record.restype = ctypes.c_int64
    return library


def words(tensor: Tensor) -> NDArray[np.uint32]:
    return tensor.numpy().view(np.uint32)


def device_record(shape: tuple[int, int], row: int, column: int) -> int:
    """Where a record lies: said once more, without the module's own rule."""
    row_tiles, column_tiles = num_records(shape)
    if row_tiles > 600:
        return row * column_tiles + column
    before = row - row % 32
    return before * column_tiles + column * min(32, row_tiles - before) + row % 32


def warps_of(weight: W12Weight, record: int) -> list[list[int]]:
    """Escapes of the eight warps of a record, in the file's order of records."""
    entries = weight.escapes[weight.record_starts[record] : weight.record_starts[record + 1]].tolist()
    return [[entry for entry in entries if entry >> 26 == warp] for warp in range(8)]


def read_slot(slot: list[int], escapes: list[int]) -> list[int]:
    if slot[0] & 0xC0000000 == 0x80000000:
        return escapes[slot[1] : slot[1] + (slot[0] & 0xFFFF)]
    return [word for word in slot if word != 0xFFFFFFFF]


def differences(weight: W12Weight, device: DeviceW12) -> Iterator[str]:
    """Of every record, its words and its warps' escapes."""
    tiles = num_records(weight.shape)
    slots, escapes = words(device.slots).tolist(), words(device.escapes).tolist()
    for row, column in np.ndindex(tiles):
        at = device_record(weight.shape, row, column)
        there = words(device.records)[at].reshape(8, 3, 128)
        planes = weight.records[row, column].reshape(3, 8, 128)
        if any((there[warp, plane] != planes[plane, warp]).any() for warp in range(8) for plane in range(3)):
            yield f"words of record {row}, {column}"
        if [read_slot(slot, escapes) for slot in slots[at]] != warps_of(weight, row * tiles[1] + column):
            yield f"escapes of record {row}, {column}"


@pytest.mark.parametrize("shape", SHAPES)
def test_encoding_with_torch_gives_the_codecs_parts(shape: tuple[int, int]) -> None:
    weight = draw(shape, share_escaped=0.001, infinities=True)
    expected, found = to_device(encode_w12(weight), "cpu"), encode_on_device(weight)
    for name in ("records", "bases", "slots", "escapes"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.shape == shape and found.memory_bytes == expected.memory_bytes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share_escaped", [0.0005, 0.02])
def test_every_record_has_its_words_and_escapes(shape: tuple[int, int], share_escaped: float) -> None:
    weight = encode_w12(draw(shape, 1, share_escaped=share_escaped))
    device = to_device(weight, "cpu")
    assert not list(differences(weight, device))
    assert (device.bases.numpy() == weight.bases).all()
    assert sorted(words(device.escapes).tolist()) == sorted(weight.escapes.tolist())
    if len(device.records) == 1:
        return
    # The comparison sees two records exchanged, and two slots.
    exchanged = torch.arange(len(device.records))
    exchanged[[0, -1]] = exchanged[[-1, 0]]
    for name, kind in (("records", "words"), ("slots", "escapes")):
        other = replace(device, **{name: getattr(device, name)[exchanged]})
        assert f"{kind} of record 0, 0" in list(differences(weight, other))


@pytest.mark.parametrize("shape", [(300, 136), (TWO_BANDS, 136), (ABOVE, 72)])
def test_orders_are_each_others_inverse(shape: tuple[int, int]) -> None:
    tiles = num_records(shape)
    indices = torch.arange(tiles[0] * tiles[1])
    ordered = in_device_order(indices, shape)
    for row, column in ((0, 0), (0, 1), (1, 0), (tiles[0] - 1, tiles[1] - 1)):
        assert ordered[device_record(shape, row, column)] == row * tiles[1] + column
    assert torch.equal(in_file_order(ordered, shape), indices.view(tiles))
    # Some row tiles, from within a band into the next.
    first, count = tiles[0] // 3, tiles[0] // 2 + 1
    assert torch.equal(
        in_file_order(ordered, shape, first, count), indices.view(tiles)[first : first + count]
    )
    changed = ordered.clone()
    put_row_tiles(changed, -indices[first * tiles[1] : (first + count) * tiles[1]], shape, first)
    is_in = (ordered >= first * tiles[1]) & (ordered < (first + count) * tiles[1])
    assert torch.equal(changed, torch.where(is_in, -ordered, ordered)) and is_in.any()
    planes = torch.arange(2 * 3 * 1024).view(2, 3, 1024)
    assert torch.equal(planes_together(warps_together(planes)), planes)
    assert not torch.equal(warps_together(planes).flatten(), planes.flatten())


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0)])
def test_weights_without_numbers(shape: tuple[int, int]) -> None:
    weight = torch.empty(shape, dtype=torch.bfloat16)
    device = encode_on_device(weight)
    assert device.shape == shape and not len(device.records) and not len(device.escapes)
    assert [part.shape for part in to_device(encode_w12(weight), "cpu").parts] == [
        part.shape for part in device.parts
    ]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("records", lambda part: part.view(-1, 3, 1024), r"records: got torch.int32 \(9, 3, 1024\)"),
        (
            "records",
            lambda part: part.transpose(1, 2).contiguous().transpose(1, 2),
            "records: got torch.int32",
        ),
        ("bases", lambda part: part[:-1], r"expected contiguous torch.uint8 \(384,\)"),
        ("slots", lambda part: part[..., 0].contiguous(), r"slots: got torch.int32 \(9, 8\)"),
        ("slots", lambda part: part.to("meta"), "on meta, expected contiguous .* on cpu"),
        ("escapes", lambda part: part.long(), "escapes: got torch.int64"),
    ],
)
def test_parts_that_kernels_cannot_read_are_refused(
    name: str, change: Callable[[Tensor], Tensor], message: str
) -> None:
    device = encode_on_device(draw((300, 136)))
    with pytest.raises(ValueError, match=message):
        replace(device, **{name: change(getattr(device, name))})  # type: ignore[arg-type]


def several_escapes() -> Tensor:
    """One record whose warps have 1, 0, 2, 3, 40, all but one, and no escapes."""
    weight = torch.ones(128, 64, dtype=torch.bfloat16)
    weight[3, 5] = 0.0
    weight[40, 1], weight[41, 2] = 0.0, 1e30
    weight[50, 7], weight[51, 8], weight[63, 63] = 0.0, 0.0, 0.0
    weight[64:74, :4] = 0.0
    weight[80:96, 1:32] = 1e-30
    return weight


def test_slots_hold_two_escapes_or_name_a_list() -> None:
    weight = several_escapes()
    device = encode_on_device(weight)
    slots, escapes = words(device.slots)[0].tolist(), words(device.escapes)
    large = int(weight[41, 2].view(torch.int16))
    assert slots[0] == [slot_of(3, 5) << 16, NO_ESCAPE]
    assert slots[1] == slots[6] == slots[7] == [NO_ESCAPE, NO_ESCAPE]
    assert slots[2] == [slot_of(40, 1) << 16, slot_of(41, 2) << 16 | large]
    assert [slot[0] for slot in slots[3:6]] == [ESCAPE_LIST + count for count in (3, 40, 16 * 31)]
    assert [slot[1] for slot in slots[3:6]] == [3, 6, 46]
    assert len(escapes) == 46 + 16 * 31
    assert escapes[3:6].tolist() == sorted(slot_of(n, k) << 16 for n, k in ((50, 7), (51, 8), (63, 63)))


def test_slots_give_their_escapes() -> None:
    device = encode_on_device(several_escapes())
    found, counts = slot_escapes(device.slots, device.escapes)
    assert counts.tolist() == [[1, 0, 2, 3, 40, 16 * 31, 0, 0]]
    assert torch.equal(found, device.escapes)
    device.slots[0, 3, 1] += 1
    assert not torch.equal(slot_escapes(device.slots, device.escapes)[0], device.escapes)


@pytest.mark.parametrize("lanes", [1, 32])
def test_the_kernels_read_slots_alike(host: ctypes.CDLL, lanes: int) -> None:
    device = encode_on_device(several_escapes())
    escapes = words(device.escapes)
    out = np.empty(1024, np.uint32)
    pointers = (ctypes.c_void_p(escapes.ctypes.data), lanes, ctypes.c_void_p(out.ctypes.data))
    for slot in words(device.slots)[0].tolist():
        expected = read_slot(slot, escapes.tolist())
        count = host.slot_escapes(*(ctypes.c_uint32(word) for word in slot), *pointers)
        assert sorted(out[:count].tolist()) == expected
        if expected and not slot[0] >> 31:
            count = host.slot_escapes(ctypes.c_uint32(slot[0] ^ 1), ctypes.c_uint32(slot[1]), *pointers)
            assert sorted(out[:count].tolist()) != expected


def test_the_kernels_rule_is_the_modules(host: ctypes.CDLL) -> None:
    slot_words = (ctypes.c_uint32 * 2)()
    host.slot_words(slot_words)
    assert tuple(slot_words) == (NO_ESCAPE, ESCAPE_LIST)
    assert (host.band(), host.most_tiles_in_bands()) == (BAND, MOST_TILES_IN_BANDS) == (32, 600)

    for row_tiles, column_tiles in (
        (1, 1),
        (2, 7),
        (32, 3),
        (33, 3),
        (131, 5),
        (600, 2),
        (601, 2),
        (1940, 80),
    ):
        shape = 128 * row_tiles, 64 * column_tiles
        places = [
            (0, 0),
            (1 % row_tiles, 0),
            (0, column_tiles - 1),
            (row_tiles - 1, column_tiles - 1),
            (row_tiles // 2, 1 % column_tiles),
        ]
        found = [host.record(row_tiles, column_tiles, *place) for place in places]
        assert found == [device_record(shape, *place) for place in places]
        ordered = in_device_order(torch.arange(row_tiles * column_tiles), shape)
        assert [int(ordered[at]) for at in found] == [row * column_tiles + column for row, column in places]
    # Past 2^31 records.
    assert host.record(601, 2**30, 100, 5) == 100 * 2**30 + 5
    assert host.record(40, 2**30, 39, 2**30 - 1) == 40 * 2**30 - 1
