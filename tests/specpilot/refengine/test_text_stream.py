"""Text leaves the stream only when it is final."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from specpilot.refengine.text_stream import TextStream


def run(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[str, bool]:
    stream = TextStream(stop)
    out = "".join(stream.feed(piece) for piece in pieces) + stream.finish()
    return out, stream.is_stopped


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(borders)]


@given(st.text(max_size=40), st.lists(st.integers(0, 200), max_size=12))
def test_cuts_inside_characters_change_nothing(text: str, places: list[int]) -> None:
    data = text.encode("utf-8", "surrogatepass")
    assert run(cut(data, places), ())[0] == data.decode("utf-8", "replace")


@given(
    st.text(alphabet="ab\u00e9", max_size=30),
    st.lists(st.text(alphabet="ab\u00e9", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_text_ends_before_the_first_stop_string(text: str, stop: list[str], places: list[int]) -> None:
    out, is_stopped = run(cut(text.encode(), places), tuple(stop))
    found = [text.find(word) for word in stop if word in text]
    assert is_stopped == bool(found)
    if not found:
        assert out == text
    else:
        # Fed piece by piece, the stop string completed first decides; it never leaks and nothing after it does.
        assert text.startswith(out) and not any(word in out for word in stop)
        assert any(text.startswith(word, len(out)) for word in stop)


def test_beginning_of_a_stop_string_is_held_back_and_given_out_if_it_does_not_come() -> None:
    stream = TextStream(("END",))
    assert stream.feed(b"go EN") == "go "
    assert stream.feed(b"X") == "ENX"
    assert stream.feed(b"E") == ""
    assert stream.finish() == "E"


def test_unfinished_character_becomes_a_replacement_sign() -> None:
    stream = TextStream(())
    assert stream.feed("\u4f60".encode()[:2]) == ""
    assert stream.finish() == "\ufffd"
