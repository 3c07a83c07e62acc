"""A real server over a real RabbitMQ and a real Redis, and a browser that looks at its page."""

import hashlib
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = Path(os.environ["HATCHERY_BUILT"]) / "topology"
AXE = next(Path(place) for place in os.environ["PYTHONPATH"].split(":") if place) / "axe_playwright_python" / "axe.min.js"
# A look at the broker takes up to twelve seconds, and the page looks every ten.
PATIENCE = 60
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 800}
# What a person could put anywhere: it would run if anything made markup of it.
SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\"'>"

expect.set_options(timeout=PATIENCE * 1000)


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


NUMBERS = itertools.count(1)


class Case(unittest.TestCase):
    """A topology of its own, a server for it, and a browser."""

    # The types of topology.yaml, and further keys.
    types = "{ mail: {} }"
    more = ""
    # The rights of the token that the browser gives, or None for a server without tokens.
    rights = None
    servers = None

    @classmethod
    def setUpClass(cls):
        if Case.servers is None:
            Case.servers = Servers()
            Case.playwright = sync_playwright().start()
            Case.browser = Case.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        cls.place = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.name = f"page{next(NUMBERS)}"
        (cls.place / "topology.yaml").write_text(f"version: 1\nname: {cls.name}\ntypes: {cls.types}\n{cls.more}")
        cls.topology("apply", "--auto-approve")
        cls.port = free_port()
        cls.url = f"http://127.0.0.1:{cls.port}/"
        cls.running = []
        cls.addClassCleanup(cls.stop_all)
        cls.serve()

    def setUp(self):
        self.errors = []

    @classmethod
    def topology(cls, *arguments, codes=(0,), stdin=None):
        """Runs a command to its end, and returns what it prints."""
        done = subprocess.run([TOPOLOGY, *arguments], cwd=cls.place, input=stdin, capture_output=True, text=True, timeout=120)
        assert done.returncode in codes, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @classmethod
    def start(cls, *arguments):
        """Starts a command that runs until the end of the tests, or until `stop`."""
        with (cls.place / "log").open("a") as log:
            process = subprocess.Popen([TOPOLOGY, *arguments], cwd=cls.place, stdout=log, stderr=log)
        cls.running.append(process)
        return process

    @classmethod
    def failing(cls, reason):
        """Returns a handler that fails with this reason."""
        (cls.place / "reason").write_text(reason)
        handler = cls.place / "fail"
        handler.write_text(f"#!/bin/sh\ncat {cls.place}/reason >&2\nexit 1\n")
        handler.chmod(0o755)
        return str(handler)

    @classmethod
    def serve(cls):
        arguments = ["serve", "--listen", f"127.0.0.1:{cls.port}"]
        if cls.rights is not None:
            lines = [f"{rights.replace(',', '-').replace(':', '-')} {hashlib.sha256(rights.encode()).hexdigest()} {rights}" for rights in cls.rights]
            (cls.place / "tokens").write_text("\n".join(lines))
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
        for process in list(cls.running):
            cls.stop(process)

    def open(self, address="", size=DESKTOP, scheme="light", **options):
        """Opens the page in a browser of its own, and notes what goes wrong in it."""
        context = self.browser.new_context(viewport=size, color_scheme=scheme, **options)
        self.addCleanup(context.close)
        if os.environ.get("HATCHERY_UNBUILT"):
            context.route(lambda url: url.startswith(self.url) and "/v1/" not in url, unbuilt)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: line.type == "error" and "status of 4" not in line.text and "ERR_" not in line.text and self.errors.append(line.text))
        page.goto(f"{self.url}{address}")
        self.addCleanup(lambda: self.assertEqual(self.errors, []))
        return page

    def check_no_script_ran(self, page):
        self.assertIsNone(page.evaluate("window.ran ?? null"))
        self.assertEqual(page.locator("main img, main script, dialog img, dialog script").count(), 0)

    def check_access(self, page):
        """Fails if axe finds anything that keeps people from using the page, or if it is wider than the window."""
        page.evaluate(f"{AXE.read_text()}; 0")
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        said = [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found]
        self.assertEqual(said, [], page.url)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        self.assertLessEqual(wide, 0, f"{page.url} is wider than the window")

    def check_every_look(self, address, ready):
        """Checks a view on a phone and a desktop, light and dark. `ready`: a text that is there once it is drawn."""
        for size in (PHONE, DESKTOP):
            for scheme in ("light", "dark"):
                page = self.open(address, size, scheme)
                expect(page.get_by_text(ready).first).to_be_visible()
                self.check_access(page)
                page.context.close()

    def picture(self, page, name):
        """Writes a picture of the documentation, if they are asked for."""
        if folder := os.environ.get("HATCHERY_PICTURES"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{folder}/{name}.png")


def unbuilt(route):
    """Answers with a file as it is in the folder now, instead of the one that was built into the program."""
    name = Path(route.request.url.split("#")[0]).name if "/page/" in route.request.url else "index.html"
    kind = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[Path(name).suffix]
    body = (ROOT / "serve/src/page" / name).read_text()
    route.fulfill(response=route.fetch(), body=body, status=200, content_type=f"{kind}; charset=utf-8")


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
