"""A program that speaks OpenAI's streams on loopback and fails on request: for failure and load, where a model would
only be slow. It ends by itself after ``--lifetime-s``.

A request's field ``fake`` says what happens: ``delay_s`` between events, ``head_delay_s`` before the head, ``say``
(goes to its log), ``spin_us`` (computes before each event),
``is_stamped`` (events carry ``time.monotonic_ns`` of their sending), ``how``: die, reset, no_done,
error, hang, status, gate (wait until ``/fake/open`` is asked for).

``--label`` can be changed while it runs, through the path of the reference engine's own; an answer ends with the label
that was there when it began. ``--refuse-change-to`` is a label that it says it could take and then does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

PIECE = "word "


def event(model: str, index: int, *, is_last: bool, is_stamped: bool = False) -> bytes:
    # In the text, which gateways that write events anew keep too.
    text = f"sent_ns={time.monotonic_ns()} " if is_stamped else f"{PIECE}{index}"
    choice = {"index": 0, "text": text, "finish_reason": "length" if is_last else None}
    chunk = {
        "id": "cmpl-fake",
        "object": "text_completion",
        "created": 1,
        "model": model,
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.stats = {"open": 0, "max_open": 0, "begun": 0, "finished": 0}
        self.prompts: list[Any] = []
        self.traceparents: list[str] = []
        self.gate = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ", 2)
            await self.answer(method, path, headers, body, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if path == "/v1/models":
            await self.json(writer, 200, {"object": "list", "data": [{"id": self.options.model}]})
        elif path == "/fake/stats":
            await self.json(
                writer,
                200,
                self.stats | {"pid": os.getpid(), "prompts": self.prompts, "traceparents": self.traceparents},
            )
        elif path == "/control/v1/settings":
            await self.change(json.loads(body), writer)
        elif path == "/fake/open":
            self.gate.set()
            await self.json(writer, 200, {})
        elif method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            self.stats["open"] += 1
            self.stats["begun"] += 1
            self.stats["max_open"] = max(self.stats["max_open"], self.stats["open"])
            working = asyncio.ensure_future(self.complete(json.loads(body), headers, writer))
            leaving = asyncio.ensure_future(reader.read(1))  # ends when the client leaves
            try:
                await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    working.result()
                    self.stats["finished"] += 1
            finally:
                working.cancel()
                leaving.cancel()
                self.stats["open"] -= 1
        else:
            await self.json(writer, 404, {"error": {"message": "no such path"}})

    async def change(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        new = parser.parse_args([*request["arguments"], "--port", str(self.options.port)])
        differ = [name for name, value in vars(new).items() if value != getattr(self.options, name)]
        cold = [name for name in differ if name not in ("label", "refuse_change_to")]
        if cold or (new.label == self.options.refuse_change_to and not request["is_dry_run"]):
            await self.json(
                writer, 409, {"error": {"message": f"{', '.join(cold)}: as asked", "fields": cold}}
            )
            return
        if not request["is_dry_run"]:
            self.options.label = new.label
        await self.json(writer, 200, {"changed": differ})

    async def json(self, writer: asyncio.StreamWriter, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n".encode())
        writer.write(f"content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def complete(
        self, request: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        fake, num_events = request.get("fake", {}), request.get("max_tokens", 16)
        how, label = fake.get("how"), self.options.label
        if "say" in fake:
            print(fake["say"], flush=True)
        await asyncio.sleep(fake.get("head_delay_s", 0))
        usage = {"prompt_tokens": 5, "completion_tokens": num_events, "total_tokens": 5 + num_events}
        if how == "status":
            await self.json(writer, fake["status"], {"error": {"message": "as asked", "code": "asked"}})
            return
        self.prompts.append(request.get("prompt"))
        self.traceparents.append(headers.get("traceparent", ""))
        if how == "gate":
            await self.gate.wait()
            how = None
        if how == "hang":
            await asyncio.sleep(3600)
        if not request.get("stream"):
            await asyncio.sleep(fake.get("delay_s", 0) * num_events)
            choice = {"index": 0, "text": PIECE * num_events, "finish_reason": "length"}
            await self.json(writer, 200, {"model": self.options.model, "choices": [choice], "usage": usage})
            return

        async def chunk(data: bytes) -> None:
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()

        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for index in range(num_events):
            is_last, is_stamped = index == num_events - 1, fake.get("is_stamped", False)
            await chunk(event(self.options.model, index, is_last=is_last, is_stamped=is_stamped))
            if index == num_events // 2 and how is not None and await self.fail(how, chunk, writer):
                return
            if spin_us := fake.get("spin_us", 0):  # a step that computes, and lets the others have theirs
                end_ns = time.monotonic_ns() + 1000 * spin_us
                while time.monotonic_ns() < end_ns:
                    pass
                await asyncio.sleep(0)
            if delay_s := fake.get("delay_s", 0):
                await asyncio.sleep(delay_s)
        if headers.get("x-specpilot-usage") == "comment":
            await chunk(b": specpilot-usage " + json.dumps(usage).encode() + b"\n\n")
        if label:
            await chunk(b": label " + label.encode() + b"\n\n")
        await chunk(b"data: [DONE]\n\n")
        await chunk(b"")

    async def fail(
        self, how: str, chunk: Callable[[bytes], Awaitable[None]], writer: asyncio.StreamWriter
    ) -> bool:
        if how == "die":
            os._exit(9)
        if how == "reset":
            writer.write(b"40\r\ndata: {half of an eve")
            await writer.drain()
            writer.transport.abort()
        elif how == "no_done":
            await chunk(b"")
        elif how == "error":
            await chunk(b'data: {"error":{"message":"as asked","code":"asked"}}\n\n')
            await chunk(b"")
        else:
            raise AssertionError(how)
        return True


async def main(options: argparse.Namespace) -> None:
    print("fake engine starts", flush=True)
    for number in range(options.talk_bytes // 60):
        print(f"{number:5} " + "." * 53, flush=True)
    await asyncio.sleep(options.start_delay_s)
    if options.refuse_start:
        sys.exit("fake engine: refuses to start")
    server = await asyncio.start_server(Engine(options).handle, options.host, options.port, backlog=1024)
    print(f"fake engine {options.model} listens", flush=True)
    async with server:
        await asyncio.sleep(options.lifetime_s)


parser = argparse.ArgumentParser()
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--model", default="fake")
parser.add_argument("--start-delay-s", type=float, default=0.0)
parser.add_argument("--refuse-start", action="store_true")
parser.add_argument("--lifetime-s", type=float, default=120.0)
parser.add_argument("--talk-bytes", type=int, default=0)
parser.add_argument("--label", default="")
parser.add_argument("--refuse-change-to", default="none of them")

if __name__ == "__main__":
    asyncio.run(main(parser.parse_args()))
