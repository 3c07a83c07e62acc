"""A real `topology serve` over a real RabbitMQ and a real Redis, for tests/api and tests/page."""

import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = Path(os.environ["HATCHERY_BUILT"]) / "topology"
# A look at the broker takes up to twelve seconds, and the page looks every ten.
PATIENCE = 60


class Servers:
    """RabbitMQ and Redis, which end with the tests."""

    def __init__(self):
        command = [ROOT / "scripts/services", "hold", *(["--yes"] if os.environ.get("CI") else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.lines_to("READY"):
            name, _, url = line.partition("=")
            os.environ[name] = url

    def lines_to(self, last):
        lines = []
        for line in self.process.stdout:
            if line.strip() == last:
                return lines
            assert not line.startswith("FAILED"), line
            lines.append(line.strip())
        raise AssertionError(f"the servers end without {last}")

    def tell(self, command):
        """Gives a command of `scripts/services hold`, and waits until it is done."""
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        self.lines_to(f"DONE {command}")


class Case(unittest.TestCase):
    """A topology of its own, and a server for it."""

    # The types of topology.yaml, and further keys.
    types = "{ mail: {} }"
    more = ""
    # The file of tokens, or None for a server without tokens.
    tokens = None
    servers = None
    number = 0

    @classmethod
    def setUpClass(cls):
        if Case.servers is None:
            Case.servers = Servers()
        Case.number += 1
        cls.place = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.log = cls.place / "log"
        cls.name = f"served{Case.number}"
        (cls.place / "topology.yaml").write_text(f"version: 1\nname: {cls.name}\ntypes: {cls.types}\n{cls.more}")
        cls.topology("apply", "--auto-approve")
        cls.port = free_port()
        cls.url = f"http://127.0.0.1:{cls.port}/"
        cls.running = []
        cls.addClassCleanup(cls.stop_all)
        cls.serve()

    @classmethod
    def topology(cls, *arguments, codes=(0,), stdin=None):
        """Runs a command to its end, and returns what it prints."""
        done = subprocess.run([TOPOLOGY, *arguments], cwd=cls.place, input=stdin, capture_output=True, text=True, timeout=120)
        assert done.returncode in codes, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @classmethod
    def start(cls, *arguments):
        """Starts a command that runs until the end of the tests, or until `stop`."""
        with cls.log.open("a") as log:
            process = subprocess.Popen([TOPOLOGY, *arguments], cwd=cls.place, stdout=log, stderr=log)
        cls.running.append(process)
        return process

    @classmethod
    def serve(cls):
        arguments = ["serve", "--listen", f"127.0.0.1:{cls.port}"]
        if cls.tokens is not None:
            (cls.place / "tokens").write_text(cls.tokens)
            arguments += ["--tokens", "tokens"]
        cls.server = cls.start(*arguments)
        eventually("the server answers", lambda: urllib.request.urlopen(f"{cls.url}v1/openapi.json").status == 200)

    @classmethod
    def stop(cls, process, by=signal.SIGKILL):
        process.send_signal(by)
        process.wait(60)
        cls.running.remove(process)

    @classmethod
    def stop_all(cls):
        """Stops what runs. Nothing may have made the server panic, or end."""
        ended = [process.args for process in cls.running if process.poll() is not None]
        for process in list(cls.running):
            cls.stop(process, signal.SIGTERM)
        log = cls.log.read_text()
        assert not ended and "panicked" not in log, f"{ended} ended, or something has panicked:\n{log[-4000:]}"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def eventually(what, check):
    """Waits until a check succeeds."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if check():
                return
        except OSError:
            pass
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.1)
