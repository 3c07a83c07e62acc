"""Requests of somebody who wants what is not theirs. Each test says what was tried; docs/testing.md has the list."""

import hashlib
import json

from harness import Case, bearer, operations, token

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'>"


def filled(path):
    return path.replace("{type}", "mail").replace("{id}", "nobody").replace("{name}", "daily")


class Attacks(Case):
    def check_inert(self, answer):
        """An answer with what people have written is nothing that a browser would draw or run."""
        self.assertRegex(answer.headers["content-type"], r"^application/(problem\+json|json|x-ndjson)$|^text/event-stream")
        self.assertEqual(answer.headers.get("x-content-type-options"), "nosniff")

    def test_no_operation_takes_what_is_no_token(self):
        for method, path, operation in operations(self.description):
            if operation.get("security") == []:
                continue
            with self.subTest(f"{method} {path}"):
                body = "{}" if method == "POST" else None
                json_type = {"content-type": "application/json"} if method == "POST" else {}

                def status(headers, query=""):
                    return self.ask(method, f"{filled(path)}{query}", body, {**json_type, **headers}).status

                wrong = ["Bearer", "Bearer ", "Bearer wrong", f"Basic {token('all')}", f"Bearer {token('all')}x", f"Bearer {token('all')[:-1]}"]
                # The hash of a token, which a stolen file of tokens has, is no token.
                wrong += [f"Bearer {hashlib.sha256(token('all').encode()).hexdigest()}", f"Bearer {token('all').upper()}", token("all")]
                self.assertEqual({status({"authorization": value}) for value in wrong}, {401})
                self.assertEqual((status({}), status({}, f"?access_token={token('all')}")), (401, 401))
        two = f"authorization: Bearer wrong\r\nauthorization: Bearer {token('all')}\r\n"
        self.assertIn(b" 401 ", self.raw(f"GET /v1/token HTTP/1.1\r\nhost: a\r\n{two}connection: close\r\n\r\n".encode()).split(b"\r\n")[0])

    def test_the_page_has_no_other_files(self):
        for path in ("/page/../../Cargo.toml", "/page/..%2f..%2fetc/passwd", "/page/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/page//etc/passwd",
                     "/page/main.js%00.html", "/page/..\\..\\etc\\passwd", "/page/", "/page", "/page/....//", "/tokens", "/topology.yaml", "/v1/../tokens",
                     "/page/%c0%ae%c0%ae/", "/page/main.js/../../../tokens", "/.git/config"):
            first = self.raw(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()).split(b"\r\n")[0]
            self.assertRegex(first, rb"^HTTP/1.1 40[04] ", path)

    def test_scripts_in_every_field_are_inert(self):
        event = {"type": "mail", "id": SCRIPT, "reference": SCRIPT, "correlation_id": SCRIPT, "payload": SCRIPT, "delay": "1h"}
        headers = {"content-type": "application/json", **bearer("all")}
        answers = [self.ask("POST", "/v1/events", json.dumps(event), headers)]
        self.assertEqual(answers[0].status, 201, answers[0].text)
        answers += [self.ask("POST", "/v1/events", json.dumps({**event, field: SCRIPT}), headers) for field in ("type", "delay", "nbf", "expires", SCRIPT)]
        batch = {"content-type": "application/x-ndjson", **bearer("all")}
        answers.append(self.ask("POST", "/v1/events", json.dumps({**event, "type": SCRIPT}) + "\n" + SCRIPT, batch))
        query = "id=" + "".join(f"%{byte:02x}" for byte in SCRIPT.encode())
        answers.append(self.ask("GET", f"/v1/events/mail?{query}", headers=bearer("all")))
        self.assertIn(SCRIPT, answers[-1].json["events"][0]["reference"])
        answers.append(self.ask("GET", f"/v1/events/{query[3:]}?{query}&{query}", headers=bearer("all")))
        answers.append(self.send("all", "POST", "/v1/pauses", {"type": "mail", "reason": SCRIPT}))
        answers.append(self.ask("GET", "/v1/pauses", headers=bearer("all")))
        self.assertIn(SCRIPT, [pause["reason"] for pause in answers[-1].json["pauses"]])
        answers.append(self.ask("GET", "/v1/status", headers=bearer("all"), timeout=60))
        self.send("all", "POST", "/v1/pauses/end", {"type": "mail"})
        answers.append(self.ask("GET", f"/v1/dead-letters?type={query[3:]}&reason={query[3:]}", headers=bearer("all")))
        for answer in answers:
            with self.subTest(answer.text[:80]):
                self.check_inert(answer)

    def test_a_browser_that_shows_the_picture_runs_nothing_of_it(self):
        answer = self.ask("GET", "/v1/topology.svg", headers=bearer("reads"))
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "image/svg+xml"))
        policy = answer.headers["content-security-policy"].split("; ")
        self.assertTrue({"default-src 'none'", "sandbox"} <= set(policy) and not any(part.startswith("script-src") for part in policy), policy)

    def test_no_header_and_no_line_is_smuggled_in(self):
        for text in ("a\r\nx-evil: 1", "a\nb", "a\0b", "\x7f", "é\u2028", "\ud83d\ude00"):
            for field in ("id", "reference", "correlation_id"):
                answer = self.send("all", "POST", "/v1/events", {"type": "mail", "delay": "1h", field: text})
                self.assertIn(answer.status, (201, 422), answer.text)
                self.assertNotIn("x-evil", answer.headers)
                batch = {"content-type": "application/x-ndjson", **bearer("all")}
                answer = self.ask("POST", "/v1/events", json.dumps({"type": "mail", "delay": "1h", field: text}), batch)
                self.assertEqual(answer.text.count("\n"), 1, answer.text)
        for path in ("/v1/events/mail?id=a%0d%0ax-evil:%201", "/v1/events/a%0d%0ax-evil:%201?id=a"):
            self.assertNotIn("x-evil", self.ask("GET", path, headers=bearer("all")).headers)

    def test_json_that_breaks_readers(self):
        deep = 10_000
        refused = {
            "open": b"[" * 100_000,
            "duplicate": b'{"type":"plain","type":"mail"}',
            "duplicate id": b'{"type":"mail","id":"a","id":"b"}',
            "NaN": b'{"type":"mail","payload":NaN}',
            "infinity": b'{"type":"mail","payload":-Infinity}',
            "invalid UTF-8": b'{"type":"mail","id":"\xff\xfe"}',
            "invalid UTF-8 in the payload": b'{"type":"mail","payload":"\xc3\x28"}',
            "UTF-16": '{"type":"mail"}'.encode("utf-16"),
            "lone surrogate": b'{"type":"mail","id":"\\ud800"}',
            "half a surrogate": b'{"type":"mail","reference":"\\ud83d\\u0041"}',
            "two": b'{"type":"mail"}{"type":"mail"}',
            "comment": b'{"type":"mail"} // a',
            "prototype": b'{"type":"mail","__proto__":{"a":1}}',
            "huge id": json.dumps({"type": "mail", "id": "x" * 60_000}).encode(),
            "huge reference": json.dumps({"type": "mail", "reference": "x" * 60_000}).encode(),
            "number for a text": b'{"type":"mail","id":1e999}',
            "delay without end": b'{"type":"mail","delay":"999999999999999999999d"}',
            "time without end": b'{"type":"mail","nbf":"+999999-12-31T23:59:59Z"}',
            "empty": b"",
        }
        for what, body in refused.items():
            with self.subTest(what):
                answer = self.send("all", "POST", "/v1/events", body)
                self.assertIn(answer.status, (400, 413, 422), answer.text)
                # The id of the event is in the answer, however long it is.
                self.assertLess(len(answer.text), len(body) + 4096)
                self.check_inert(answer)
        for path, body in {"/v1/pauses": b'{"type":"mail","all":1e400}', "/v1/pauses/end": b'{"reason":' + b"[" * deep,
                           "/v1/events/mail/cancel": b'{"id":' + b"[" * deep, "/v1/dead-letters/replay": b'{"limit":-1,"rate":1e99}'}.items():
            self.assertEqual(self.send("all", "POST", path, body).status, 400, path)
        # The payload is sent as the text that stands there, whatever numbers it has.
        for payload in ("1e999", "123456789012345678901234567890.000", '{"a":1,"a":2}', "[" * deep + "]" * deep, r'"\ud800"'):
            with self.subTest(payload[:40]):
                self.assertEqual(self.send("all", "POST", "/v1/events", f'{{"type":"mail","delay":"1h","payload":{payload}}}').status, 201)

    def test_the_values_of_an_array_are_no_fields(self):
        """Those who write `[…]` may mean anything but to discard letters."""
        letters = ["mail", None, None, None, None, None, False, False, None, False, None, None, None]
        for path, body in {"/v1/dead-letters/discard": letters, "/v1/dead-letters/replay": letters, "/v1/pauses": ["mail", None, None, False, None, None, None],
                           "/v1/pauses/end": ["mail", None, None, False], "/v1/events": ["mail"] + [None] * 10,
                           "/v1/events/mail/cancel": [None, "a", None, None, False, None, None]}.items():
            self.assertIn(self.send("all", "POST", path, body).status, (400, 422), path)

    def test_secrets_are_not_repeated(self):
        secret = "s3cret" + hashlib.sha256(b"secret").hexdigest()[:8]
        url = f"amqp://user:{secret}@broker/"
        quoted = url.replace("/", "%2f").replace(":", "%3a")
        answers = []
        for field in ("type", "reference", "id", "correlation_id", "delay", "nbf", "expires", url):
            answers.append(self.send("all", "POST", "/v1/events", {"type": "mail", "delay": "1h", field: url}))
        for path in (f"/v1/events/{quoted}?id=a", f"/v1/events/mail?id={quoted}", f"/v1/events/mail?{quoted}=a", f"/v1/events/mail?{url}", f"/{quoted}", f"/v1/dead-letters?since={quoted}",
                     f"/v1/dead-letters?{quoted}=1", f"/v1/dead-letters?type={quoted}"):
            answers.append(self.ask("GET", path, headers=bearer("all")))
        for method, path, operation in operations(self.description):
            if path == "/v1/changes":
                continue
            parameters = operation.get("parameters", [])
            names = [one["name"] for one in parameters if one["in"] == "path"]
            for path_of in [path.replace(f"{{{name}}}", quoted) for name in names]:
                answers.append(self.send("all", method, filled(path_of), {"id": "a"} if method == "POST" else ""))
            for name in (one["name"] for one in parameters if one["in"] == "query"):
                answers.append(self.ask(method, f"{filled(path)}?{name}={quoted}", headers=bearer("all")))
            if body := operation.get("requestBody"):
                name = body["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
                for field in self.description["components"]["schemas"][name]["properties"]:
                    answers.append(self.send("all", method, filled(path), {field: url}))
        for wrong in (url, f"Bearer {url}", f"Bearer {secret}"):
            answers.append(self.ask("GET", f"/v1/status?token={secret}", headers={"authorization": wrong}))
        told = [answer.text for answer in answers if secret in answer.text]
        self.assertEqual(told, [], "\n".join(told))
        self.assertNotIn(secret, self.log.read_text())
        self.assertNotIn(token("all"), self.log.read_text())


class Local(Case):
    """A server without tokens, on the machine of somebody who has a browser."""

    tokens = None

    def test_a_page_of_another_site_changes_and_reads_nothing(self):
        own = f"127.0.0.1:{self.port}"
        event = json.dumps({"type": "mail", "id": "forged"})
        form = "application/x-www-form-urlencoded"
        forged = [
            # What a browser sends across sites without asking first: with its Origin, and of old browsers without.
            {"content-type": "text/plain", "origin": "http://evil.example"},
            {"content-type": form, "origin": "http://evil.example"},
            {"content-type": "multipart/form-data; boundary=a", "origin": "null"},
            {"content-type": "text/plain"},
            {"content-type": form},
            {"content-type": "text/plain; application/json"},
            {},
            # What it would send if it had asked first.
            {"content-type": "application/json", "origin": "http://evil.example"},
            {"content-type": "application/json", "origin": "null"},
            {"content-type": "application/x-ndjson", "origin": "null"},
            {"content-type": "application/json", "origin": f"http://127.0.0.1:{self.port + 1}"},
            {"content-type": "application/json", "origin": f"https://{own}"},
            # DNS rebinding.
            {"content-type": "application/json", "host": "evil.example"},
            {"content-type": "application/json", "host": f"evil.example:{self.port}", "origin": f"http://evil.example:{self.port}"},
            {"content-type": "application/json", "host": f"127.0.0.1.evil.example:{self.port}"},
            {"content-type": "application/json", "host": f"evil.example@{own}"},
        ]
        with_body = [(path, op) for method, path, op in operations(self.description) if method == "POST" and "requestBody" in op]
        for headers in forged:
            for path, _ in with_body:
                answer = self.ask("POST", filled(path), event, headers)
                self.assertIn(answer.status, (403, 415), f"{path} {headers} {answer.text}")
                self.assertNotIn("access-control-allow-origin", answer.headers)
        # Operations without a body keep to the Origin and the Host.
        for method, path, _ in operations(self.description):
            for headers in ({"origin": "null"}, {"origin": "http://evil.example"}, {"host": "evil.example"}):
                self.assertEqual(self.ask(method, filled(path), headers=headers).status, 403, f"{method} {path} {headers}")
        asked = {"origin": "http://evil.example", "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        answer = self.ask("OPTIONS", "/v1/events", headers=asked)
        self.assertFalse([name for name in answer.headers if name.startswith("access-control")])
        self.assertEqual(self.ask("GET", "/v1/events/mail?id=forged").status, 404)
        # A target in absolute form names the host too. No browser sends one to a server that is no proxy.
        for target, host, status in (("http://evil.example/v1/pauses", own, b"200"), (f"http://{own}/v1/pauses", "evil.example", b"403")):
            answer = self.raw(f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
            self.assertEqual(answer[9:12], status, target)
