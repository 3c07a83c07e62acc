// Dead letters: why events were given up, what was in them. They are read only when somebody asks, because RabbitMQ counts each look.

import { ask, may } from "./ask.js";
import { announce, el, facts, pill, put, say } from "./dom.js";
import { acting, sentence } from "./dialog.js";
import { sweep } from "./sweep.js";
import { UNKNOWN, count, counted, instant } from "./words.js";

const FILTERS = [["type", "Type"], ["reason", "Text in the reason"], ["reference", "Reference"], ["id", "Id"]];
const COLOURS = { open: "bad", unreadable: "warn", unknown: "warn" };
/** How many reasons are shown. */
const REASONS = 50;
/** How long what was read is shown again without another look, in milliseconds. */
const STAY = 60_000;
/** How many bytes of a payload are shown if somebody asks for all of it. */
const WHOLE = 1024 * 1024;

export const letters = {
  title: "Dead letters",
  show(root, parameters) {
    const inputs = FILTERS.map(([name, label]) => {
      const input = el("input", { id: `letter-${name}`, name, value: parameters.get(name) ?? "", autocomplete: "off", spellcheck: "false" });
      return el("p", {}, el("label", { for: input.id }, label), input);
    });
    const form = el("form", { class: "ask", role: "search" }, inputs, el("button", { class: "primary" }, "Look"));
    const found = el("div");
    // What the buttons change is what was looked for, and not what is in the fields now.
    const acts = el("fieldset");
    const changed = el("p", { class: "warn", "aria-live": "polite" });
    form.addEventListener("input", () => {
      acts.disabled = address(Object.fromEntries(new FormData(form))) !== address(Object.fromEntries(parameters));
      say(changed, acts.disabled ? "The fields have changed: press Look before you replay or discard." : "");
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const query = address(Object.fromEntries(new FormData(form)));
      looks.delete(query);
      if (location.hash === query) look(found, acts, parameters);
      else location.hash = query;
    });
    put(root, form, changed, found);
    look(found, acts, parameters);
  },
};

function address(filters) {
  const given = Object.entries(filters).filter(([, value]) => value);
  return `#/letters${given.length > 0 ? `?${new URLSearchParams(given)}` : ""}`;
}

// The looks of the last minute by the address of their view, and the last one of them. A view that is opened again needs no further look.
const looks = new Map();
let last = Promise.resolve();

// Reads letters, one look after the other: a server that holds letters cannot look at them a second time.
function read(view, chosen) {
  for (const [key, { until }] of looks) if (performance.now() > until) looks.delete(key);
  const known = looks.get(view);
  if (known) return known.answer;
  const look = { until: Infinity };
  look.answer = last.then(async () => {
    try {
      const found = await ask(`/v1/dead-letters?${new URLSearchParams(chosen)}`);
      look.until = performance.now() + STAY;
      return { ...found, at: new Date().toISOString() };
    } catch (error) {
      look.until = 0;
      throw error;
    }
  });
  last = look.answer.catch(() => {});
  looks.set(view, look);
  return look.answer;
}

async function look(found, acts, parameters) {
  put(found, el("p", { class: "muted" }, "The queues of dead letters are read …"));
  const chosen = Object.fromEntries(FILTERS.map(([name]) => [name, parameters.get(name)]).filter(([, value]) => value));
  let answer;
  try {
    answer = await read(address(chosen), chosen);
  } catch (error) {
    if (!found.isConnected) return;
    put(found, el("p", { class: "bad" }, sentence(error)));
    announce(sentence(error));
    return;
  }
  // Another view is shown by now.
  if (!found.isConnected) return;
  const again = () => {
    looks.clear();
    return look(found, acts, parameters);
  };
  const obsolete = answer.obsolete > 0 && ` ${count(answer.obsolete)} of them obsolete: the event has run, was cancelled or was replaced since.`;
  const said = el("div", { role: "status" });
  const head = answer.found === 0 ? "There are no such letters." : `${counted(answer.found, "letter")}, ${reasons(answer)}.`;
  put(acts, may("operate") && answer.found > 0 && buttons(chosen, said, again));
  put(found,
    said,
    el("div", { class: "bar" }, el("p", {}, el("b", {}, head), obsolete, el("span", { class: "muted" }, " Read ", instant(answer.at, { only: "distance" }), ".")), acts, Object.keys(chosen).length > 0 && el("a", { href: "#/letters" }, "Show all")),
    answer.warnings.length > 0 && el("ul", { class: "warn plain" }, answer.warnings.map((warning) => el("li", {}, warning))),
    el("ul", { class: "groups" }, answer.groups.slice(0, REASONS).map((group) => reason(group, chosen))),
    others(answer),
    answer.letters.length > 0 && el("h2", { class: "apart" }, answer.more ? `The first ${counted(answer.letters.length, "letter")}` : "Letters"),
    answer.letters.map((one) => letter(one, again)));
  announce(head);
}

// The server tells a thousand reasons apart.
function reasons({ found, groups }) {
  const isAll = lettersOf(groups) === found;
  return `${counted(groups.length, "reason")}${isAll ? "" : " or more"}`;
}

const lettersOf = (groups) => groups.reduce((sum, { count: number }) => sum + number, 0);

// The letters whose reason is not in the list.
function others({ found, groups }) {
  const number = found - lettersOf(groups.slice(0, REASONS));
  return number > 0 && el("p", { class: "muted" }, `${counted(number, "more letter")} of other reasons. A text in the reason finds them.`);
}

function buttons(chosen, said, again) {
  return [
    acting(el("button", { type: "button" }, "Replay …"), said, () => sweep("replay", chosen, said, again)),
    acting(el("button", { type: "button", class: "danger" }, "Discard …"), said, () => sweep("discard", chosen, said, again)),
  ];
}

function reason(group, chosen) {
  return el("li", {},
    el("b", { class: "many" }, count(group.count)),
    el("div", {},
      el("a", { href: address({ ...chosen, reason: group.failure }) }, group.failure || "without a reason"),
      el("p", { class: "muted" }, group.types.join(", "), group.failed_at && [" · last ", instant(group.failed_at)],
        group.obsolete > 0 && ` · ${count(group.obsolete)} obsolete`)));
}

function letter(one, again) {
  const said = el("div", { role: "status" });
  const payload = el("div", {}, shown(one));
  const rest = one.payload_cut && one.id && acting(el("button", { type: "button", class: "quiet" }, "Show all of it"), said, async () => {
    const path = `/v1/dead-letters/${encodeURIComponent(one.type)}/${encodeURIComponent(one.id)}?payload_limit=${WHOLE}`;
    const { letters } = await ask(path);
    put(payload, shown(letters[0]));
    rest.remove();
  });
  const headers = Object.entries(one.headers).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  const named = Object.fromEntries(["type", "id", "reference"].filter((key) => one[key]).map((key) => [key, one[key]]));
  return el("details", { class: "card letter" },
    el("summary", {}, el("span", { class: "name" }, one.id ?? one.routing_key), " ", pill(one.state, COLOURS[one.state]),
      el("span", { class: "muted" }, ` ${one.type}${one.reference ? ` ${one.reference}` : ""} · `, one.failed_at ? instant(one.failed_at, { only: "distance" }) : UNKNOWN),
      el("span", { class: "failure" }, one.failure)),
    facts([
      ["Reference", one.reference && el("a", { href: `#/events?${new URLSearchParams({ type: one.type, reference: one.reference })}` }, one.reference)],
      ["Failed attempts", one.attempts],
      ["First failed", one.first_failed_at && instant(one.first_failed_at)],
      ["Last failed", one.failed_at && instant(one.failed_at)],
      ["Replays", one.replays > 0 && one.replays],
      ["Queue", one.queue],
      ["Why it is so", one.why],
      ["Correlation id", one.correlation_id],
    ]),
    el("h3", {}, "Payload ", el("span", { class: "muted" }, [one.content_type, counted(one.size, "byte")].filter(Boolean).join(", "))), payload, rest,
    headers.length > 0 && [el("h3", {}, "Headers"), facts(headers, "pairs")],
    may("operate") && one.id && el("p", { class: "buttons" }, buttons(named, said, again)),
    said);
}

function shown({ payload, payload_base64, payload_cut }) {
  const text = payload ?? payload_base64 ?? "";
  return [
    payload_base64 && el("p", { class: "muted" }, "Bytes that are no text, in base64:"),
    el("pre", { tabindex: "0" }, text || "empty", payload_cut && " …"),
  ];
}
