// Replays or discards letters: first the answer of the dry run, then, after a question, the letters.

import { post } from "./ask.js";
import { announce, el, put } from "./dom.js";
import { confirm } from "./dialog.js";
import { lookNow } from "./live.js";
import { count, counted } from "./words.js";

const DONE = { replay: "Replayed", discard: "Discarded" };
/** How many reasons a question has. */
const REASONS = 6;

/** Asks what would be done, asks whether to do it, and does it. `chosen` has the filters. */
export async function sweep(verb, chosen, said, again) {
  put(said, el("p", { class: "muted" }, "A dry run: nothing is changed …"));
  const would = await post(`/v1/dead-letters/${verb}`, { ...chosen, dry_run: true });
  put(said);
  const discards = verb === "discard";
  const number = discards ? would.lines.length : would.letters.would_be_done;
  const what = [
    number === 0
      ? el("p", {}, `Nothing to ${verb}.`)
      : el("p", {}, discards ? "What is discarded leaves the broker. The page gives you a file with it first, which is then the only copy." : "They run again, and their attempts count from the beginning."),
    Object.keys(chosen).length > 0 && el("p", {}, `Chosen by ${Object.entries(chosen).map(([name, value]) => `${name} ${value}`).join(", ")}.`),
    would.more && el("p", {}, `More letters match. They stay: ${verb} again for the rest.`),
    el("ul", { class: "plain" }, would.groups.slice(0, REASONS).map((group) => el("li", {}, el("b", {}, count(group.count)), ` ${group.failure}`)),
      would.groups.length > REASONS && el("li", { class: "muted" }, `and ${counted(would.groups.length - REASONS, "more reason")}`)),
    left(would),
  ];
  if (number === 0) {
    put(said, what);
    return;
  }
  const action = `${discards ? "Discard" : "Replay"} ${counted(number, "letter")}`;
  if (!(await confirm(`${action}?`, what, action, { danger: discards }))) return;
  const saved = discards && file(would.lines);
  put(said, el("p", { class: "muted" }, "The letters are on their way …"), saved);
  // Those that have come meanwhile were not asked about.
  const named = discards ? { digests: would.lines.map(({ digest }) => digest) } : { limit: Math.min(number, 10_000) };
  const done = await post(`/v1/dead-letters/${verb}`, { ...chosen, ...named, dry_run: false });
  const words = `${DONE[verb]}: ${counted(done.letters.done, "letter")}.`;
  lookNow();
  const result = el("div", {}, el("p", {}, el("b", {}, words)), left(done), saved);
  // The view is drawn anew, and has what was done on top.
  await again();
  document.querySelector(".view [role=status]")?.replaceChildren(result);
  announce(words);
}

function left({ letters, warnings }) {
  const stay = [
    [letters.obsolete, "obsolete: the event has run, was cancelled or was replaced since"],
    [letters.unreadable, "no events that can be published"],
    [letters.unread, "could not be read: others hold them, or the broker is slow"],
  ].filter(([number]) => number > 0);
  const lines = [...stay.map(([number, why]) => `Left: ${counted(number, "letter")}, ${why}.`), ...warnings];
  return lines.length > 0 && el("ul", { class: "warn plain" }, lines.map((line) => el("li", {}, line)));
}

/** Returns a link to a file of letters, as `topology publish --batch` takes them, and takes it at once. */
function file(lines) {
  const text = lines.map(({ line }) => `${line}\n`).join("");
  const name = `discarded-${new Date().toISOString().replace(/[:.]/g, "-")}.ndjson`;
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" })), download: name }, name);
  link.click();
  return el("p", {}, "The letters are in the file ", link, ".");
}
