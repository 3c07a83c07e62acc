// The table of types. It draws the rows that are seen, so that a thousand types cost no more than fifty.

import { el, put, say, svg } from "./dom.js";
import { history } from "./live.js";
import { UNKNOWN, age, count, rate, span, utc } from "./words.js";

/** How many rows are drawn at a time. */
const ROWS = 60;

const late = (seconds) => (seconds === null ? UNKNOWN : seconds === 0 ? "0" : span(seconds));

// `high`: the value that is worth a look, by the type's line.
const COLUMNS = [
  { key: "due", title: "Due", means: "Events that are due: they wait for a worker, or run", text: count },
  { key: "trend", title: "Due lately", means: "The due events since this page was opened" },
  { key: "late_seconds", title: "Late", means: "How long the oldest due event has waited", text: late, high: (line) => line.late_seconds >= 60 && !line.paused },
  { key: "dead", title: "Dead", means: "Events in the dead-letter queue", text: count, high: (line) => line.dead > 0 },
  { key: "retrying", title: "Retrying", means: "Events that wait for their next attempt", text: count },
  { key: "delayed", title: "Delayed", means: "Events that are not due yet", text: count },
  { key: "next_due", title: "Next", means: "When the next event is due" },
  { key: "in_rate", title: "In/s", means: "Events that come into the queue, a second", text: rate },
  { key: "out_rate", title: "Out/s", means: "Events that leave the queue, a second", text: rate },
  { key: "workers", title: "Workers", means: "Consumers of the queue", text: count, high: (line) => line.workers === 0 && line.due > 0 && !line.paused },
];

/** Returns a table of types, with `update(lines, breakers)` and `close()`. `parameters` are those of the address, which it keeps up to date. */
export function table(parameters) {
  let lines = [];
  let drawn = ROWS;
  let sort = parameters.get("sort") ?? "type";
  const rows = new Map();
  const body = el("tbody");
  const headings = [heading({ key: "type", title: "Type" }), ...COLUMNS.map(heading)];
  const filter = el("input", { type: "search", id: "filter", value: parameters.get("filter") ?? "", placeholder: "mail, hr-…", autocomplete: "off", spellcheck: "false" });
  const shown = el("p", { class: "muted", role: "status" });
  const end = el("div");
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting) || drawn >= chosen().length) return;
    drawn += ROWS;
    draw();
  }, { rootMargin: "400px" });
  seen.observe(end);

  function heading({ key, title, means }) {
    if (key === "trend") return el("th", { scope: "col", title: means }, title);
    const pressed = () => {
      const descends = key !== "type" && key !== "next_due";
      const first = descends ? `-${key}` : key;
      sort = sort === first ? (descends ? key : `-${key}`) : first;
      remember("sort", sort === "type" ? "" : sort);
      draw();
    };
    const button = el("button", { type: "button", class: "sort", title: means, on: { click: pressed } }, title);
    return el("th", { scope: "col", "data-key": key, class: key === "type" ? null : "number" }, button);
  }

  function remember(name, value) {
    if (value) parameters.set(name, value);
    else parameters.delete(name);
    const query = parameters.toString();
    window.history.replaceState(null, "", `#/now${query && `?${query}`}`);
  }

  function chosen() {
    const words = filter.value.trim().toLowerCase();
    const found = words ? lines.filter((line) => line.type.toLowerCase().includes(words)) : [...lines];
    const key = sort.replace("-", "");
    const direction = sort.startsWith("-") ? -1 : 1;
    return found.sort((a, b) => direction * compared(a[key], b[key]) || compared(a.type, b.type));
  }

  function draw() {
    const all = chosen();
    for (const heading of headings) {
      const key = heading.dataset.key;
      if (key) heading.setAttribute("aria-sort", sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none");
    }
    const wanted = all.slice(0, drawn).map((line) => {
      const row = rows.get(line.type) ?? newRow(line);
      rows.set(line.type, row);
      row.update(line);
      return row.element;
    });
    // A row that has the focus would lose it by being moved.
    const isInOrder = wanted.length === body.children.length && wanted.every((row, at) => row === body.children[at]);
    if (!isInOrder) put(body, wanted);
    const of = all.length === lines.length ? `${count(lines.length)} types` : `${count(all.length)} of ${count(lines.length)} types`;
    say(shown, all.length > wanted.length ? `${of}, the first ${wanted.length} drawn` : of);
  }

  filter.addEventListener("input", () => {
    drawn = ROWS;
    remember("filter", filter.value.trim());
    draw();
  });

  const element = el(
    "div",
    {},
    el("div", { class: "bar" }, el("h2", { id: "types" }, "Types"), el("label", { for: "filter", class: "unseen" }, "Only types with"), filter, shown),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "types" },
      el("table", {}, el("thead", {}, el("tr", {}, headings)), body)),
    end,
  );
  const update = (types, breakers) => {
    const open = new Map(breakers.map(({ type, state }) => [type, state]));
    lines = types.map((line) => ({ ...line, breaker: open.get(line.type) }));
    draw();
  };
  return { element, update, close: () => seen.disconnect() };
}

function compared(a, b) {
  if (a === b) return 0;
  // What is not known comes last.
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}

function newRow(line) {
  const paused = el("a", { class: "pill", href: "#/flow", hidden: true }, "paused");
  const breaker = el("a", { class: "pill bad", href: "#/flow", hidden: true });
  const line_path = svg("path");
  const name = el("th", { scope: "row" }, el("a", { href: `#/events?${new URLSearchParams({ type: line.type })}` }, line.type), " ", paused, " ", breaker);
  const cells = COLUMNS.map(({ key }) =>
    key === "trend"
      ? el("td", { class: "trend" }, svg("svg", { viewBox: "0 0 72 18", width: 72, height: 18, "aria-hidden": "true" }, line_path))
      : el("td", { class: "number" },
        key === "dead" && el("a", { href: `#/letters?${new URLSearchParams({ type: line.type })}` }),
        key === "next_due" && el("time", { "data-age": "distance" })),
  );
  const element = el("tr", {}, name, cells);
  const update = (line) => {
    paused.hidden = !line.paused;
    breaker.hidden = !line.breaker;
    say(breaker, line.breaker ? `breaker ${line.breaker}` : "");
    COLUMNS.forEach(({ key, text, high }, at) => {
      if (key === "trend") return;
      const cell = cells[at];
      if (key === "next_due") {
        cell.firstElementChild.dateTime = line.next_due ?? "";
        age(cell.firstElementChild);
        cell.title = line.next_due ? utc(line.next_due) : "";
        return;
      }
      say(cell.firstElementChild ?? cell, text(line[key]));
      cell.classList.toggle("zero", line[key] === 0 || line[key] === null);
      cell.classList.toggle("high", Boolean(high?.(line)));
    });
    line_path.setAttribute("d", path(history(line.type)));
  };
  return { element, update };
}

// A line of the last values, the highest of which is at the top.
function path(values) {
  if (values.length < 2) return "";
  const most = Math.max(...values, 1);
  const step = 70 / Math.max(values.length - 1, 11);
  const start = 71 - step * (values.length - 1);
  return values.map((value, at) => `${at ? "L" : "M"}${(start + at * step).toFixed(1)} ${(16.5 - (15 * value) / most).toFixed(1)}`).join("");
}
