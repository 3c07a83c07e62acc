"""The picture of the topology, and the calendar of schedules."""

from harness import Case, expect


class Topology(Case):
    types = "{ mail: {}, payment: { paused: 'the bank is closed' } }"
    more = """
schedules:
  nightly: { type: mail, cron: "0 3 * * *" }
  poll: { type: mail, every: 5m }
"""

    def test_the_picture_has_the_counts_of_the_queues(self):
        self.topology("publish", "--batch", "-", stdin='{"type": "payment"}\n' * 3)
        page = self.open("#/topology")
        lane = page.get_by_role("region").or_(page.locator(".swim")).filter(has_text="processor.payment")
        expect(lane).to_contain_text("paused")
        queue = page.locator(".node").filter(has_text="processor.payment")
        expect(queue).to_contain_text("3 messages")
        expect(page.locator(".begin")).to_contain_text("schedule nightly")
        expect(page.get_by_text("given up").first).to_be_visible()

    def test_a_schedule_runs_now_and_is_in_the_calendar(self):
        page = self.open("#/schedules")
        row = page.get_by_role("row").filter(has_text="nightly")
        expect(row).to_contain_text("armed")
        expect(page.locator(".week").get_by_text("nightly").first).to_be_visible()
        expect(page.locator(".week li")).not_to_have_count(0)
        page.get_by_role("button", name="Run nightly now").click()
        page.get_by_role("button", name="Run now", exact=True).click()
        expect(page.locator("main").get_by_text("nightly runs:")).to_be_visible()

    def test_a_paused_schedule_is_resumed(self):
        self.topology("pause", "--schedule", "poll", "--reason", "the feed is down")
        page = self.open("#/schedules")
        row = page.get_by_role("row").filter(has_text="poll")
        expect(row).to_contain_text("the feed is down")
        page.get_by_role("button", name="Resume schedule poll").click()
        expect(page.get_by_role("dialog")).to_contain_text("the feed is down")
        self.check_access(page)
        page.get_by_role("button", name="Resume", exact=True).click()
        expect(page.locator("main").get_by_text("schedule poll is resumed.")).to_be_visible()
        expect(row).to_contain_text("armed")
        expect(page.get_by_role("button", name="Resume schedule poll")).to_have_count(0)

    def test_buttons_stay_while_ages_pass(self):
        page = self.open("#/schedules")
        row = page.get_by_role("row").filter(has_text="poll")
        run = row.get_by_role("button", name="Run poll now")
        run.focus()
        due = row.locator("time").first
        before = due.text_content()
        with page.expect_response("**/v1/schedules?*"):
            expect(due).not_to_have_text(before)
        expect(run).to_be_focused()

    def test_missed_runs_are_shown_before_they_are_published(self):
        page = self.open("#/schedules")
        page.get_by_role("button", name="Backfill missed runs of nightly").click()
        page.get_by_label("Since").fill("3d ago")
        page.get_by_role("button", name="Show them").click()
        expect(page.get_by_role("dialog")).to_contain_text("Publish 3 runs of nightly?")
        self.check_access(page)
        page.get_by_role("button", name="Publish 3 runs").click()
        expect(page.locator("main").get_by_text("nightly: 3 runs published.")).to_be_visible()

    def test_both_can_be_read_by_everybody(self):
        self.check_every_look("#/topology", "processor.mail")
        self.check_every_look("#/schedules", "The next seven days")
