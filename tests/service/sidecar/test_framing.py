"""However the network cuts the bytes, the body and the events are the same."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot_service.sidecar.gateway.breaker import Breaker
from specpilot_service.sidecar.gateway.event_relay import EventRelay
from specpilot_service.sidecar.gateway.exchange import Broken, Exchange, Unreachable, open_exchange
from specpilot_service.streaming import USAGE_COMMENT

USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
TEXT = b'data: {"choices":[{"text":"\\"usage\\":{ data: [DONE] \xc3\xa9"}]}\n\n'
DONE = b"data: [DONE]\n\n"
COMMENT = USAGE_COMMENT + json.dumps(USAGE).encode() + b"\n\n"
CLIENT_USAGE = b'data: {"choices":[],"usage":' + json.dumps(USAGE, separators=(",", ":")).encode() + b"}\n\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(borders)]


PLACES = st.lists(st.integers(0, 10_000), max_size=30)


@given(PLACES)
def test_events_are_whole_and_the_same(places: list[int]) -> None:
    stream = TEXT * 3 + b": keep\n\n" + TEXT
    relay = EventRelay()
    parts = [relay.feed(part) for part in cut(stream + COMMENT + DONE, places)]
    assert b"".join(parts) == stream + DONE
    assert all(part.endswith(b"\n\n") for part in parts if part)
    # Whoever feeds looks when the stream is over; the pieces behind [DONE] are none.
    assert relay.is_done and not relay.has_error and relay.num_events == 6
    assert (relay.usage.prompt_tokens, relay.usage.completion_tokens) == (5, 7)


@given(PLACES)
def test_usage_that_the_client_asked_for_stays(places: list[int]) -> None:
    relay = EventRelay()
    assert b"".join(map(relay.feed, cut(TEXT + CLIENT_USAGE + DONE, places))) == TEXT + CLIENT_USAGE + DONE
    assert relay.usage.is_reported and relay.usage.completion_tokens == 7


def test_half_an_event_is_kept_back() -> None:
    relay = EventRelay()
    assert relay.feed(TEXT + b'data: {"cho') == TEXT
    assert not relay.is_done


async def read_all(raw: bytes, places: list[int]) -> tuple[int, bytes]:
    """Status and body of an answer that arrives in these pieces."""
    reader = asyncio.StreamReader()

    class Writer:
        transport: Any = None

    exchange = Exchange(reader, Writer())  # type: ignore[arg-type]

    async def arrive() -> None:
        for part in cut(raw, places):
            reader.feed_data(part)
            await asyncio.sleep(0)
        reader.feed_eof()

    arriving = asyncio.create_task(arrive())
    try:
        head = await exchange.head()
        body = b""
        while part := await exchange.read():
            body += part
        return head.status, body
    finally:
        await arriving


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(f"{len(part):x};a=b\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), PLACES)
def test_a_chunked_body(parts: list[bytes], places: list[int]) -> None:
    raw = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(parts)
    assert asyncio.run(read_all(raw, places)) == (200, b"".join(parts))


@given(st.binary(max_size=100), PLACES)
def test_a_body_of_known_length_and_one_until_the_end(body: bytes, places: list[int]) -> None:
    known = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    assert asyncio.run(read_all(known, places)) == (200, body)
    assert asyncio.run(read_all(HEAD + b"\r\n" + body, places)) == (200, body)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-x\r\n\r\n",
        HEAD + b"Content-Length: 5\r\n\r\nabcd",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
)
def test_a_cut_answer_is_broken(raw: bytes) -> None:
    with pytest.raises(Broken):
        asyncio.run(read_all(raw, []))


def test_nobody_there_is_unreachable() -> None:
    from specpilot_service.sidecar.engines.process import free_port

    with pytest.raises(Unreachable):
        asyncio.run(open_exchange("127.0.0.1", free_port(), "GET", "/", [], b""))


def test_a_half_open_breaker_lets_one_try() -> None:
    now_s = 0.0
    breaker = Breaker(2, 5.0, clock=lambda: now_s)
    breaker.fail()
    breaker.succeed()
    breaker.fail()
    assert breaker.state == "closed"
    breaker.fail()
    assert breaker.state == "open"
    with pytest.raises(Exception, match="failed 2 times"):
        breaker.check()
    now_s = 5.0
    assert breaker.state == "half_open"
    breaker.check()
    with pytest.raises(Exception, match="failed 2 times"):
        breaker.check()
    breaker.drop()  # its client left: it has shown nothing, and the next one tries
    breaker.check()
    breaker.fail()
    assert breaker.state == "open"
    now_s = 10.0
    breaker.check()
    breaker.succeed()
    assert breaker.state == "closed"
