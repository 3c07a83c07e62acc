// Schedules: a calendar of the coming days, the last runs, and those that were missed.

import { ask, may, post } from "./ask.js";
import { announce, el, pill, put, redraw, tableOf } from "./dom.js";
import { acting, confirm, sentence } from "./dialog.js";
import { resuming } from "./flow.js";
import { follow, lookNow } from "./live.js";
import { UNKNOWN, count, counted, instant, utc } from "./words.js";

const COLOURS = { armed: "good", paused: "warn", "not applied": "bad", changed: "bad", "not in the file": "bad" };
const DAYS = 7;
const DAY = 86_400_000;
/** How many instants of a schedule the calendar has, and of how many schedules. */
const INSTANTS = 60;
const SCHEDULES = 20;

export const schedules = {
  title: "Schedules",
  show(root) {
    const said = el("div", { role: "status" });
    const table = el("div", {}, el("p", { class: "muted" }, "Redis is asked …"));
    const calendar = el("div");
    put(root, said, table, calendar);
    const load = async () => {
      try {
        const known = (await ask(`/v1/schedules?count=${INSTANTS}`)).schedules;
        const pauses = may("operate") && known.some(({ state }) => state === "paused") ? await pausesOfSchedules() : [];
        redraw(table, known.length > 0 ? overview(known, pauses, said, load) : el("p", { class: "muted" }, "The topology has no schedules."));
        const shown = known.filter(({ next }) => next.length > 0).slice(0, SCHEDULES);
        redraw(calendar, shown.length > 0 && week(shown));
      } catch (error) {
        redraw(table, el("p", { class: "bad" }, sentence(error)));
      }
    };
    return follow(load);
  },
};

// Redis knows the schedules, and RabbitMQ their pauses.
async function pausesOfSchedules() {
  try {
    return (await ask("/v1/pauses")).pauses.filter(({ kind }) => kind === "schedule");
  } catch {
    return [];
  }
}

function overview(known, pauses, said, load) {
  const rows = known.map((one) => {
    const isLate = one.next.length > 0 && new Date(one.next[0]) < Date.now() - 60_000;
    return el("tr", {},
      el("th", { scope: "row" }, one.name),
      el("td", {}, pill(one.state, COLOURS[one.state])),
      el("td", {}, one.calendar ?? UNKNOWN, one.type && el("span", { class: "muted" }, ` → ${one.type}`)),
      el("td", {}, one.next.length === 0 ? UNKNOWN : isLate ? [pill("missed", "bad"), " due ", instant(one.next[0], { only: "distance" })] : instant(one.next[0])),
      el("td", { class: "text" }, last(one)),
      may("operate") && el("td", { class: "number" }, buttons(one, pauses, said, load)));
  });
  return tableOf("Schedules", ["Schedule", "State", "Runs", "Next", "Last run", may("operate") && [el("span", { class: "unseen" }, "Action")]], rows);
}

function last({ last: run, paused_because: because }) {
  const outcome = run && (run.outcome ?? "running");
  return [
    run ? [pill(outcome.split(":")[0], outcome === "done" ? "good" : run.outcome ? "warn" : "busy"), " ", instant(run.ended ?? run.started, { only: "distance" }),
      outcome.includes(":") && el("p", { class: "muted" }, outcome)] : UNKNOWN,
    because && el("p", { class: "muted" }, `Paused: ${because}`),
  ];
}

function buttons(one, pauses, said, load) {
  if (!one.type) return null;
  const pause = pauses.find(({ name }) => name === one.name);
  const path = `/v1/schedules/${encodeURIComponent(one.name)}`;
  const tell = async (words) => {
    put(said, el("p", {}, words));
    announce(words);
    lookNow();
    await load();
  };
  const run = acting(el("button", { type: "button", "aria-label": `Run ${one.name} now` }, "Run now …"), said, async () => {
    const text = [el("p", {}, "One event beside the usual ones."), one.next.length > 0 && el("p", {}, "Its next instant stays: ", instant(one.next[0]), "."),
      one.paused_because && el("p", { class: "warn" }, `The schedule is paused, and stays so: ${one.paused_because}`)];
    if (!(await confirm(`Run ${one.name} now?`, text, "Run now"))) return;
    const { id } = await post(`${path}/run-now`);
    await tell(`${one.name} runs: ${id}`);
  });
  const makeUp = acting(el("button", { type: "button", "aria-label": `Backfill missed runs of ${one.name}` }, "Backfill …"), said, async () => {
    const fields = [{ name: "from", label: "Since", required: true, value: "1d ago", hint: "A time, such as 2026-06-01T00:00:00Z, or 7d ago" }];
    const entered = await confirm(`Backfill missed runs of ${one.name}?`, el("p", {}, "First you see which runs these would be."), "Show them", { fields });
    if (!entered) return;
    const would = await post(`${path}/backfill`, { from: entered.from.trim(), dry_run: true });
    if (would.instants.length === 0) {
      await tell(`${one.name} has no instant since then.`);
      return;
    }
    const runs = counted(would.instants.length, "run");
    const list = el("ul", { class: "plain" }, would.instants.slice(0, 10).map((at) => el("li", {}, utc(at))), would.instants.length > 10 && el("li", {}, "…"));
    if (!(await confirm(`Publish ${runs} of ${one.name}?`, list, `Publish ${runs}`))) return;
    await post(`${path}/backfill`, { from: would.instants[0], limit: would.instants.length, dry_run: false });
    await tell(`${one.name}: ${runs} published.`);
  });
  return el("span", { class: "row" }, pause && resuming(pause, null, said, load), run, one.mode === "sequential" ? null : makeUp);
}

// The coming days in UTC. A schedule that runs often is one line of its day.
function week(known) {
  const today = Math.floor(Date.now() / DAY) * DAY;
  const days = Array.from({ length: DAYS }, (_, at) => today + at * DAY).map((day) => {
    const lines = known.flatMap(({ name, next }) => {
      const times = next.filter((at) => new Date(at) >= day && new Date(at) < day + DAY);
      if (times.length === 0) return [];
      // The last instant that is known may not be the last one of its day.
      const isCut = next.length === INSTANTS && new Date(next.at(-1)) < day + DAY;
      const first = new Date(times[0]).toISOString().slice(11, 16);
      const more = times.length > 1 ? ` ×${count(times.length)}${isCut ? " or more" : ""}` : "";
      return [{ first, node: el("li", {}, el("time", { datetime: times[0], title: utc(times[0]) }, first), ` ${name}`, el("span", { class: "muted" }, more)) }];
    });
    lines.sort((a, b) => (a.first < b.first ? -1 : 1));
    const title = new Date(day).toLocaleDateString("en", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });
    return el("li", {}, el("h3", {}, title), lines.length > 0 ? el("ul", {}, lines.map(({ node }) => node)) : el("p", { class: "muted" }, "–"));
  });
  return [el("h2", { class: "apart" }, "The next seven days, in UTC"), el("ol", { class: "week" }, days)];
}
