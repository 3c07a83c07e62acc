"""A server of an API, and requests that an HTTP library would not send."""

import hashlib
import http.client
import json
import os
import socket
import urllib.parse
import urllib.request
from pathlib import Path

import serving
from serving import PATIENCE

# The names of the tokens, each with what its holder may. The token is the SHA-256 of the name.
RIGHTS = {"reads": "read", "publishes": "publish", "mails": "publish:mail", "operates": "operate", "all": "read,publish,operate"}


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


class Case(serving.Case):
    """A topology of its own, and a server for it."""

    types = """
  mail: { keep-payload: 1KiB }
  plain: { register: off }
  latest: { coalesce: latest }
  payment: { breaker: { errors: 2, window: 30s, cooldown: manual }, retry: { delays: [1h] } }"""
    more = """
schedules:
  daily: { type: mail, every: 1d }
sources:
  hr: { declare: on, events: [ { type: mail } ] }
life-cycle: all
"""
    tokens = "".join(f"{name} {hashlib.sha256(token(name).encode()).hexdigest()} {rights}\n" for name, rights in RIGHTS.items())

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.description = cls.ask("GET", "/v1/openapi.json").json

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
