"""Files of recorded steps: what is read is what was recorded, and whatever else lies there is refused by name."""

from __future__ import annotations

import errno
import json
import logging
import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from specpilot.draft import DraftTree, Lattice
from specpilot.draft.recording import RecordedTimes
from specpilot.errors import ConfigError, EngineError
from specpilot.replay import recorder as recorder_module
from specpilot.replay.recorder import FileRecorder
from specpilot.replay.records import find_segments, read_records
from specpilot.replay.segment import read_segment
from specpilot.replay.steps import pack_edges
from tests.oracles.recorded_steps import random_lattice, record_answers

TIMES = RecordedTimes(10.5, 20.25, 31.0)


def new_recorder(folder: Path, steps_per_segment: int = 4) -> FileRecorder:
    return FileRecorder(folder, model_id="m", model_hash="h", steps_per_segment=steps_per_segment)


def put(
    recorder: FileRecorder,
    lattice: Lattice,
    kept: Sequence[int],
    *,
    position: int = 0,
    root: int = 7,
    name: str = "r",
) -> None:
    recorder.record(
        name, lattice, root, DraftTree.chain(root, [3, 4]), kept, TIMES, drafter="d", position=position
    )


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(
        (one.numpy().view(np.int32) == np.ascontiguousarray(other.numpy()).view(np.int32)).all()
    )


@st.composite
def lattices(draw: st.DrawFn) -> Lattice:
    depth, width = draw(st.integers(0, 4)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack(
        [torch.randperm(99, generator=generator)[:width] for _ in range(depth)] or [torch.empty(0)]
    )
    scores = torch.randn(depth, width, width, generator=generator)
    for t in range(depth):
        kind = draw(
            st.sampled_from(["own", "equal rows", "unknown row", "all unknown", "zeros of both signs"])
        )
        if kind == "equal rows":
            scores[t] = scores[t, 0].clone()
        elif kind == "unknown row":
            scores[t, draw(st.integers(0, width - 1))] = -torch.inf
        elif kind == "all unknown":
            scores[t] = -torch.inf
        elif kind == "zeros of both signs":
            scores[t] = 0.0
            scores[t, width - 1] = -0.0
    return Lattice(ids.reshape(depth, width).long(), scores)


@given(st.lists(lattices(), min_size=1, max_size=6))
def test_lattices_come_back_with_their_bits(
    tmp_path_factory: pytest.TempPathFactory, drafts: list[Lattice]
) -> None:
    folder = tmp_path_factory.mktemp("records")
    recorder = new_recorder(folder)
    for index, lattice in enumerate(drafts):
        put(recorder, lattice, [index + 1], position=index, root=index)
    recorder.close()
    steps = read_records([folder])
    assert len(steps) == len(drafts)
    for index, (step, lattice) in enumerate(zip(steps, drafts, strict=True)):
        expected = lattice.edge_scores.clone()
        expected[:1] = expected[:1, :1]  # of depth 0 only the root's row has a meaning
        assert torch.equal(step.lattice.candidate_ids, lattice.candidate_ids)
        assert same_bits(step.lattice.edge_scores, expected)
        assert step.truth.tolist() == list(range(index + 1, len(drafts) + 1))
        assert (step.root_id, step.position, step.times) == (index, index, TIMES)
        assert step.tree.token_ids.tolist() == [index, 3, 4] and step.tree.parents.tolist() == [-1, 0, 1]


def test_rows_that_say_nothing_new_are_not_stored() -> None:
    generator = torch.Generator().manual_seed(0)
    lattice = random_lattice(generator, 6, 8, 50)
    assert len(pack_edges(lattice)[1]) == 1 + 5 * 8
    marginal = Lattice(lattice.candidate_ids, lattice.edge_scores[:, :1].expand(-1, 8, -1))
    assert len(pack_edges(marginal)[1]) == 6
    unknown = lattice.edge_scores.clone()
    unknown[1:, 1:] = -torch.inf
    assert len(pack_edges(Lattice(lattice.candidate_ids, unknown))[1]) == 6


def test_steps_of_several_requests_and_drafters_are_told_apart(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    recorder = new_recorder(tmp_path, steps_per_segment=3)
    for place in range(5):
        for name, drafter in (("a", "x"), ("b", "y")):
            recorder.record(
                name,
                random_lattice(generator, 3, 2, 9),
                place,
                DraftTree.chain(place, []),
                [place + 1],
                TIMES,
                drafter=drafter,
                position=place,
            )
    recorder.close()
    assert len(find_segments([tmp_path])) == 4
    assert [(step.request.request_id, step.position) for step in read_records([tmp_path])] == [
        (name, place) for name in "ab" for place in range(5)
    ]
    assert {step.request.request_id for step in read_records([tmp_path], drafter="y")} == {"b"}
    with pytest.raises(ConfigError, match="'z'"):
        read_records([tmp_path], drafter="z")


def damaged(path: Path, change: str) -> None:
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little")
    match change:
        case "cut short":
            content = content[: len(content) - 5]
        case "empty":
            content = bytearray()
        case "a bit of the first column":
            content[8 + header] ^= 1
        case "a bit of the last column":
            content[-1] ^= 0x80
        case "a request's name":
            assert content.count(b"answer-0") == 1
            content = content.replace(b"answer-0", b"answer-9")
        case "the length of the header":
            content[0] ^= 1
        case "a pickle":
            content = bytearray(pickle.dumps({"steps": [1, 2, 3]}))
        case "a text":
            content = bytearray(b"tau,nodes\n1,2\n")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("cut short", "damaged or cut short"),
        ("empty", "damaged or cut short"),
        ("a bit of the first column", "checksum"),
        ("a bit of the last column", "checksum"),
        ("a request's name", "checksum"),
        ("the length of the header", "damaged or cut short"),
        ("a pickle", "damaged or cut short"),
        ("a text", "damaged or cut short"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path, change: str, reason: str) -> None:
    record_answers(tmp_path, num_answers=1)
    path = find_segments([tmp_path])[1]
    damaged(path, change)
    with pytest.raises(ConfigError, match=reason) as caught:
        read_records([tmp_path])
    assert path.name in str(caught.value)


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    record_answers(tmp_path, num_answers=1, num_tokens=4, depth=2, width=2)
    (path,) = find_segments([tmp_path])
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ConfigError):
            read_segment(path)
    path.write_bytes(content)
    read_segment(path)


def test_other_safetensors_files_and_versions_are_refused(tmp_path: Path) -> None:
    record_answers(tmp_path / "good", num_answers=1)
    path = find_segments([tmp_path / "good"])[0]
    header = path.read_bytes()
    length = int.from_bytes(header[:8], "little")
    metadata = json.loads(header[8 : 8 + length])["__metadata__"]
    weights = tmp_path / "weights.steps.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, weights)
    with pytest.raises(ConfigError, match="no segment of recorded steps"):
        read_segment(weights)
    newer = tmp_path / "newer.steps.safetensors"
    save_file(load_file(path), newer, metadata | {"version": "2"})
    with pytest.raises(ConfigError, match=r"got version '2', expected 1"):
        read_segment(newer)
    with pytest.raises(ConfigError, match="cannot read"):
        read_segment(tmp_path / "missing.steps.safetensors")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ConfigError, match="holds no recording"):
        find_segments([tmp_path / "nothing"])


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    record_answers(tmp_path, num_answers=1)
    find_segments([tmp_path])[1].unlink()
    with pytest.raises(ConfigError, match="expected each from 0"):
        read_records([tmp_path])


def test_steps_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    lattice = random_lattice(torch.Generator().manual_seed(0), 2, 2, 9)
    recorder = new_recorder(tmp_path / "one")
    put(recorder, lattice, [1, 2], position=5, root=0)
    put(recorder, lattice, [4], position=7, root=3)
    recorder.close()
    with pytest.raises(ConfigError, match="got tokens 2 and 3"):
        read_records([tmp_path / "one"])
    recorder = new_recorder(tmp_path / "two")
    put(recorder, lattice, [1, 2], position=5, root=0)
    put(recorder, lattice, [4], position=9, root=3)
    recorder.close()
    with pytest.raises(ConfigError, match="no step that emits position 8"):
        read_records([tmp_path / "two"])


def test_a_recording_is_not_written_over(tmp_path: Path) -> None:
    record_answers(tmp_path, num_answers=1)
    with pytest.raises(ConfigError, match="holds a recording"):
        new_recorder(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="cannot use the folder"):
        new_recorder(blocked)


def test_complete_segments_survive_a_crash(tmp_path: Path) -> None:
    """A process that dies in the middle of a write leaves what it had finished, and a file no reader looks at."""
    pid = os.fork()
    if pid == 0:
        original = os.fsync

        def die_at_the_third(descriptor: int, count: list[int] = [0]) -> None:  # noqa: B006
            count[0] += 1
            if count[0] == 3:  # the second segment: its bytes are out, its name is not
                os._exit(7)
            original(descriptor)

        os.fsync = die_at_the_third  # type: ignore[assignment]
        record_answers(tmp_path, num_answers=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert len(list(tmp_path.glob("*.unfinished"))) == 1
    assert len(read_records([tmp_path])) == 16


def test_a_full_disk_ends_the_recording_and_not_the_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = new_recorder(tmp_path, steps_per_segment=1)
    lattice = random_lattice(torch.Generator().manual_seed(0), 2, 2, 9)
    put(recorder, lattice, [1], position=0)
    while not list(tmp_path.glob("*.steps.safetensors")):
        pass

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder_module, "segment_bytes", no_room)
    with caplog.at_level(logging.ERROR):
        for position in range(1, 40):
            put(recorder, lattice, [1], position=position)
        with pytest.raises(EngineError, match="No space left"):
            recorder.close()
    assert len([entry for entry in caplog.records if "ends here" in entry.message]) == 1
    assert len(read_records([tmp_path])) == 1
