// Words for numbers and times.

import { el, say } from "./dom.js";

/** What stands for a figure that is not known. */
export const UNKNOWN = "–";

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const RATE = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

/** Returns a count, or the sign for one that is not known. */
export function count(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value < 100_000 ? PLAIN.format(value) : SHORT.format(value);
}

/** Returns a number a second. */
export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value >= 100 ? count(Math.round(value)) : RATE.format(value);
}

/** Returns a number, all digits of it, with its noun: `1 letter`, `123,456 letters`. */
export function counted(number, one, many = `${one}s`) {
  return `${number === null || number === undefined ? UNKNOWN : PLAIN.format(number)} ${number === 1 ? one : many}`;
}

const UNITS = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]];

/** Returns a time in seconds in its two largest units: `1d 2h`. */
export function span(seconds) {
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, length] of UNITS) {
    const units = Math.floor(left / length);
    if (units > 0) parts.push(`${units}${unit}`);
    else if (parts.length > 0) break;
    left -= units * length;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0s";
}

/** Returns milliseconds as a person says them. */
export function millis(value) {
  return value < 1_000 ? `${value}ms` : span(value / 1_000);
}

/** Returns an instant as `in 4m` or `3h ago`. */
export function distance(instant, now = Date.now()) {
  const seconds = (new Date(instant).getTime() - now) / 1_000;
  if (Number.isNaN(seconds)) return UNKNOWN;
  return seconds >= 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}

/** Returns an instant in UTC, as the command line and the log write it. */
export function utc(instant, fraction = false) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return String(instant);
  const text = date.toISOString().replace("T", " ");
  return fraction ? text : text.replace(/\.\d+Z$/, "Z");
}

/** Returns an instant as an element: its distance, and the instant itself unless `only` the distance is asked for. */
export function instant(value, { only = "" } = {}) {
  if (!value) return UNKNOWN;
  const shown = el("time", { datetime: value, title: utc(value), "data-age": only || "both" });
  age(shown);
  return shown;
}

/** Brings the distances of all instants that are shown up to date. */
export function tick() {
  document.querySelectorAll("time[data-age]").forEach(age);
}

/** Brings the distance of an instant up to date. Without an instant it is empty. */
export function age(shown) {
  const value = shown.dateTime;
  say(shown, value && (shown.dataset.age === "distance" ? distance(value) : `${distance(value)} · ${utc(value)}`));
}

/** Returns the values of which each has another key. */
export function different(values, key) {
  return [...new Map(values.map((value) => [JSON.stringify(key(value)), value])).values()];
}
