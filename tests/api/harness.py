"""A real server over a real RabbitMQ and a real Redis, and requests that an HTTP library would not send."""

import hashlib
import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = Path(os.environ["HATCHERY_BUILT"]) / "topology"
PATIENCE = 60
TYPES = """
  mail: { keep-payload: 1KiB }
  plain: { register: off }
  latest: { coalesce: latest }
  payment: { breaker: { errors: 2, window: 30s, cooldown: manual }, retry: { delays: [1h] } }
schedules:
  daily: { type: mail, every: 1d }
sources:
  hr: { declare: on, events: [ { type: mail } ] }
life-cycle: all
"""
# The names of the tokens, each with what its holder may. The token is the SHA-256 of the name.
RIGHTS = {"reads": "read", "publishes": "publish", "mails": "publish:mail", "operates": "operate", "all": "read,publish,operate"}


class Servers:
    """RabbitMQ and Redis, which end with the tests."""

    def __init__(self):
        command = [ROOT / "scripts/services", "hold", *(["--yes"] if os.environ.get("CI") else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.strip() == "READY":
                return
            assert not line.startswith("FAILED"), line
            name, _, url = line.strip().partition("=")
            os.environ[name] = url
        raise AssertionError("the servers end without READY")


def token(name):
    return hashlib.sha256(name.encode()).hexdigest()


def bearer(name):
    return {"authorization": f"Bearer {token(name)}"}


class Answer:
    """An answer, with its body as text."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.text = status, headers, body.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.text)


class Case(unittest.TestCase):
    """A topology of its own, and a server for it."""

    # Further lines of the file of tokens, or None for a server without tokens.
    tokens = ""
    servers = None

    @classmethod
    def setUpClass(cls):
        if Case.servers is None:
            Case.servers = Servers()
        cls.place = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (cls.place / "topology.yaml").write_text(f"version: 1\nname: api\ntypes: {TYPES}")
        subprocess.run([TOPOLOGY, "apply", "--auto-approve"], cwd=cls.place, check=True, capture_output=True, timeout=120)
        cls.port = free_port()
        arguments = ["--listen", f"127.0.0.1:{cls.port}"]
        if cls.tokens is not None:
            hashed = {name: hashlib.sha256(token(name).encode()).hexdigest() for name in RIGHTS}
            lines = [f"{name} {hashed[name]} {rights}\n" for name, rights in RIGHTS.items()]
            (cls.place / "tokens").write_text("".join(lines) + cls.tokens)
            arguments += ["--tokens", "tokens"]
        cls.log = cls.place / "log"
        with cls.log.open("w") as log:
            cls.server = subprocess.Popen([TOPOLOGY, "serve", *arguments], cwd=cls.place, stdout=log, stderr=log)
        cls.addClassCleanup(cls.stop)
        eventually("the server answers", lambda: cls.ask("GET", "/v1/openapi.json").status == 200)
        cls.description = cls.ask("GET", "/v1/openapi.json").json

    @classmethod
    def stop(cls):
        """Stops the server. Nothing that a client sends may make it panic, or end it."""
        ended = cls.server.poll()
        cls.server.terminate()
        cls.server.wait(60)
        log = cls.log.read_text()
        assert ended is None and "panicked" not in log, f"the server has ended or panicked:\n{log[-4000:]}"

    @classmethod
    def ask(cls, method, path, body=None, headers=None, timeout=30):
        """Sends a request with an HTTP library."""
        connection = http.client.HTTPConnection("127.0.0.1", cls.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @classmethod
    def send(cls, name, method, path, value):
        """Sends JSON with the token of this name."""
        body = value if isinstance(value, (bytes, str)) else json.dumps(value)
        return cls.ask(method, path, body, {"content-type": "application/json", **bearer(name)})

    @classmethod
    def raw(cls, data, timeout=10, shut=False):
        """Sends bytes as they are, and returns what comes until the server closes the connection or sends no more."""
        with socket.create_connection(("127.0.0.1", cls.port), timeout=timeout) as connection:
            received = b""
            try:
                connection.sendall(data)
                if shut:
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    received += part
            except (TimeoutError, ConnectionError):
                pass
            return received

    @classmethod
    def memory(cls):
        """Returns the memory of the server now and at most until now, in MiB."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{cls.server.pid}/status").read_text().splitlines())
        return tuple(int(lines[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))

    @classmethod
    def taken(cls, queue):
        """Takes all messages of a queue, and returns their ids."""
        management = urllib.parse.urlsplit(os.environ["RABBITMQ_MANAGEMENT_URL"])
        vhost = os.environ["AMQP_URL"].rsplit("/", 1)[1] or "%2f"
        address = f"http://{management.hostname}:{management.port}/api/queues/{vhost}/{queue}/get"
        passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        passwords.add_password(None, address, management.username, management.password)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
        asked = json.dumps({"count": 1000, "ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 1}).encode()
        ids = []
        while True:
            request = urllib.request.Request(address, asked, {"content-type": "application/json"})
            messages = json.load(opener.open(request, timeout=PATIENCE))
            if not messages:
                return ids
            ids += [message["properties"]["message_id"] for message in messages]


def operations(description):
    """Returns each operation of a description: its method, its path and what is said of it."""
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


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
