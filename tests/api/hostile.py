"""Clients that mean harm: `python3 hostile.py PORT TOKEN ATTACK SECONDS`. Prints what it has done, as JSON."""

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import sys
import time

PORT, TOKEN = int(sys.argv[1]), sys.argv[2]
HEAD = f"host: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
SLOW = int(os.environ.get("HATCHERY_CONNECTIONS", "500"))
EVENT = b'{"type": "plain"}'


def post(body_headers, path="/v1/events", media_type="application/json"):
    return f"POST {path} HTTP/1.1\r\n{HEAD}content-type: {media_type}\r\n{body_headers}\r\n\r\n".encode()


class Client:
    """Counts what its connections have met."""

    def __init__(self, end):
        self.end, self.opened, self.statuses = end, 0, {}

    @property
    def goes_on(self):
        return time.monotonic() < self.end

    @contextlib.asynccontextmanager
    async def connection(self):
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", PORT), max(0.1, self.end - time.monotonic()))
        self.opened += 1
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def told(self, reader, limit=2):
        """Counts the answers that come, until none comes."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            while part := await asyncio.wait_for(reader.read(1 << 20), limit):
                for status in re.findall(r"HTTP/1\.1 (\d{3}) ", part.decode(errors="replace")):
                    self.statuses[status] = self.statuses.get(status, 0) + 1

    async def drip(self, first, piece, pause):
        async with self.connection() as (reader, writer):
            writer.write(first)
            while self.goes_on and not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            await self.told(reader, 0.1)

    async def repeat(self, data):
        """Sends this on one connection after the other."""
        while self.goes_on:
            async with self.connection() as (reader, writer):
                writer.write(data)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                await self.told(reader, 1)

    async def slow_headers(self, _):
        await self.drip(b"GET / HTTP/1.1\r\n", b"x: y\r\n", 0.5)

    async def slow_bodies(self, _):
        await self.drip(post("content-length: 60000"), b" ", 0.5)

    async def slow_chunks(self, _):
        """A body that may become as long as the longest."""
        await self.drip(post("transfer-encoding: chunked"), b"1\r\n \r\n", 0.5)

    async def slow_batches(self, _):
        await self.drip(post("transfer-encoding: chunked", media_type="application/x-ndjson"), b"1\r\n \r\n", 0.5)

    async def idle(self, _):
        async with self.connection() as (reader, _):
            while self.goes_on and not reader.at_eof():
                await asyncio.sleep(0.5)

    async def big_headers(self, _):
        await self.repeat(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n")

    async def many_headers(self, _):
        await self.repeat(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 10_000 + b"\r\n")

    async def wrong_lengths(self, n):
        shapes = ["content-length: 5", "content-length: 99999", "content-length: -1", "content-length: 99999999999999999999", "content-length: 0x11",
                  "content-length: 17\r\ncontent-length: 5", "content-length: +17", "content-length: 17, 17", "content-length: 18446744073709551615"]
        await self.repeat(post(shapes[n % len(shapes)]) + EVENT)

    async def chunks(self, n):
        bodies = [b"zz\r\n", b"-1\r\n{}\r\n", b"ffffffffffffffff\r\n", b"11;" + b"a" * 100_000, b"5\r\n{}", b"0\r\n" + b"x: y\r\n" * 10_000, b"11\r\n" + EVENT, b"\r\n\r\n"]
        await self.repeat(post("transfer-encoding: chunked") + bodies[n % len(bodies)])

    async def large_bodies(self, _):
        await self.repeat(post("content-length: 20000000") + b" " * 20_000_000)

    async def pipelined(self, _):
        await self.repeat(f"GET /v1/token HTTP/1.1\r\n{HEAD}\r\n".encode() * 1000)

    async def unread(self, n):
        """A batch whose answers nobody reads: errors are the longest."""
        line = json.dumps({"type": "plain" if n % 2 else "x" * 900}).encode() + b"\n"
        async with self.connection() as (reader, writer):
            reader._transport.pause_reading()
            body = line * 10_000
            writer.write(post(f"content-length: {len(body)}", media_type="application/x-ndjson") + body)
            with contextlib.suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(writer.drain(), max(0.1, self.end - time.monotonic()))
            while self.goes_on:
                await asyncio.sleep(0.2)

    async def half_closed(self, _):
        while self.goes_on:
            async with self.connection() as (reader, writer):
                writer.write(post("content-length: 17") + EVENT[:9])
                writer.write_eof()
                await self.told(reader, 1)

    async def reset(self, _):
        """Ends the connection without reading, while the request is under way."""
        while self.goes_on:
            async with self.connection() as (_, writer):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.write(post("content-length: 17") + EVENT)
                await asyncio.sleep(0.02)

    async def junk(self, _):
        await self.repeat(os.urandom(60_000))


ATTACKS = {
    "slow_headers": SLOW, "slow_bodies": SLOW, "slow_chunks": SLOW, "slow_batches": SLOW, "idle": 10_000, "big_headers": 20, "many_headers": 20, "wrong_lengths": 45, "chunks": 40,
    "large_bodies": 8, "pipelined": 10, "unread": 60, "half_closed": 20, "reset": 50, "junk": 20,
}


async def main(attack, seconds):
    client = Client(time.monotonic() + seconds)
    clients = [asyncio.ensure_future(getattr(client, attack)(n)) for n in range(ATTACKS[attack])]
    done = await asyncio.gather(*clients, return_exceptions=True)
    failed = {}
    for error in filter(None, done):
        failed[type(error).__name__] = failed.get(type(error).__name__, 0) + 1
    print(json.dumps({"opened": client.opened, "statuses": client.statuses, "failed": failed}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[3], float(sys.argv[4])))
