// Finds events by their id or reference, tells what Redis knows of them, and changes those that wait.

import { ask, may, post } from "./ask.js";
import { announce, el, facts, pill, put, redraw } from "./dom.js";
import { acting, confirm, sentence } from "./dialog.js";
import { follow, lookNow } from "./live.js";
import { heldBack } from "./now.js";
import { notes, past, timeline } from "./timeline.js";
import { counted, different, instant } from "./words.js";

const COLOURS = { running: "busy", started: "warn", retry: "warn", "dead-letter": "bad", handled: "good", discarded: "warn", dropped: "bad", expired: "warn" };
/** How an event has ended, by the transition that its records have. One that was replayed runs again. */
const ENDS = {
  done: "handled", discarded: "discarded", "letter-discarded": "discarded", cancelled: "cancelled", dropped: "dropped", replaced: "replaced", expired: "expired",
  replayed: null,
};

export const events = {
  title: "Events",
  show(root, parameters) {
    const types = el("datalist", { id: "type-names" });
    const type = field("type", "Type", { list: "type-names", required: true });
    const name = field("name", "Id or reference", { required: true });
    type.input.value = parameters.get("type") ?? "";
    name.input.value = parameters.get("id") ?? parameters.get("reference") ?? parameters.get("name") ?? "";
    const found = el("div", { class: "found" });
    const form = el("form", { class: "ask", role: "search" }, type.element, name.element, el("button", { class: "primary" }, "Find"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const query = new URLSearchParams({ type: type.input.value.trim(), name: name.input.value.trim() });
      // The same address again is no change of it.
      if (location.hash === `#/events?${query}`) find(found, query);
      else location.hash = `#/events?${query}`;
    });
    const held = el("ul", { class: "plain" });
    put(root, form, types, held, found);
    if (type.input.value && name.input.value) find(found, parameters);
    else (type.input.value ? name : type).input.focus();
    return follow((status) => {
      redraw(held, heldBack(status, parameters.get("type")));
      // Nothing is chosen from a list that is drawn anew at each look.
      if (types.children.length !== status.types.length) put(types, status.types.map((line) => el("option", { value: line.type })));
    });
  },
};

function field(name, label, attributes) {
  const input = el("input", { id: `ask-${name}`, name, autocomplete: "off", spellcheck: "false", ...attributes });
  return { input, element: el("p", {}, el("label", { for: `ask-${name}` }, label), input) };
}

/**
 * Finds the events that the address names: by `id`, by `reference`, or by `name`, which may be either. `done`: what a person has just
 * done with the event.
 */
async function find(found, parameters, done) {
  const reading = el("div", {}, el("p", { class: "muted" }, "The records are read …"));
  put(found, el("p", { class: "muted" }, "Redis is asked …"));
  const type = parameters.get("type");
  const names = ["id", "reference"].filter((key) => parameters.has(key));
  const asked = names.length > 0 ? names.map((key) => [key, parameters.get(key)]) : [["id", parameters.get("name")], ["reference", parameters.get("name")]];
  const recorded = past(type, asked);
  const answers = await Promise.allSettled(asked.map(([key, value]) => ask(`/v1/events/${encodeURIComponent(type)}?${new URLSearchParams({ [key]: value })}`)));
  const wrong = answers.map((answer) => answer.reason).filter(Boolean);
  const problem = wrong.find((error) => error.status !== 404);
  // One event may be found by both.
  const known = different(answers.flatMap(({ value }) => value?.events ?? []), ({ id, reference, slot }) => [id, reference, slot]);
  // What was done with an event may end it, and then Redis knows it by its id alone.
  const again = ({ id }, words) => {
    window.history.replaceState(null, "", address({ type, id }));
    return find(found, new URLSearchParams({ type, id }), words);
  };
  const cards = known.map((event) => card(event, again));
  put(found,
    done && el("p", { class: "good" }, el("b", {}, done)),
    problem && el("p", { class: "bad" }, sentence(problem)),
    known.length > 0 && el("p", { class: "muted" }, `${counted(known.length, "event")} found.`),
    cards, reading);
  if (known.length > 0) announce(done ?? `${counted(known.length, "event")} found.`);

  const history = await recorded;
  const lives = new Map();
  for (const record of history.records) if (record.id) lives.set(record.id, [...(lives.get(record.id) ?? []), record]);
  known.forEach((event, at) => {
    // A card with buttons stays: a person may be about to press one.
    if (!isOpen(event)) cards[at].replaceWith(card(told(event, lives.get(event.id) ?? []), again));
  });
  const others = [...lives.keys()].filter((id) => known.every((event) => event.id !== id)).map((id) => told({ type, id }, lives.get(id)));
  if (known.length === 0 && others.length === 1) {
    const [{ id }] = others;
    if (!asked.some(([key, value]) => key === "id" && value === id)) return find(found, new URLSearchParams({ type, id }), done);
    put(reading, card(others[0], again), life(history, id));
  } else if (known.length + others.length === 0) {
    const words = problem ? "" : sentence(wrong[0]);
    put(reading, el("p", {}, words, history.events === "failures" && " One that was handled without a failure is found by its id alone."), notes(history));
    announce(problem ? sentence(problem) : words);
  } else {
    if (known.length === 0) announce(`${counted(others.length, "event")} found.`);
    put(reading, known.length === 1 && life(history, known[0].id), others.length > 0 && list(others, known.length === 0 && history));
  }
}

const address = (named) => `#/events?${new URLSearchParams(named)}`;

function life(history, id) {
  const records = history.records.filter((record) => !id || record.id === id);
  return [el("h2", {}, "What has happened"), timeline({ ...history, records })];
}

function list(others, history) {
  const lines = others.map((event) => el("li", {}, el("a", { href: address({ type: event.type, id: event.id }) }, event.id), " ",
    pill(event.state, COLOURS[event.state]), " ", instant(event.at)));
  return [el("h2", {}, `${counted(lines.length, history ? "event" : "other event")} in the records`), el("ul", { class: "plain" }, lines), history && notes(history)];
}

// Redis knows that an event has ended, and not how: the last record of an end does.
function told(event, records) {
  const last = records.at(-1);
  const state = event.state && event.state !== "handled" ? event.state : (end(records) ?? event.state ?? last?.transition);
  return { ...event, state, reference: event.reference ?? last?.reference, at: last?.at };
}

function end(records) {
  return records.reduce((before, { transition }) => {
    // An obsolete letter of an event that was handled tells nothing of the event.
    if (transition === "letter-discarded" && before === "handled") return before;
    return transition in ENDS ? ENDS[transition] : before;
  }, null);
}

function card(event, again) {
  const title = event.id ?? event.reference ?? "an event that has no id";
  const said = el("p", { role: "status" });
  return el("article", { class: "card" },
    el("h2", {}, el("a", { href: address(event.id ? { type: event.type, id: event.id } : { type: event.type, reference: event.reference }) }, title), " ",
      pill(event.state ?? "unknown", COLOURS[event.state])),
    facts([
      ["Type", event.type],
      ["Reference", event.reference],
      ["Due", !hasEnded(event) && event.due && instant(event.due)],
      ["Runs now", event.running && "yes, or an event that it replaces"],
      ["Failed attempts", !hasEnded(event) && event.attempts],
      // The reason of a retry has the error in it.
      event.error && event.error !== event.reason ? ["Error", event.error] : ["Reason", event.reason],
    ]),
    // By the reference alone, other events of it would be changed too.
    may("operate") && isOpen(event) && event.id && actions(event, said, again),
    said);
}

const hasEnded = ({ state }) => Boolean(state) && Object.values(ENDS).includes(state);

const isOpen = (event) => event.running || ["waiting", "retry", "running", "started"].includes(event.state);

function actions(event, said, again) {
  const named = { id: event.id };
  const change = (verb, body) => post(`/v1/events/${encodeURIComponent(event.type)}/${verb}`, { ...named, ...body });
  const act = (label, danger, run) => acting(el("button", { type: "button", class: danger ? "danger" : "" }, label), said, run);
  const name = `${event.type} ${event.id}${event.reference && event.reference !== event.id ? `, reference ${event.reference}` : ""}`;
  const done = async (words) => {
    lookNow();
    await again(event, `${words}: ${name}.`);
  };
  return el("p", { class: "buttons" },
    act("Run now …", false, async () => {
      const text = [el("p", {}, `${name} keeps its failed attempts.`), event.due && el("p", {}, "Due: ", instant(event.due))];
      if (!(await confirm("Run it now?", text, "Run now"))) return;
      await change("run-now");
      await done("It is in its queue, and runs as soon as a worker takes it");
    }),
    act("Reschedule …", false, async () => {
      const fields = [{ name: "when", label: "When", required: true, hint: "From now, such as 2h, or a time, such as 2026-06-01T09:00:00Z" }];
      const entered = await confirm("Give it another time?", el("p", {}, `${name}: its attempts count from the beginning.`), "Reschedule", { fields });
      if (!entered) return;
      const when = entered.when.trim();
      await change("reschedule", /^\d{4}-/.test(when) ? { to: when } : { delay: when });
      await done("It has another time");
    }),
    act("Cancel …", true, async () => {
      const text = event.running ? "It runs: its handler is told to end, and nothing of its outcome counts." : "It does not run any more.";
      if (!(await confirm("Cancel it?", el("p", {}, `${name}. ${text}`), "Cancel the event", { danger: true, keep: "Keep it" }))) return;
      await change("cancel");
      await done("It is cancelled");
    }));
}
