// What people and circuit breakers hold back: pauses begin and end here, and breakers are closed.

import { ask, may, post } from "./ask.js";
import { announce, el, pill, put, redraw, tableOf } from "./dom.js";
import { acting, confirm, sentence } from "./dialog.js";
import { follow, lookNow } from "./live.js";
import { pausedWords } from "./now.js";
import { UNKNOWN, counted, instant, span } from "./words.js";

const COLOURS = { open: "bad", "half-open": "warn", closed: "good", unreadable: "bad" };

export const flow = {
  title: "Flow",
  show(root) {
    const said = el("p", { role: "status" });
    const paused = el("div");
    const breakers = el("div");
    let status = null;
    const load = async () => {
      const [pauses, open] = await Promise.allSettled([ask("/v1/pauses"), ask("/v1/breakers")]);
      redraw(paused, pauses.value ? pausedTable(pauses.value.pauses, status, said, load) : el("p", { class: "bad" }, sentence(pauses.reason)));
      redraw(breakers, open.value ? breakerTable(open.value.breakers, status, said, load) : el("p", { class: "bad" }, sentence(open.reason)));
    };
    const pause = acting(el("button", { type: "button", class: "primary" }, "Pause …"), said, () => begin(status, said, load));
    put(root,
      el("p", { class: "muted" }, "Publishing goes on while something is paused; its events wait, and run afterwards."),
      said,
      el("div", { class: "bar" }, el("h2", {}, "Paused"), may("operate") && pause), paused,
      el("h2", { class: "apart" }, "Circuit breakers"), breakers);
    return follow((seen) => {
      status = seen;
      load();
    });
  },
};

function pausedTable(pauses, status, said, load) {
  if (pauses.length === 0) return el("p", { class: "muted" }, "Nothing is paused.");
  const rows = pauses.map((pause) =>
    el("tr", {},
      el("th", { scope: "row" }, pill(pause.kind), ` ${pause.name ?? ""}`),
      el("td", { class: "text" }, pause.reason || UNKNOWN),
      el("td", {}, instant(pause.since)),
      el("td", {}, pause.until ? instant(pause.until) : "somebody resumes it"),
      el("td", {}, pause.by === "file" ? "the file" : "a person"),
      may("operate") && el("td", { class: "number" }, resuming(pause, status, said, load))));
  return tableOf("Paused", ["What", "Reason", "Since", "Until", "By", may("operate") && [el("span", { class: "unseen" }, "Action")]], rows);
}

/** Returns a button that ends a pause, after a question. */
export function resuming(pause, status, said, load) {
  const named = pause.kind === "all" ? { all: true } : { [pause.kind]: pause.name };
  const what = pause.kind === "all" ? "everything" : `${pause.kind} ${pause.name}`;
  return acting(el("button", { type: "button", "aria-label": `Resume ${what}` }, "Resume …"), said, async () => {
    const text = pause.kind === "schedule" ? "It publishes again at its times." : "Its events run as soon as workers take them.";
    const file = pause.by === "file" && "The file pauses it: the next apply does so again, as long as it says so.";
    const content = [`Paused: ${pausedWords(pause)}`, text, pause.kind === "type" && waiting(status, pause.name), file];
    if (!(await confirm(`Resume ${what}?`, content.filter(Boolean).map((line) => el("p", {}, line)), "Resume"))) return;
    tell(said, await post("/v1/pauses/end", named), `${what} is resumed.`);
    lookNow();
    await load();
  });
}

// How many events of a type a change lets run, as far as is known.
function waiting(status, type) {
  const line = status?.types.find((one) => one.type === type);
  return line?.due > 0 && `${counted(line.due, "event")} of it due${line.late_seconds > 0 ? `, the oldest for ${span(line.late_seconds)}` : ""}.`;
}

async function begin(status, said, load) {
  const choice = (kind, name) => el("option", { value: JSON.stringify({ [kind]: name }) }, name);
  const group = (label, options) => options.length > 0 && el("optgroup", { label }, options);
  const choices = [
    group("Types", (status?.types ?? []).map(({ type }) => choice("type", type))),
    group("Sources", (status?.sources ?? []).map(({ source }) => choice("source", source))),
    el("option", { value: JSON.stringify({ all: true }) }, "Everything: all types and sources"),
  ];
  const fields = [
    { name: "what", label: "What", choices },
    { name: "reason", label: "Reason", required: true, maxlength: 500, hint: "For your colleagues" },
    { name: "end", label: "Until", hint: "From now, such as 2h, or a time, such as 2026-06-01T09:00:00Z. Empty: until somebody resumes it" },
  ];
  const entered = await confirm("Pause", el("p", {}, "Workers start nothing of it. What runs is finished."), "Pause", { fields });
  if (!entered) return;
  const end = entered.end.trim();
  const until = end === "" ? {} : /^\d{4}-/.test(end) ? { until: end } : { for: end };
  put(said, "Workers are told …");
  const named = JSON.parse(entered.what);
  const [[kind, name]] = Object.entries(named);
  tell(said, await post("/v1/pauses", { ...named, reason: entered.reason, ...until }), kind === "all" ? "Everything is paused." : `${kind} ${name} is paused.`);
  lookNow();
  await load();
}

// Says what was done, and what keeps it from taking hold.
function tell(said, answer, done) {
  const left = answer.not_following.map(({ queue, programs }) =>
    el("li", {}, `Workers still consume ${queue}${programs.length > 0 ? `: ${programs.join(", ")}` : ""}. Update or stop them.`));
  const held = answer.held_by.map((pause) => el("li", {}, `The pause of ${pause.kind} still holds it.`));
  put(said, done, el("ul", { class: "warn" }, left, held));
  announce(done);
}

function breakerTable(breakers, status, said, load) {
  if (breakers.length === 0) return el("p", { class: "muted" }, "No type has a circuit breaker.");
  const rows = breakers.map((breaker) => {
    const close = acting(el("button", { type: "button", "aria-label": `Close the breaker of ${breaker.type}` }, "Close …"), said, async () => {
      const content = ["Its events start as usual. It opens again at too many errors.", waiting(status, breaker.type)];
      if (!(await confirm(`Close the circuit breaker of ${breaker.type}?`, content.filter(Boolean).map((line) => el("p", {}, line)), "Close it"))) return;
      const { changed } = await post(`/v1/breakers/${encodeURIComponent(breaker.type)}/close`);
      put(said, changed ? `The circuit breaker of ${breaker.type} is closed.` : `The circuit breaker of ${breaker.type} was not open.`);
      lookNow();
      await load();
    });
    const isOpen = ["open", "half-open"].includes(breaker.state);
    const by = breaker.opened_by;
    return el("tr", {},
      el("th", { scope: "row" }, breaker.type),
      el("td", {}, pill(breaker.state, COLOURS[breaker.state])),
      el("td", {}, `${counted(breaker.errors, "error")} in ${breaker.window}`),
      el("td", { class: "text" }, breaker.opened_at ? [instant(breaker.opened_at), by && ` at ${by.errors} errors of ${by.runs} runs`] : UNKNOWN,
        breaker.reasons.length > 0 && el("ul", { class: "muted" }, breaker.reasons.map((reason) => el("li", {}, reason)))),
      el("td", {}, next(breaker, isOpen)),
      may("operate") && el("td", { class: "number" }, isOpen && close));
  });
  return tableOf("Circuit breakers", ["Type", "State", "Opens at", "Last opened", "Next", may("operate") && [el("span", { class: "unseen" }, "Action")]], rows);
}

function next(breaker, isOpen) {
  if (!isOpen) return UNKNOWN;
  if (breaker.state === "half-open") return breaker.tried > 0 ? `${breaker.tried} tried now` : "tries the next events";
  return breaker.tried_at ? ["tries again ", instant(breaker.tried_at, { only: "distance" })] : "waits for a person";
}
