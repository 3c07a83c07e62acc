"""A client that publishes at a steady rate, while others do the server harm: it must be served, and lose nothing."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import Case, token

SECONDS = float(os.environ.get("HATCHERY_SECONDS", "3"))
SLOW = int(os.environ.get("HATCHERY_CONNECTIONS", "500"))
RATE = 50
CONNECTIONS = 8
# What a request that could not be carried out yet is answered with, beside no answer at all.
LATER = (429, 503)
# In MiB: 512 for requests with one event, and 8 batches.
MOST_MEMORY = 1024
ATTACKS = ("slow_headers", "slow_bodies", "slow_chunks", "slow_batches", "big_headers", "many_headers", "wrong_lengths", "chunks", "large_bodies", "pipelined",
           "half_closed", "reset", "junk", "idle", "unread")


class Publisher:
    """Publishes at a steady rate over some connections, as a proxy or a pool of connections would."""

    def __init__(self, port):
        self.port, self.confirmed, self.times, self.statuses, self.number = port, set(), [], {}, 0

    async def run(self, ended, name):
        """Publishes until `ended`, and returns the times in milliseconds from when an event is there until it is confirmed."""
        self.times, self.statuses, due = [], {}, asyncio.Queue()
        crew = [asyncio.ensure_future(self.publish_all(due)) for _ in range(CONNECTIONS)]
        at = time.monotonic()
        while not ended.is_set():
            self.number += 1
            due.put_nowait((f"{name}-{self.number}", time.monotonic()))
            at += 1 / RATE
            await asyncio.sleep(max(0, at - time.monotonic()))
        for _ in crew:
            due.put_nowait(None)
        await asyncio.gather(*crew)
        return sorted(self.times)

    async def publish_all(self, due):
        connection = None
        while (event := await due.get()) is not None:
            name, since = event
            body = json.dumps({"type": "mail", "id": name}).encode()
            while True:
                try:
                    connection = connection or await asyncio.open_connection("127.0.0.1", self.port)
                    status = await asyncio.wait_for(self.publish(*connection, body), 30)
                except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    status, connection = type(error).__name__, close(connection)
                self.statuses[status] = self.statuses.get(status, 0) + 1
                if status in (200, 201):
                    break
                assert status in LATER or isinstance(status, str), status
                await asyncio.sleep(0.2)
            self.confirmed.add(name)
            self.times.append((time.monotonic() - since) * 1000)
        close(connection)

    @staticmethod
    async def publish(reader, writer, body):
        head = f"POST /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token('publishes')}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        return int(answer[9:12])


def seconds_of(attack):
    """It takes a client some seconds to open ten thousand connections."""
    return max(SECONDS, 10) if attack == "idle" or attack.startswith("slow") and SLOW > 1000 else SECONDS


def close(connection):
    if connection:
        connection[1].close()


class Hostile(Case):
    def test_the_others_are_served(self):
        asyncio.run(self.attack_all())

    async def attack_all(self):
        publisher = Publisher(self.port)
        print(f"\n{RATE} events a second, {SECONDS:.0f} s each; times in ms; memory in MiB")
        print(f"{'attack':14} {'p50':>6} {'p99':>7} {'most':>7}  memory  answers")
        for attack in ("none", *ATTACKS, "none"):
            ended = asyncio.Event()
            publishing = asyncio.ensure_future(publisher.run(ended, attack))
            during = asyncio.ensure_future(self.served_anew(seconds_of(attack) * 0.7))
            told = await self.attack(attack)
            new = await during
            ended.set()
            times = await asyncio.wait_for(publishing, 120)
            now, most = self.memory()
            p99 = times[len(times) * 99 // 100]
            print(f"{attack:14} {statistics.median(times):6.0f} {p99:7.0f} {times[-1]:7.0f}  {now:3} of {most:3}  {publisher.statuses}; "
                  f"a new connection {new:.1f} s; attackers {told}", flush=True)
            self.assertLess(most, MOST_MEMORY, attack)
        lost = publisher.confirmed - set(self.taken(f"{self.name}.processor.mail"))
        self.assertEqual(lost, set())
        print(f"{len(publisher.confirmed)} events confirmed, all of them in the queue")

    async def attack(self, attack):
        if attack == "none":
            return await asyncio.sleep(SECONDS)
        seconds = seconds_of(attack)
        command = [sys.executable, Path(__file__).with_name("hostile.py"), str(self.port), token("all"), attack, str(seconds)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), seconds + 120)
        self.assertEqual(process.returncode, 0, attack)
        return json.loads(out)

    async def served_anew(self, after):
        """Returns how long a request takes whose connection is opened during the attack."""
        await asyncio.sleep(after)
        began = time.monotonic()
        connection = await asyncio.open_connection("127.0.0.1", self.port)
        connection[1].write(f"GET /v1/token HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token('reads')}\r\n\r\n".encode())
        await asyncio.wait_for(connection[0].readuntil(b"\r\n\r\n"), 90)
        close(connection)
        return time.monotonic() - began
