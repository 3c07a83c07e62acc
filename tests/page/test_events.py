"""Finds events and changes them; who may do so."""

import json
import re

from harness import SCRIPT, Case, expect


class Events(Case):
    types = "{ mail: { keep-payload: 4KiB } }"

    def test_an_event_is_found_by_its_id_and_by_its_reference(self):
        self.topology("publish", "mail", "--payload", "{}", "--delay", "1h", "--id", "welcome-1", "--reference", "ada")
        page = self.open("#/events")
        for name in ("welcome-1", "ada"):
            page.get_by_label("Type").fill("mail")
            page.get_by_label("Id or reference").fill(name)
            page.get_by_role("button", name="Find").click()
            expect(page.get_by_role("heading", name="welcome-1")).to_contain_text("waiting")
            expect(page.locator(".card")).to_have_count(1)
            expect(page.locator(".card")).to_contain_text(re.compile("in 1h|in 59m"))
        self.check_access(page)
        # The event's own address.
        page.get_by_role("link", name="welcome-1").click()
        expect(page).to_have_url(re.compile("#/events\\?type=mail&id=welcome-1"))
        expect(page.get_by_role("heading", name="welcome-1")).to_be_visible()
        page.get_by_label("Id or reference").fill("nobody")
        page.keyboard.press("Enter")
        expect(page.locator(".found").get_by_text("Nothing is known of such an event.")).to_be_visible()

    def test_an_event_is_rescheduled_and_cancelled_after_a_question(self):
        self.topology("publish", "mail", "--payload", "{}", "--delay", "1h", "--id", "a")
        page = self.open("#/events?type=mail&id=a")
        page.get_by_role("button", name="Reschedule").click()
        self.check_access(page)
        page.get_by_label("When").fill("3h")
        page.get_by_role("button", name="Reschedule", exact=True).click()
        expect(page.locator(".card")).to_contain_text(re.compile("in 3h|in 2h 59m"))
        page.get_by_role("button", name="Cancel …").click()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.locator(".card")).to_contain_text("waiting")
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("button", name="Cancel the event").click()
        expect(page.locator(".card")).to_contain_text("cancelled")
        page.reload()
        for what in ("rescheduled", "cancelled"):
            expect(page.locator(".timeline").get_by_text(what, exact=True)).to_be_visible()
        self.check_access(page)
        self.assertIn("cancelled", self.topology("events", "show", "--type", "mail", "--id", "a"))

    def test_what_goes_wrong_is_said_in_the_servers_words(self):
        self.topology("publish", "mail", "--payload", "{}", "--delay", "1h", "--id", "b")
        page = self.open("#/events?type=mail&id=b")
        page.get_by_role("button", name="Reschedule").click()
        page.get_by_label("When").fill("soon")
        page.get_by_role("button", name="Reschedule", exact=True).click()
        expect(page.locator(".card .bad")).to_contain_text("soon")

    def test_a_script_in_a_reference_or_an_id_does_not_run(self):
        self.topology("publish", "mail", "--payload", json.dumps(SCRIPT), "--delay", "1h", "--id", SCRIPT, "--reference", SCRIPT)
        page = self.open("#/events")
        page.get_by_label("Type").fill("mail")
        page.get_by_label("Id or reference").fill(SCRIPT)
        page.get_by_role("button", name="Find").click()
        expect(page.locator(".card h2")).to_contain_text(SCRIPT)
        page.get_by_role("button", name="Cancel …").click()
        expect(page.get_by_role("dialog")).to_contain_text(SCRIPT)
        self.check_no_script_ran(page)
        page.reload()
        expect(page.locator(".card h2")).to_contain_text(SCRIPT)
        self.check_no_script_ran(page)


class Tokens(Case):
    rights = ("read", "read,operate", "publish")

    def open_with(self, token, address=""):
        page = self.open(address)
        expect(page.get_by_role("dialog")).to_contain_text("This server answers those who have a token.")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Continue").click()
        return page

    def test_the_token_is_asked_for_and_kept_nowhere(self):
        page = self.open_with("wrong")
        expect(page.get_by_role("dialog")).to_contain_text("The server does not know this token.")
        self.check_access(page)
        page.get_by_label("Token").fill("read")
        page.keyboard.press("Enter")
        expect(page.locator(".verdict")).to_be_visible()
        self.assertEqual(page.context.cookies(), [])
        self.assertEqual(page.evaluate("localStorage.length + sessionStorage.length"), 0)
        page.reload()
        expect(page.get_by_role("dialog")).to_be_visible()

    def test_what_a_token_may_not_do_is_not_offered(self):
        self.topology("publish", "mail", "--payload", "{}", "--delay", "1h", "--id", "a")
        page = self.open_with("read", "#/events?type=mail&id=a")
        expect(page.locator(".card")).to_contain_text("waiting")
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
        page = self.open_with("read,operate", "#/events?type=mail&id=a")
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        page = self.open_with("publish")
        expect(page.get_by_text("This token may not read.")).to_be_visible()
