"""Pauses and circuit breakers."""

from harness import SCRIPT, Case, expect


class Flow(Case):
    types = """
  mail: {}
  payment: { breaker: { errors: 2, window: 30s, cooldown: manual }, retry: { delays: [1h] } }"""

    def test_a_type_is_paused_with_a_reason_and_resumed(self):
        page = self.open("#/flow")
        expect(page.get_by_text("Nothing is paused.")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        self.check_access(page)
        page.get_by_label("What").select_option("mail")
        page.get_by_label("Reason").fill(SCRIPT)
        page.get_by_label("Until").fill("2h")
        page.get_by_role("button", name="Pause", exact=True).click()
        row = page.get_by_role("row").filter(has_text="mail")
        expect(row).to_contain_text(SCRIPT)
        expect(page.locator("main").get_by_text("type mail is paused.")).to_be_visible()
        self.check_no_script_ran(page)
        self.assertIn("Paused: type mail", self.topology("status"))
        # The view of what is wrong now has the reason too.
        page.get_by_role("link", name="Now").click()
        expect(page.get_by_text("type mail since")).to_contain_text(SCRIPT)
        self.check_no_script_ran(page)
        page.go_back()
        page.get_by_role("button", name="Resume type mail").click()
        page.get_by_role("button", name="Resume", exact=True).click()
        expect(page.get_by_text("Nothing is paused.")).to_be_visible()

    def test_a_breaker_that_has_opened_is_closed(self):
        for _ in range(2):
            self.topology("publish", "payment", "--payload", "{}")
        worker = self.start("work", "--type", "payment", "--exec", self.failing(SCRIPT))
        page = self.open("#/flow")
        row = page.get_by_role("row").filter(has_text="payment")
        expect(row).to_contain_text("waits for a person")
        expect(row).to_contain_text("2 errors of 2 runs")
        expect(row).to_contain_text(SCRIPT)
        self.check_access(page)
        self.check_no_script_ran(page)
        page.get_by_role("button", name="Close the breaker of payment").click()
        page.get_by_role("button", name="Close it").click()
        expect(row).to_contain_text("closed")
        self.stop(worker)

    def test_it_can_be_read_by_everybody(self):
        self.check_every_look("#/flow", "Circuit breakers")
