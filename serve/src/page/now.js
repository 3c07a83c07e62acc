// What is wrong now, and how many events are where.

import { command, el, pill, put, redraw, tableOf } from "./dom.js";
import { follow } from "./live.js";
import { table } from "./table.js";
import { count, counted, instant, utc } from "./words.js";

const VERDICTS = { well: ["Nothing is wrong", "good"], look: ["Look at this", "warn"], stuck: ["Events are stuck", "bad"] };
/** The view in which a finding is solved. */
const SOLVED = {
  "breaker-open": ["#/flow", "Circuit breakers, in Flow"],
  "schedule-paused": ["#/flow", "Pauses, in Flow"],
  "schedule-late": ["#/schedules", "Schedules"],
  "schedule-not-applied": ["#/schedules", "Schedules"],
};
/** How many dead-letter queues a finding has links to. */
const QUEUES = 5;
/** How many types the list of what is due next has. */
const NEXT = 8;
/** The end of the line of what is due next, in seconds: a week. */
const FAR = 7 * 86_400;

export const now = {
  title: "Now",
  // The verdict is what people read first.
  isHeaded: true,
  show(root, parameters) {
    const head = el("div");
    const aside = el("aside", { class: "aside" });
    const notes = el("div", { class: "notes" });
    const types = table(parameters);
    put(root, head, el("div", { class: "columns" }, el("div", {}, types.element, notes), aside));
    put(head, el("p", { class: "muted" }, "The server looks at the broker. That takes some seconds."));
    const parts = [[head, problems], [notes, others]];
    const end = follow((status) => {
      types.update(status.types, openBreakers(status));
      for (const [element, nodes] of parts) redraw(element, nodes(status));
      // The dots move although the words stay.
      put(aside, waiting(status));
    });
    return () => {
      end();
      types.close();
    };
  },
};

function problems(status) {
  const [words, colour] = VERDICTS[status.verdict] ?? [status.verdict, ""];
  const known = status.verdict === "well" && status.unknown.length > 0 ? `${words} as far as is known` : words;
  const found = status.findings.map((finding) =>
    el("li", { class: `finding ${finding.severity === "stuck" ? "bad" : "warn"}` },
      el("p", {}, pill(finding.severity, finding.severity === "stuck" ? "bad" : "warn"), " ", finding.message),
      el("p", { class: "solved" }, solved(finding).map(([href, words]) => el("a", { href }, words))),
      command(finding.command),
      el("p", { class: "muted" }, "Runbook: ", finding.runbook)),
  );
  const paused = status.pauses.map(pausedLine);
  return [
    el("p", { class: `verdict ${colour}` }, known),
    found.length > 0 && el("ul", { class: "findings" }, found),
    paused.length > 0 && el("ul", { class: "plain" }, paused),
  ];
}

// The addresses of the views in which a finding is solved, with words.
function solved({ kind, queues = [] }) {
  if (kind in SOLVED) return [SOLVED[kind]];
  if (kind !== "dead-letters") return [];
  const links = queues.slice(0, QUEUES).map(({ queue }) => {
    // The queue of a topology that was renamed has its former name.
    const type = queue.split(".dead-letter.").at(-1);
    return [`#/letters?${new URLSearchParams({ type })}`, `Dead letters of ${type}`];
  });
  return queues.length > QUEUES ? [...links, ["#/letters", "All dead letters"]] : links;
}

const pausedLine = (pause) => el("li", {}, el("a", { class: "pill", href: "#/flow" }, "paused"), ` ${pausedWords(pause)}`);

/** Returns lines about what holds the events of a type back. */
export function heldBack(status, type) {
  const pauses = status.pauses.filter(({ kind, name }) => kind === "all" || (kind === "type" && name === type));
  const open = openBreakers(status).filter((breaker) => breaker.type === type);
  return [pauses.map(pausedLine), open.map(({ state, opened_at: since, reason }) =>
    el("li", {}, el("a", { class: "pill bad", href: "#/flow" }, `breaker ${state}`), ` The circuit breaker of ${type} opened at ${utc(since)}${reason ? `: ${reason}` : ""}`))];
}

/** Returns the circuit breakers that are not closed. */
export function openBreakers(status) {
  return status.findings.flatMap(({ breakers }) => breakers ?? []);
}

/** Returns a pause as a sentence. */
export function pausedWords({ kind, name, since, until, reason, by }) {
  const what = kind === "all" ? "Everything" : `${kind} ${name}`;
  const end = until ? `until ${utc(until)}` : "until somebody resumes it";
  return `${what} since ${utc(since)}, ${end}${by === "file" ? ", by the file" : ""}${reason ? `: “${reason}”` : ""}`;
}

function others(status) {
  const sources = status.sources.map((source) =>
    el("tr", {}, el("th", { scope: "row" }, source.source, source.paused ? [" ", pill("paused")] : null),
      el("td", {}, source.queue), ["waiting", "dead", "workers"].map((key) => el("td", { class: "number" }, count(source[key]))))
  );
  const notes = [
    ...status.unlisted.map(({ place, messages }) => `${place}: about ${counted(messages, "message")} that no list of events has.`),
    status.leftovers > 0 && `${counted(status.leftovers, "object")} of the topology on the broker that the file does not have any more: topology plan shows them.`,
    ...status.unknown.map((sentence) => `Not known: ${sentence}.`),
  ].filter(Boolean);
  return [
    sources.length > 0 && el("div", { class: "sources" }, el("h2", {}, "Sources"),
      tableOf("Sources", ["Source", "Queue", ["Waiting"], ["Dead"], ["Workers"]], sources)),
    notes.length > 0 && el("ul", { class: "plain muted" }, notes.map((note) => el("li", {}, note))),
  ];
}

// When the next event of each type is due, on a logarithmic line from now to a week.
function waiting(status) {
  const all = status.types.filter((line) => line.next_due).sort((a, b) => (a.next_due < b.next_due ? -1 : 1));
  const items = all.slice(0, NEXT).map((line) => {
    const seconds = Math.max(0, (new Date(line.next_due).getTime() - Date.now()) / 1_000);
    const dot = el("span", { class: "dot" });
    dot.style.insetInlineStart = `${Math.min(100, (100 * Math.log1p(seconds)) / Math.log1p(FAR))}%`;
    return el("li", {},
      el("span", {}, el("b", {}, line.type), el("span", { class: "muted" }, ` ${line.delayed === null ? "" : `${count(line.delayed)} wait`}`)),
      instant(line.next_due, { only: "distance" }),
      el("span", { class: "track", "aria-hidden": "true" }, dot));
  });
  const more = all.length - items.length;
  return [
    el("h2", {}, "Due next"),
    items.length > 0
      ? el("ol", { class: "next" }, items)
      : el("p", { class: "muted" }, "No event waits for its time, as far as Redis knows."),
    more > 0 && el("p", { class: "muted" }, `and ${counted(more, "more type", "more types")}`),
    items.length > 0 && el("p", { class: "scale muted", "aria-hidden": "true" }, ["now", "1m", "1h", "1d", "7d"].map((mark) => el("span", { class: `at-${mark}` }, mark))),
  ];
}
