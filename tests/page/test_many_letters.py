"""A hundred thousand dead letters, in the wire format."""

import os
import re
from collections import Counter

import pika
from harness import Case, expect

LETTERS = 100_000
# The server tells a thousand reasons apart.
TOLD_APART = 1_000


def reason(number):
    """Returns a reason that many letters have, or one of its own for each 66th letter."""
    return f"HTTP {500 + number % 3}" if number % 66 else f"no field {''.join(chr(ord('a') + int(digit)) for digit in str(number))}"


class ManyLetters(Case):
    types = "{ mail: {}, import: {} }"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
        channel = connection.channel()
        failed = "2026-06-01T09:00:00.000Z"
        for number in range(LETTERS):
            failure = f"{failed} {reason(number)}"
            headers = {"reference": f"r-{number}", "attempts": 5, "reason": "error", "first_failure": failure, "last_failure": failure}
            properties = pika.BasicProperties(message_id=f"m-{number}", headers=headers, delivery_mode=2)
            channel.basic_publish(f"{cls.name}.dead-letter", "mail.dead-letter", b'{"to": "ada"}', properties)
        connection.close()

    def test_they_are_counted_and_a_hundred_are_shown(self):
        page = self.open()
        expect(page.get_by_role("row").filter(has_text="mail").first).to_contain_text("100K")
        self.thousandfold(page)
        expect(page.get_by_text("1,000 types, the first 60 drawn")).to_be_visible()
        print(f"\nfirst paint of a thousand types: {self.first_paint(page):.0f} ms")

        page = self.open()
        looks = []
        page.on("request", lambda request: "/v1/dead-letters" in request.url and looks.append(request.url))
        with page.expect_response("**/v1/dead-letters?*", timeout=120_000):
            page.get_by_role("link", name="Dead letters of mail").click()
        page.reload()
        print(f"first paint of a hundred thousand letters: {self.first_paint(page):.0f} ms")
        with page.expect_response("**/v1/dead-letters?*", timeout=120_000) as answer:
            pass
        found = answer.value.json()
        self.assertEqual((found["found"], len(found["letters"]), found["warnings"]), (LETTERS, 100, []))
        expect(page.get_by_text("100,000 letters, 1,000 reasons or more.").first).to_be_visible()
        took = page.evaluate("performance.getEntriesByType('resource').find(({ name }) => name.includes('/v1/dead-letters')).responseEnd")
        print(f"the letters are there after {took / 1000:.1f} s")
        self.assertLess(self.first_paint(page), took)

        expect(page.get_by_role("heading", name="The first 100 letters")).to_be_visible()
        expect(page.locator(".letter")).to_have_count(100)
        reasons = Counter(map(reason, range(LETTERS)))
        groups = page.locator(".groups li")
        expect(groups).to_have_count(50)
        for at, (words, number) in enumerate(reasons.most_common(3)):
            expect(groups.filter(has_text=words)).to_contain_text(f"{number:,}")
        others = LETTERS - sum(reasons[words] for words in ("HTTP 500", "HTTP 501", "HTTP 502")) - 47
        expect(page.get_by_text(f"{others:,} more letters of other reasons.")).to_be_visible()
        self.assertEqual(len(found["groups"]), TOLD_APART)
        self.assertEqual(len(looks), 2, looks)
        self.check_access(page)

        page.get_by_role("button", name="Replay …").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Replay 10,000 letters?", timeout=120_000)
        expect(dialog).to_contain_text("More letters match. They stay: replay again for the rest.")
        page.keyboard.press("Escape")
        self.assertEqual(len(looks), 3, looks)
