"""What the Python peers share: their arguments, the phases, the count of the handlers, and the line with the result."""

import json
import mmap
import multiprocessing
import os
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika

# Fork, so that a child needs no imports before it begins.
FORK = multiprocessing.get_context("fork")
# A run that stands still for this long has lost a message.
STALLED_SECONDS = 60.0


def end_with_parent() -> None:
    """Ends this process once its parent has ended, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@dataclass
class Arguments:
    url: str
    count: int
    payload: str
    settings: dict[str, Any]

    @classmethod
    def read(cls, settings: dict[str, Any]) -> "Arguments":
        """Reads URL, N, BYTES and the optional JSON object that overrides the settings."""
        url, count, size, *overrides = sys.argv[1:]
        for text in overrides:
            settings = settings | json.loads(text)
        return cls(url, int(count), "x" * int(size), settings)


class Ran:
    """Counts the handlers that ran. Each process counts in a file of its own, and the parent reads the sum."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.lock = threading.Lock()
        self.mapped: mmap.mmap | None = None
        self.ran = 0

    def one(self) -> None:
        with self.lock:
            if self.mapped is None:
                path = self.folder / str(os.getpid())
                path.write_bytes(bytes(8))
                with path.open("r+b") as file:
                    self.mapped = mmap.mmap(file.fileno(), 8)
            self.ran += 1
            struct.pack_into("=Q", self.mapped, 0, self.ran)

    def total(self) -> int:
        contents = (path.read_bytes() for path in self.folder.iterdir())
        return sum(struct.unpack("=Q", content)[0] for content in contents if len(content) == 8)


@contextmanager
def counting() -> Iterator[Ran]:
    with tempfile.TemporaryDirectory() as folder:
        yield Ran(folder)


class Phase:
    """A part of the run. Its first and last words on standard output let the caller measure its CPU time."""

    def __init__(self, begin: str, end: str) -> None:
        self.begin, self.end = begin, end

    def __enter__(self) -> "Phase":
        print(self.begin, flush=True)
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.begun
        print(self.end, flush=True)


def wait_until(reached: Callable[[], int], count: int) -> None:
    """Waits until the number is `count`. Fails if it exceeds the count, or stands still for long."""
    last, changed = -1, time.monotonic()
    while (now := reached()) != count:
        if now > count:
            raise SystemExit(f"{now} instead of {count}")
        if now != last:
            last, changed = now, time.monotonic()
        elif time.monotonic() - changed > STALLED_SECONDS:
            raise SystemExit(f"stopped at {now} of {count}")
        time.sleep(0.005)


class Queue:
    """The peer's queue, as the broker sees it."""

    def __init__(self, url: str, name: str) -> None:
        parameters = pika.URLParameters(url)
        # pika answers heartbeats only while it is called, and nothing calls it during a phase.
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.name = name

    def delete(self) -> None:
        self.channel.queue_delete(self.name)

    def ready(self) -> int:
        """Returns how many messages wait."""
        return self.channel.queue_declare(self.name, passive=True).method.message_count


class Adders:
    """Processes that publish together. They connect at once, and wait for `run`."""

    def __init__(
        self,
        processes: int,
        count: int,
        connect: Callable[[], None],
        add: Callable[[], object],
        close: Callable[[], None],
    ) -> None:
        self.start = FORK.Barrier(processes + 1)

        def run(share: int) -> None:
            end_with_parent()
            connect()
            self.start.wait()
            for _ in range(share):
                add()
            # Sends what the client has still in its buffer.
            close()

        shares = [count * (i + 1) // processes - count * i // processes for i in range(processes)]
        self.processes = [FORK.Process(target=run, args=(share,), daemon=True) for share in shares]
        for process in self.processes:
            process.start()

    def run(self) -> None:
        """Lets all publish, and waits until they have ended."""
        self.start.wait(STALLED_SECONDS)
        for process in self.processes:
            process.join()
            if process.exitcode != 0:
                raise SystemExit("a publisher failed")


def report(peer: str, version: str, arguments: Arguments, add: Phase, work: Phase) -> None:
    result = {
        "peer": peer,
        "version": version,
        "settings": arguments.settings,
        "added_per_second": arguments.count / add.seconds,
        "processed_per_second": arguments.count / work.seconds,
    }
    print(json.dumps(result), flush=True)
