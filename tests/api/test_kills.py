"""Clients that publish with ids of their own, while the server and the broker are killed again and again: each event runs once."""

import http.client
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from harness import Case, bearer
from serving import eventually

EVENTS = int(os.environ.get("HATCHERY_EVENTS", "2000"))
CLIENTS = 8
KILLS = 20
# Of so many kills one is the broker's.
BROKER = 4


class Handler(BaseHTTPRequestHandler):
    """The service that events are posted to."""

    protocol_version = "HTTP/1.1"
    runs, lock = Counter(), Lock()

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"] or 0))
        with self.lock:
            self.runs[self.headers["event-id"]] += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Kills(Case):
    def test_each_event_runs_once(self):
        service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(service.server_close)
        Thread(target=service.serve_forever, daemon=True).start()
        self.addCleanup(service.shutdown)
        self.start("work", "--type", "mail", "--http", f"http://127.0.0.1:{service.server_port}/")
        self.confirmed, self.answers, self.lock = 0, Counter(), Lock()
        began = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(self.publish_all, range(n, EVENTS, CLIENTS)) for n in range(CLIENTS)]
            for kill in range(1, KILLS + 1):
                self.await_growth(lambda: self.confirmed, EVENTS * kill // (KILLS + 1))
                if kill % BROKER == 0:
                    self.servers.tell("kill rabbitmq")
                    self.servers.tell("start rabbitmq")
                else:
                    self.stop(self.server)
                    self.serve()
            for client in clients:
                client.result()
        self.await_growth(lambda: len(Handler.runs), EVENTS)
        eventually("no copy of an event is left", self.is_empty)
        self.assertEqual({f"{n}" for n in range(EVENTS)}, set(Handler.runs))
        self.assertEqual([name for name, runs in Handler.runs.items() if runs > 1], [])
        took = time.monotonic() - began
        print(f"{EVENTS} events of {CLIENTS} clients, each run once, in {took:.0f} s; {KILLS // BROKER} kills of the broker, "
              f"{KILLS - KILLS // BROKER} of the server; answers {dict(self.answers)}")

    def await_growth(self, count, least):
        """Waits until there are so many, as long as there are more from time to time."""
        while (before := count()) < least:
            eventually("there are more", lambda: count() > before)

    def publish_all(self, numbers):
        """Publishes each event until it is confirmed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        for number in numbers:
            body = json.dumps({"type": "mail", "id": f"{number}"})
            while True:
                try:
                    connection.request("POST", "/v1/events", body, {"content-type": "application/json", **bearer("publishes")})
                    answer = connection.getresponse()
                    answer.read()
                    answered = answer.status
                except (OSError, http.client.HTTPException) as error:
                    answered = type(error).__name__
                    connection.close()
                with self.lock:
                    self.answers[answered] += 1
                    self.confirmed += answered in (200, 201)
                if answered in (200, 201):
                    break
                assert answered in (429, 503) or isinstance(answered, str), answered
                time.sleep(0.1)
        connection.close()

    def is_empty(self):
        answer = self.ask("GET", "/v1/topology", headers=bearer("all"))
        queues = answer.json["queues"] if answer.status == 200 else []
        return queues and all((queue["ready"], queue["unacknowledged"]) == (0, 0) for queue in queues if "processor" in queue["queue"])
