"""The view of what is wrong now."""

import re
import urllib.request

from harness import PHONE, Case, expect


class Now(Case):
    types = "{ mail: {}, import: { paused: 'the bank is closed' } }"

    def test_the_figures_and_the_remedy_are_there(self):
        self.topology("publish", "mail", "--payload", "{}", "--delay", "1h")
        self.topology("publish", "mail", "--payload", "{}")
        page = self.open()
        expect(page.get_by_text(f"in {self.name}.processor.mail, and it has no consumer")).to_be_visible()
        expect(page.get_by_text("Events are stuck")).to_be_visible()
        expect(page.get_by_text("topology work --type mail --exec COMMAND")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="mail").first).to_contain_text("in 5")
        expect(page.get_by_text("the bank is closed").first).to_be_visible()
        expect(page.locator("#age")).to_contain_text(re.compile(r"Live, \d+s old"))
        self.assertEqual(page.title(), "Now · hatchery")

    def test_it_can_be_read_by_everybody(self):
        self.check_every_look("", "type import since")

    def test_the_page_brings_nothing_of_elsewhere_and_lets_nothing_in(self):
        answer = urllib.request.urlopen(self.url)
        policy = answer.headers["content-security-policy"]
        for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
            self.assertIn(rule, policy)
        request = urllib.request.Request(self.url, headers={"host": "rebound.example"})
        with self.assertRaisesRegex(urllib.error.HTTPError, "403"):
            urllib.request.urlopen(request)
        page = self.open()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        expect(page.locator(".verdict")).to_be_visible()
        self.assertTrue(all(url.startswith(self.url) for url in asked), asked)

    def test_the_status_is_asked_for_where_there_is_no_place_for_a_listener(self):
        page = self.open()
        full = {"status": 429, "json": {"detail": "there are as many listeners as there may be"}}
        page.context.route("**/v1/changes", lambda route: route.fulfill(**full))
        with page.expect_response("**/v1/status"):
            page.reload()
        expect(page.locator(".verdict")).to_be_visible()
        expect(page.locator("#age")).to_contain_text("Live")

    def test_the_end_of_an_outage_is_seen_without_a_reload(self):
        page = self.open()
        expect(page.locator(".verdict")).to_be_visible()
        self.servers.tell("kill redis")
        expect(page.get_by_text("Redis does not answer")).to_be_visible()
        expect(page.locator(".verdict")).to_have_text("Events are stuck")
        self.servers.tell("start redis")
        expect(page.get_by_text("Redis does not answer")).to_be_hidden()
        self.stop(self.server)
        expect(page.locator("#age")).to_contain_text("The server does not answer. What is shown is")
        expect(page.locator("#said")).to_contain_text("The server does not answer")
        self.serve()
        expect(page.locator("#age")).to_contain_text("Live")
        expect(page.locator("#said")).to_have_text("The page is up to date again.")


class Many(Case):
    def test_a_thousand_types_are_drawn_as_they_are_seen(self):
        page = self.open(size=PHONE)
        self.thousandfold(page)
        rows = page.locator("tbody tr")
        expect(page.get_by_text("1,000 types, the first 60 drawn")).to_be_visible()
        expect(rows).to_have_count(60)
        page.mouse.wheel(0, 100_000)
        expect(rows).to_have_count(120)
        page.get_by_label("Only types with").fill("0777")
        expect(rows).to_have_count(1)
        # The address can be sent to a colleague.
        expect(page).to_have_url(re.compile("filter=0777"))
        page.reload()
        expect(rows).to_have_count(1)
