"""Dead letters: what is in them, the dry run, and what follows."""

import json
import re
import time

from harness import SCRIPT, Case, expect
from serving import PATIENCE, eventually


class Letters(Case):
    types = "{ mail: { retry: { max-attempts: 1 } }, import: { retry: { max-attempts: 1 } }, scan: { retry: { max-attempts: 1 } }, old: { retry: { max-attempts: 1 } }, late: { retry: { max-attempts: 1 } } }"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work = lambda: cls.start("work", *(f"--type={name}" for name in ("mail", "import", "scan", "old", "late")), "--exec", cls.failing(f"no such mailbox {SCRIPT}"))

    def letters(self, name, number, **more):
        """Brings letters of a type into its dead-letter queue."""
        lines = [{"type": name, "id": f"{name}-{n} {SCRIPT}", "reference": SCRIPT, "payload": {"to": SCRIPT, **more}} for n in range(number)]
        self.topology("publish", "--batch", "-", stdin="\n".join(map(json.dumps, lines)))
        worker = type(self).work()
        eventually("they are dead letters", lambda: json.loads(self.topology("dead-letter", "list", "--type", name, "-o", "json"))["found"] == number)
        self.stop(worker)

    def found(self, name):
        return json.loads(self.topology("dead-letter", "list", "--type", name, "-o", "json"))["found"]

    def test_a_dry_run_says_what_a_replay_would_do_before_it_is_done(self):
        self.letters("mail", 2)
        page = self.open("#/letters?type=mail")
        expect(page.locator("main").get_by_text("2 letters, 1 reason.")).to_be_visible()
        self.check_no_script_ran(page)
        page.locator("summary").first.click()
        expect(page.locator("details[open] pre")).to_contain_text(json.dumps({"to": SCRIPT}))
        expect(page.locator("details[open]")).to_contain_text("reference")
        self.check_no_script_ran(page)
        self.check_access(page)
        page.get_by_role("button", name="Replay …").first.click()
        expect(page.get_by_role("dialog")).to_contain_text("Replay 2 letters?")
        expect(page.get_by_role("dialog")).to_contain_text("no such mailbox")
        self.check_access(page)
        page.keyboard.press("Escape")
        self.assertEqual(self.found("mail"), 2)
        page.get_by_role("button", name="Replay …").first.click()
        page.get_by_role("button", name="Replay 2 letters").click()
        expect(page.locator("main").get_by_text("Replayed: 2 letters.")).to_be_visible()
        expect(page.get_by_text("There are no such letters.").first).to_be_visible()
        self.assertEqual(self.found("mail"), 0)
        self.check_no_script_ran(page)

    def test_the_age_of_a_letter_passes_without_a_look(self):
        self.letters("old", 1)
        page = self.open("#/letters?type=old")
        age = page.locator("summary time")
        expect(age).to_contain_text("ago")
        before = age.text_content()
        looks = []
        page.on("request", lambda request: "dead-letters" in request.url and looks.append(request.url))
        expect(age).not_to_have_text(before)
        self.assertEqual(looks, [])

    def test_a_view_that_is_opened_again_shows_what_was_read(self):
        page = self.open("#/flow")
        looks = []
        page.context.route("**/v1/dead-letters?*", lambda route: looks.append(route))

        def reach(count):
            deadline = time.monotonic() + PATIENCE
            while len(looks) < count and time.monotonic() < deadline:
                page.wait_for_timeout(50)
            self.assertEqual(len(looks), count)

        found = page.locator("main").get_by_text(re.compile(r"(no such letters|\d letters?, .*)\. Read \d+s ago"))

        def visit(*names):
            for name in names:
                page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
                expect(page.get_by_role("heading", name=name, level=1)).to_be_attached()

        # The first look is still under way.
        visit("Dead letters", "Now", "Dead letters")
        reach(1)
        looks[0].continue_()
        expect(found).to_be_visible()
        visit("Now", "Dead letters")
        expect(found).to_be_visible()
        self.assertEqual(len(looks), 1)
        page.get_by_role("button", name="Look").click()
        reach(2)
        looks[1].continue_()
        expect(found).to_be_visible()

    def test_a_finding_leads_to_the_letters_of_its_types(self):
        self.letters("late", 1)
        page = self.open("#/now")
        with page.expect_response("**/v1/dead-letters?type=late"):
            page.get_by_role("link", name="Dead letters of late").click()
        expect(page).to_have_url(re.compile("#/letters\\?type=late$"))
        expect(page.locator("main").get_by_text("1 letter, 1 reason.")).to_be_visible()

    def test_fields_that_have_changed_are_looked_for_before_letters_are_changed(self):
        self.letters("scan", 1)
        page = self.open("#/letters?type=scan")
        buttons = [page.locator(".bar").get_by_role("button", name=name) for name in ("Replay …", "Discard …")]
        for button in buttons:
            expect(button).to_be_enabled()
        page.get_by_label("Text in the reason").fill("mailbox")
        for button in buttons:
            expect(button).to_be_disabled()
        expect(page.get_by_text("press Look before")).to_be_visible()
        self.check_access(page)
        page.get_by_role("button", name="Look").click()
        for button in buttons:
            expect(button).to_be_enabled()
        expect(page.get_by_text("press Look before")).to_be_hidden()
        buttons[1].click()
        expect(page.get_by_role("dialog")).to_contain_text("Chosen by type scan, reason mailbox.")
        with page.expect_download():
            page.get_by_role("button", name="Discard 1 letter").click()
        # The result comes first.
        expect(page.locator(".view > div > *").first).to_contain_text("Discarded: 1 letter.")

    def test_discarded_letters_are_in_a_file(self):
        self.letters("import", 1, n=12345678901234567890)
        page = self.open("#/letters?type=import")
        page.get_by_role("button", name="Discard …").first.click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Discard 1 letter").click()
        expect(page.locator("main").get_by_text("Discarded: 1 letter.")).to_be_visible()
        line = json.loads(download.value.path().read_text())
        self.assertEqual((line["type"], line["payload"]), ("import", {"to": SCRIPT, "n": 12345678901234567890}))
        self.assertEqual(self.found("import"), 0)

    def test_it_can_be_read_by_everybody(self):
        self.check_every_look("#/letters?type=mail", re.compile(r"no such letters|\d letters?, "))


class Reader(Case):
    rights = ("read",)

    def test_a_reader_is_offered_no_change(self):
        page = self.open_with("read", "#/letters")
        expect(page.get_by_text("There are no such letters.").first).to_be_visible()
        expect(page.get_by_role("button", name="Replay")).to_have_count(0)
