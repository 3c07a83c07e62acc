// What has happened to an event, from the records of its life.

import { ask } from "./ask.js";
import { el, pill, put } from "./dom.js";
import { sentence } from "./dialog.js";
import { distance, millis, span, utc } from "./words.js";

const COLOURS = {
  done: "good", failed: "warn", dropped: "bad", "dead-lettered": "bad", "lease-lost": "bad", expired: "bad", paused: "warn",
  "breaker-opened": "bad", "breaker-closed": "good", started: "busy",
};

/** Returns the life of an event, which is asked for at once. */
export function timeline({ type, id, reference }) {
  const root = el("div", {}, el("p", { class: "muted" }, "The records are read …"));
  const named = id ? { type, id } : { type, reference };
  ask(`/v1/trace?${new URLSearchParams(named)}`)
    .then((history) => put(root, drawn(history)))
    .catch((error) => put(root, el("p", { class: "muted" }, sentence(error))));
  return root;
}

function drawn({ records, more, oldest, events }) {
  let before = null;
  const items = records.map((record) => {
    const at = new Date(record.at).getTime();
    const later = before === null ? "" : ` ${at < before ? "−" : "+"}${Math.abs(at - before) < 1_000 ? millis(Math.abs(at - before)) : span(Math.abs(at - before) / 1_000)}`;
    before = at;
    return el("li", {},
      el("time", { datetime: record.at, title: distance(record.at) }, utc(record.at, true), el("span", { class: "muted" }, later)),
      el("div", {}, pill(record.transition, COLOURS[record.transition]), ` ${words(record)}`, record.by && el("span", { class: "muted" }, ` by ${record.by}`)));
  });
  return [
    items.length > 0 ? el("ol", { class: "timeline" }, items) : el("p", { class: "muted" }, "There are no records of it."),
    el("p", { class: "muted" },
      more && "There may be more records. ",
      events === "failures" && "Failures, and what people have done, are recorded, not each run (life-cycle: failures). ",
      oldest && `The oldest record is of ${utc(oldest)}.`),
  ];
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
