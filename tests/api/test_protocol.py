"""Requests of a form that HTTP does not have, or that two readers take for different ones."""

import re
from concurrent.futures import ThreadPoolExecutor

from harness import Case, bearer, token

HEAD = f"host: localhost\r\nauthorization: Bearer {token('all')}\r\n"
LAST = f"{HEAD}connection: close\r\n"
EVENT = '{"type":"mail","delay":"1h"}'
HIDDEN = f"GET /v1/token HTTP/1.1\r\n{HEAD}\r\n"


def post(headers, body):
    return f"POST /v1/events HTTP/1.1\r\n{HEAD}content-type: application/json\r\n{headers}\r\n{body}"


def statuses(received):
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", received)]


class Protocol(Case):
    def answers(self, request, timeout=10, shut=False):
        return statuses(self.raw(request.encode() if isinstance(request, str) else request, timeout, shut))

    def answers_of_all(self, requests):
        """Sends all requests at once, because the server leaves the connection open after most of them."""
        with ThreadPoolExecutor(len(requests)) as pool:
            return dict(zip(requests, pool.map(lambda request: self.answers(request, 2), requests.values())))

    def test_no_request_is_smuggled_within_another(self):
        """A proxy in front may end the first request elsewhere than the server does. A server that answers such a request once, with 400 or by
        one of the two lengths and no more on this connection, cannot be made to take the rest for a request of somebody else."""
        length = len(EVENT)
        chunked = f"{length:x}\r\n{EVENT}\r\n0\r\n\r\n"
        shapes = {
            "length and chunked": ("content-length: 5\r\ntransfer-encoding: chunked\r\n", chunked),
            "chunked and length": (f"transfer-encoding: chunked\r\ncontent-length: {length}\r\n", chunked),
            "two lengths": (f"content-length: {length}\r\ncontent-length: 5\r\n", EVENT),
            "list of lengths": (f"content-length: {length}, 5\r\n", EVENT),
            "sign": (f"content-length: +{length}\r\n", EVENT),
            "hexadecimal": ("content-length: 0x5\r\n", EVENT),
            "space before the colon": (f"content-length : {length}\r\n", EVENT),
            "transfer-encoding with a space before the colon": ("transfer-encoding : chunked\r\n", chunked),
            "chunked, then identity": ("transfer-encoding: chunked, identity\r\n", chunked),
            "identity": ("transfer-encoding: identity\r\n", EVENT),
            "xchunked": ("transfer-encoding: xchunked\r\n", chunked),
            "vertical tab": ("transfer-encoding:\x0bchunked\r\n", chunked),
            "folded": ("transfer-encoding:\r\n chunked\r\n", chunked),
            "two encodings": ("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", chunked),
            "carriage return alone": ("x: y\rtransfer-encoding: chunked\r\n", chunked),
            "zero byte": ("x: \0\r\n", EVENT),
        }
        chunks = {
            "chunk sizes with signs": f"+{length:x}\r\n{EVENT}\r\n0\r\n\r\n",
            "chunk sizes with 0x": f"0x{length:x}\r\n{EVENT}\r\n0\r\n\r\n",
            "chunk without its end": f"{length:x}\r\n{EVENT}0\r\n\r\n",
            "chunk size too large": f"1{'0' * 16}\r\n{EVENT}\r\n0\r\n\r\n",
            "extension with a line feed": f"{length:x};\n{EVENT}\r\n0\r\n\r\n",
        }
        shapes |= {what: ("transfer-encoding: chunked\r\n", body) for what, body in chunks.items()}
        requests = {what: post(headers, body + HIDDEN) for what, (headers, body) in shapes.items()}
        answered = self.answers_of_all(requests)
        for what, statuses_of in answered.items():
            self.assertLessEqual(len(statuses_of), 1, f"{what}: the server took the rest for a request")

    def test_a_thousand_requests_at_once_are_answered_in_order(self):
        lines = "".join(post(f"content-length: {len(body)}\r\n", body) for body in (f'{{"type":"mail","delay":"1h","id":"p{n}"}}' for n in range(1000)))
        received = self.raw((lines + f"GET / HTTP/1.1\r\n{LAST}\r\n").encode(), timeout=60)
        self.assertEqual(statuses(received), [201] * 1000 + [200])
        at = [received.index(f'"p{n}"'.encode()) for n in range(1000)]
        self.assertEqual(at, sorted(at))

    def test_other_versions(self):
        self.assertEqual(self.answers("GET /\r\n"), [400])
        self.assertEqual(self.answers("GET / HTTP/1.0\r\n\r\n"), [200])
        self.assertEqual(self.answers(f"GET /v1/token HTTP/1.0\r\n{HEAD}\r\n"), [200])
        self.assertIn(self.answers("GET / HTTP/1.2\r\nhost: localhost\r\n\r\n"), ([400], [505]))
        self.assertEqual(self.answers("GET / HTTP/3.0\r\nhost: localhost\r\n\r\n"), [400])
        self.assertIn(self.answers("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ([], [400], [505]))
        upgrade = "connection: close, upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
        self.assertEqual(self.answers(f"GET /v1/token HTTP/1.1\r\n{LAST}{upgrade}\r\n"), [200])
        websocket = "connection: close, upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        self.assertEqual(self.answers(f"GET /v1/token HTTP/1.1\r\n{LAST}{websocket}\r\n"), [200])
        self.assertEqual(self.answers(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)), [400])

    def test_odd_targets(self):
        for target, expected in {"http://evil.example/v1/token": 200, "http://evil.example:99999/v1/token": 200, "*": 404, "/v1/token%00": 404, "/v1/token/": 404,
                                 "//v1/token": 404, "/v1//token": 404, "/v1/./token": 404, "/v1/x/../token": 404, "/V1/TOKEN": 404, "/v1/token;a=b": 404,
                                 "/v1/token?" + "a" * 60_000: 200, "/" + "a/" * 5_000: 404, "/v1/events/%00?id=%00": 404, "/v1/events/%ff%fe?id=a": 400,
                                 "/v1/events/..%2f..%2fstatus?id=a": 404, "/v1/events/mail?id=%ff": 404, "/v1/events/mail?id=%zz": 404, "/v1/token#a": 200}.items():
            with self.subTest(target[:60]):
                self.assertEqual(self.answers(f"GET {target} HTTP/1.1\r\n{LAST}\r\n"), [expected])
        for method in ("TRACE", "CONNECT", "PUT", "DELETE", "PATCH", "PROPFIND", "OPTIONS", "get", "GET\t", "X" * 1000):
            with self.subTest(method[:20]):
                answered = self.answers(f"{method} /v1/token HTTP/1.1\r\n{LAST}\r\n")
                self.assertIn(answered, ([400], [404], [405]))

    def test_a_method_by_another_header_is_none(self):
        for header in ("x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url", "x-forwarded-host", "forwarded"):
            self.assertEqual(self.ask("GET", "/v1/events/mail/cancel", headers={header: "POST", **bearer("all")}).status, 405)
            self.assertEqual(self.ask("GET", "/v1/status", headers={header: "/v1/openapi.json"}).status, 401)

    def test_half_a_request_changes_nothing(self):
        request = post(f"content-length: {len(EVENT) + 10}\r\n", EVENT.replace("}", ',"id":"half"}')[:-1]).encode()
        self.assertLessEqual(set(self.answers(request, shut=True)), {400})
        self.assertEqual(self.ask("GET", "/v1/events/mail?id=half", headers=bearer("all")).status, 404)
