"""Finds events and changes them; who may do so."""

import json
import re

from harness import SCRIPT, Case, expect
from serving import eventually


class Events(Case):
    types = "{ mail: { keep-payload: 4KiB }, parcel: { retry: { max-attempts: 1 } }, held: { paused: 'the bank is closed' } }"
    more = "life-cycle: { events: all }"

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

    def test_events_that_have_ended_are_found_by_their_reference(self):
        for name in ("paid-1", "paid-2"):
            self.topology("publish", "mail", "--payload", "{}", "--id", name, "--reference", "4711")
        worker = self.start("work", "--type", "mail", "--exec", "cat")
        eventually("both are done", lambda: self.transitions("4711").count("done") == 2)
        page = self.open("#/events?type=mail&name=4711")
        lines = page.locator(".found li").filter(has_text="handled")
        expect(lines).to_have_count(2)
        self.check_access(page)
        # What waits has a card, and the others stay in the list.
        self.stop(worker)
        self.topology("publish", "mail", "--payload", "{}", "--id", "paid-3", "--reference", "4711", "--delay", "1h")
        page.reload()
        expect(page.get_by_role("heading", name="paid-3")).to_contain_text("waiting")
        expect(page.locator(".timeline")).to_contain_text("published")
        expect(lines).to_have_count(2)
        page.get_by_role("link", name="paid-1").click()
        expect(page.get_by_role("heading", name="paid-1")).to_contain_text("handled")
        expect(page.locator(".card")).to_contain_text("4711")

    def test_an_event_that_was_run_now_stays_in_view(self):
        self.topology("publish", "mail", "--payload", "{}", "--id", "early-1", "--reference", "990", "--delay", "1h")
        worker = self.start("work", "--type", "mail", "--exec", "cat")
        page = self.open("#/events?type=mail&name=990")
        page.get_by_role("button", name="Run now …").click()
        expect(page.get_by_role("dialog")).to_contain_text("mail early-1, reference 990")
        page.get_by_role("button", name="Run now", exact=True).click()
        expect(page.locator(".found")).to_contain_text("It is in its queue, and runs as soon as a worker takes it: mail early-1, reference 990.")
        expect(page.get_by_role("heading", name="early-1")).to_be_visible()
        expect(page).to_have_url(re.compile("id=early-1"))
        eventually("it is done", lambda: "done" in self.transitions("990"))
        page = self.open("#/events?type=mail&reference=990")
        expect(page.get_by_role("heading", name="early-1")).to_contain_text("handled")
        expect(page.locator(".card")).not_to_contain_text("Due")
        expect(page.locator(".timeline")).to_contain_text("run-now")
        expect(page.locator(".timeline")).not_to_contain_text("−")
        times = page.locator(".timeline time").evaluate_all("all => all.map((one) => one.dateTime)")
        self.assertEqual(times, sorted(times))
        self.stop(worker)

    def test_an_event_that_only_the_records_know_is_cancelled(self):
        self.topology("publish", "mail", "--payload", "{}", "--id", "slow-1", "--reference", "771")
        worker = self.start("work", "--type", "mail", "--exec", "sleep", "60")
        eventually("it runs", lambda: "started" in self.transitions("771"))
        page = self.open()
        unknown = {"detail": "Nothing is known of such an event."}
        # The page may ask more than once: it does so whenever it hears of a change.
        asked = re.compile(r"/v1/events/mail\?id=")
        page.route(asked, lambda route: route.fulfill(status=404, json=unknown))
        page.goto(f"{self.url}#/events?type=mail&id=slow-1")
        expect(page.get_by_role("heading", name="slow-1")).to_contain_text("started")
        page.unroute(asked)
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("button", name="Cancel the event").click()
        expect(page.locator(".found .good")).to_contain_text("It is cancelled: mail slow-1, reference 771.")
        self.stop(worker)

    def test_an_event_whose_letter_was_discarded_is_not_called_handled(self):
        self.topology("publish", "parcel", "--payload", "{}", "--id", "lost-1", "--reference", "4521")
        worker = self.start("work", "--type", "parcel", "--exec", self.failing("no street"))
        eventually("it is a dead letter", lambda: "dead-lettered" in self.transitions("4521"))
        self.stop(worker)
        self.topology("dead-letter", "discard", "--type", "parcel", "--reference", "4521", "--yes", "--save", "lost.ndjson")
        for asked in ("id=lost-1", "reference=4521"):
            page = self.open(f"#/events?type=parcel&{asked}")
            expect(page.locator(".timeline")).to_contain_text("letter-discarded")
            expect(page.get_by_role("heading", name="lost-1").locator(".pill")).to_have_text("discarded")

    def test_a_pause_is_said_where_an_event_of_its_type_is_looked_for(self):
        self.topology("publish", "held", "--payload", "{}", "--id", "held-1")
        page = self.open("#/events?type=held&id=held-1")
        expect(page.get_by_role("heading", name="held-1")).to_contain_text("waiting")
        expect(page.get_by_text("type held since")).to_contain_text("the bank is closed")
        self.check_access(page)
        page.get_by_role("link", name="paused").click()
        expect(page.get_by_role("row").filter(has_text="held")).to_contain_text("the bank is closed")

    def transitions(self, reference):
        """Returns what is recorded of the events about this object so far."""
        told = self.topology("trace", "--reference", reference, "-o", "json", codes=(0, 1))
        return re.findall(r'"transition": *"([a-z-]+)"', told)

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
