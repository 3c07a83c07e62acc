"""The pictures of docs/how-to/page.md."""

import json
import os
import unittest

from harness import DESKTOP, PHONE, Case, expect
from serving import eventually


@unittest.skipUnless(os.environ.get("HATCHERY_PICTURES"), "scripts/page --pictures writes them")
class Pictures(Case):
    types = """
  mail: { keep-payload: 4KiB }
  invoice: { paused: "the bank is closed until Monday" }
  payment: { breaker: { errors: 100, window: 30s, cooldown: 1m } }
  hr-import: { retry: { delays: [10s, 1m], max-attempts: 2 } }
  payroll: { retry: { max-attempts: 1 } }
  reminder: {}
  report: { register: off }"""

    def test_now(self):
        for number in range(40):
            self.topology("publish", "mail", "--payload", "{}", "--delay", f"{10 + number}m")
        lines = "\n".join('{"type": "%s", "delay": "%s"}' % (name, delay) for name, delay, times in
                          [("reminder", "3h", 120), ("payment", "40s", 7), ("hr-import", "2d", 800), ("invoice", "20h", 3)] for _ in range(times))
        self.topology("publish", "--batch", "-", stdin=lines)
        for name, times in (("invoice", 12), ("hr-import", 3)):
            self.topology("publish", "--batch", "-", stdin="\n".join('{"type": "%s"}' % name for _ in range(times)))
        self.start("work", "--type", "mail", "--type", "payment", "--type", "reminder", "--type", "report", "--exec", "cat")
        page = self.open(size=DESKTOP)
        expect(page.locator(".finding").filter(has_text="it has no consumer")).to_be_visible()
        expect(page.locator(".next li").first).to_be_visible()
        self.picture(page, "now")
        page = self.open(size=PHONE, scheme="dark")
        expect(page.locator(".finding").filter(has_text="it has no consumer")).to_be_visible()
        self.picture(page, "phone")

    def test_topology(self):
        page = self.open("#/topology")
        expect(page.get_by_text("processor.mail")).to_be_visible()
        self.picture(page, "topology")

    def test_letters(self):
        for reason, number in (("no employee 104711", 3), ("connection refused: hr.example.com:443", 12)):
            lines = [{"type": "payroll", "id": f"{reason[:2]}-{n}", "reference": str(4711 + n), "payload": {"employee": 4711 + n}} for n in range(number)]
            before = self.letters()
            self.topology("publish", "--batch", "-", stdin="\n".join(map(json.dumps, lines)))
            worker = self.start("work", "--type", "payroll", "--exec", self.failing(reason))
            eventually("they are dead letters", lambda: self.letters() == before + number)
            self.stop(worker)
        page = self.open("#/letters?type=payroll", {"width": 1280, "height": 640})
        page.locator("summary").first.click()
        page.get_by_role("button", name="Replay …").first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        self.picture(page, "letters")

    def letters(self):
        return json.loads(self.topology("dead-letter", "list", "--type", "payroll", "-o", "json"))["found"]
