// Finds events by their id or reference, tells what Redis knows of them, and changes those that wait.

import { ask, may, post } from "./ask.js";
import { announce, el, facts, pill, put } from "./dom.js";
import { acting, confirm, sentence } from "./dialog.js";
import { follow, lookNow } from "./live.js";
import { timeline } from "./timeline.js";
import { counted, instant } from "./words.js";

const COLOURS = { running: "busy", started: "warn", retry: "warn", "dead-letter": "bad", handled: "good" };

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
    put(root, form, types, found);
    if (type.input.value && name.input.value) find(found, parameters);
    else (type.input.value ? name : type).input.focus();
    return follow((status) => {
      // Nothing is chosen from a list that is drawn anew at each look.
      if (types.children.length !== status.types.length) put(types, status.types.map((line) => el("option", { value: line.type })));
    });
  },
};

function field(name, label, attributes) {
  const input = el("input", { id: `ask-${name}`, name, autocomplete: "off", spellcheck: "false", ...attributes });
  return { input, element: el("p", {}, el("label", { for: `ask-${name}` }, label), input) };
}

/** Finds the events that the address names: by `id`, by `reference`, or by `name`, which may be either. */
async function find(found, parameters) {
  put(found, el("p", { class: "muted" }, "Redis is asked …"));
  const type = parameters.get("type");
  const names = ["id", "reference"].filter((key) => parameters.has(key));
  const asked = names.length > 0 ? names.map((key) => [key, parameters.get(key)]) : [["id", parameters.get("name")], ["reference", parameters.get("name")]];
  const answers = await Promise.allSettled(asked.map(([key, value]) => ask(`/v1/events/${encodeURIComponent(type)}?${new URLSearchParams({ [key]: value })}`)));
  const known = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value.events : []));
  const wrong = answers.map((answer) => answer.reason).filter(Boolean);
  if (known.length === 0) {
    const problem = wrong.find((error) => error.status !== 404) ?? wrong[0];
    const detail = sentence(problem);
    put(found, el("p", { class: problem.status === 404 ? "" : "bad" }, detail));
    announce(detail);
    return;
  }
  // One event may be found by both.
  const seen = new Set();
  const different = known.filter((event) => {
    const key = JSON.stringify([event.id, event.reference, event.slot]);
    return !seen.has(key) && seen.add(key);
  });
  const again = () => find(found, parameters);
  put(found, el("p", { class: "muted" }, `${counted(different.length, "event")} found.`), different.map((event) => card(event, again)),
    different.length === 1 && [el("h2", {}, "What has happened"), timeline(different[0])]);
  announce(`${counted(different.length, "event")} found.`);
}

function card(event, again) {
  const title = event.id ?? event.reference ?? "an event that has no id";
  const address = event.id ? { type: event.type, id: event.id } : { type: event.type, reference: event.reference };
  const said = el("p", { role: "status" });
  return el("article", { class: "card" },
    el("h2", {}, el("a", { href: `#/events?${new URLSearchParams(address)}` }, title), " ", pill(event.state ?? "unknown", COLOURS[event.state])),
    facts([
      ["Type", event.type],
      ["Reference", event.reference],
      ["Due", event.due && instant(event.due)],
      ["Runs now", event.running && "yes, or an event that it replaces"],
      ["Failed attempts", event.attempts],
      // The reason of a retry has the error in it.
      event.error && event.error !== event.reason ? ["Error", event.error] : ["Reason", event.reason],
      ["Slot", event.slot],
      ["Copy", event.generation !== null && `${event.version === null ? "" : `version ${event.version}, `}generation ${event.generation}`],
    ]),
    // By the reference alone, other events of it would be changed too.
    may("operate") && isOpen(event) && event.id && actions(event, said, again),
    said);
}

const isOpen = (event) => event.running || ["waiting", "retry", "running", "started"].includes(event.state);

function actions(event, said, again) {
  const named = { id: event.id };
  const change = (verb, body) => post(`/v1/events/${encodeURIComponent(event.type)}/${verb}`, { ...named, ...body });
  const act = (label, danger, run) => acting(el("button", { type: "button", class: danger ? "danger" : "" }, label), said, run);
  const done = async (answer) => {
    const results = Object.entries(answer.results).map(([word, number]) => `${number} ${word}`).join(", ");
    lookNow();
    await again();
    announce(`Done: ${results}.`);
  };
  const name = event.id;
  return el("p", { class: "buttons" },
    act("Run now", false, async () => {
      if (await confirm("Run it now?", el("p", {}, `${event.type} ${name} keeps its failed attempts.`), "Run now")) await done(await change("run-now"));
    }),
    act("Reschedule …", false, async () => {
      const fields = [{ name: "when", label: "When", required: true, hint: "From now, such as 2h, or a time, such as 2026-06-01T09:00:00Z" }];
      const entered = await confirm("Give it another time?", el("p", {}, `${event.type} ${name} begins with 0 attempts.`), "Reschedule", { fields });
      if (!entered) return;
      const when = entered.when.trim();
      await done(await change("reschedule", /^\d{4}-/.test(when) ? { to: when } : { delay: when }));
    }),
    act("Cancel …", true, async () => {
      const text = event.running ? "It runs: its handler is told to end, and nothing of its outcome counts." : "It does not run any more.";
      if (await confirm("Cancel it?", el("p", {}, `${event.type} ${name}. ${text}`), "Cancel the event", { danger: true })) await done(await change("cancel"));
    }));
}
