// What has happened to an event, from the records of its life.

import { ask } from "./ask.js";
import { el, pill } from "./dom.js";
import { sentence } from "./dialog.js";
import { different, distance, millis, span, utc } from "./words.js";

const COLOURS = {
  done: "good", failed: "warn", dropped: "bad", "dead-lettered": "bad", "lease-lost": "bad", expired: "bad", paused: "warn",
  "breaker-opened": "bad", "breaker-closed": "good", started: "busy",
};

/**
 * Returns what is recorded of events, in the order of the times, which are those of the programs that tell it. `asked` has pairs of `id` or
 * `reference` and a value. Never fails: without an answer there are no records, and `problem` tells why.
 */
export async function past(type, asked) {
  try {
    const histories = await Promise.all(asked.map(([key, value]) => ask(`/v1/trace?${new URLSearchParams({ type, [key]: value })}`)));
    const records = different(histories.flatMap((history) => history.records), (record) => record);
    records.sort((a, b) => new Date(a.at) - new Date(b.at));
    return { ...histories[0], records, more: histories.some(({ more }) => more) };
  } catch (problem) {
    return { records: [], problem };
  }
}

/** Returns the records of one event as a list. */
export function timeline(history) {
  let before = null;
  const items = history.records.map((record) => {
    const at = new Date(record.at).getTime();
    const later = before === null ? "" : ` +${at - before < 1_000 ? millis(at - before) : span((at - before) / 1_000)}`;
    before = at;
    return el("li", {},
      el("time", { datetime: record.at, title: distance(record.at) }, utc(record.at, true), el("span", { class: "muted" }, later)),
      el("div", {}, pill(record.transition, COLOURS[record.transition]), ` ${words(record)}`, record.by && el("span", { class: "muted" }, ` by ${record.by}`)));
  });
  return [items.length > 0 ? el("ol", { class: "timeline" }, items) : el("p", { class: "muted" }, "There are no records of it."), notes(history)];
}

/** Returns what the records cannot tell. */
export function notes({ problem, more, oldest, events }) {
  return el("p", { class: "muted" },
    problem && `The records cannot be read, and without them an event that has ended is found by its id alone. ${sentence(problem)} `,
    more && "There may be more records. ",
    events === "failures" && "Failures, and what people have done, are recorded, not each run (life-cycle: failures). ",
    oldest && `The oldest record is of ${utc(oldest)}.`);
}

function words({ of, attempt, max_attempts: most, reason, took, then, due }) {
  const parts = [
    of,
    attempt && `attempt ${attempt}${most ? ` of ${most}` : ""}`,
    reason,
    took !== null && took !== undefined && `took ${millis(took)}`,
    (then || due) && [then, due && `due ${utc(due)}`].filter(Boolean).join(", "),
  ];
  return parts.filter(Boolean).join("; ");
}
