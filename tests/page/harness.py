"""A server, and a browser that looks at its page."""

import hashlib
import os
from pathlib import Path

import serving
from playwright.sync_api import expect, sync_playwright
from serving import PATIENCE, ROOT

AXE = Path(os.environ["PYTHONPATH"].split(":")[0]) / "axe_playwright_python" / "axe.min.js"
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 800}
# What a person could put anywhere: it would run if anything made markup of it.
SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\"'>"
# Browsers of before 2024 lack these functions, so the page must do without them.
NEWER = """for (const [of, names] of [[Map, ["groupBy"]], [Object, ["groupBy"]], [Promise, ["withResolvers", "try"]]]) names.forEach((name) => delete of[name]);"""

expect.set_options(timeout=PATIENCE * 1000)


class Case(serving.Case):
    """A topology of its own, a server for it, and a browser."""

    # The rights of the token that the browser gives, or None for a server without tokens.
    rights = None
    browser = None

    @classmethod
    def setUpClass(cls):
        if Case.browser is None:
            Case.playwright = sync_playwright().start()
            Case.browser = Case.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        if cls.rights is not None:
            lines = [f"{rights.replace(',', '-').replace(':', '-')} {hashlib.sha256(rights.encode()).hexdigest()} {rights}" for rights in cls.rights]
            cls.tokens = "\n".join(lines)
        super().setUpClass()

    def setUp(self):
        self.errors = []

    @classmethod
    def failing(cls, reason):
        """Returns a handler that fails with this reason."""
        (cls.place / "reason").write_text(reason)
        handler = cls.place / "fail"
        handler.write_text(f"#!/bin/sh\ncat {cls.place}/reason >&2\nexit 1\n")
        handler.chmod(0o755)
        return str(handler)

    def open(self, address="", size=DESKTOP, scheme="light", script=""):
        """Opens the page in a browser of its own, in which a script has run before, and notes what goes wrong in it."""
        context = self.browser.new_context(viewport=size, color_scheme=scheme)
        self.addCleanup(context.close)
        context.set_default_timeout(PATIENCE * 1000)
        if os.environ.get("HATCHERY_UNBUILT"):
            context.route(lambda url: url.startswith(self.url) and "/v1/" not in url, unbuilt)
        context.add_init_script(NEWER + script)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: line.type == "error" and "status of 4" not in line.text and "ERR_" not in line.text and self.errors.append(line.text))
        page.goto(f"{self.url}{address}")
        self.addCleanup(lambda: self.assertEqual(self.errors, []))
        return page

    def open_with(self, token, address=""):
        """Opens the page, and signs in."""
        page = self.open(address)
        expect(page.get_by_role("dialog")).to_contain_text("This server answers those who have a token.")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Continue").click()
        return page

    def thousandfold(self, page):
        """Gives a page the status of a thousand types, all like the first one, and loads it anew."""
        def answer(route):
            answered = route.fetch()
            status = answered.json()
            status["types"] = [status["types"][0] | {"type": f"type-{n:04}"} for n in range(1000)]
            route.fulfill(response=answered, json=status)

        page.context.route("**/v1/changes", lambda route: route.fulfill(status=429, json={"detail": "full"}))
        page.context.route("**/v1/status", answer)
        page.reload()

    def first_paint(self, page):
        """Returns after how many milliseconds the page has first painted something."""
        paints = "new Promise((done) => new PerformanceObserver((list) => done(list.getEntries()[0].startTime)).observe({ type: 'paint', buffered: true }))"
        return page.evaluate(paints)

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
