// Shows the view that the address names: `#/events?type=mail&id=1` can be sent to a colleague. What is behind `#` never leaves the
// browser, so no log of a proxy has it.

import { learnRights, may } from "./ask.js";
import { el, put } from "./dom.js";
import { sentence } from "./dialog.js";
import { events } from "./events.js";
import { flow } from "./flow.js";
import { letters } from "./letters.js";
import { live } from "./live.js";
import { now } from "./now.js";
import { schedules } from "./schedules.js";
import { topology } from "./topology.js";

const VIEWS = { now, topology, events, letters, schedules, flow };
const main = document.getElementById("main");
let close = () => {};

function show() {
  const [name, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const view = VIEWS[name] ?? now;
  close();
  close = () => {};
  navigation(view);
  document.title = `${view.title} · hatchery`;
  const heading = el("h1", { tabindex: "-1", class: view.isHeaded ? "unseen" : null }, view.title);
  const body = el("div", { class: "view" });
  put(main, heading, body);
  if (may("read")) close = view.show(body, new URLSearchParams(query)) ?? close;
  else put(body, el("p", {}, "This token may not read. Ask for one with the right ", el("code", {}, "read"), "."));
  return heading;
}

function navigation(shown) {
  const links = Object.entries(VIEWS).map(([name, view]) =>
    el("a", { href: `#/${name}`, "aria-current": view === shown ? "page" : null }, view.title),
  );
  put(document.getElementById("views"), links);
}

addEventListener("hashchange", () => {
  // The link to the content is no view.
  if (location.hash === "#main") return;
  show().focus();
});
document.addEventListener("rights", () => show());

async function start() {
  navigation(now);
  try {
    await learnRights();
  } catch (error) {
    put(main, el("h1", {}, "hatchery"), el("p", { class: "bad" }, sentence(error)), el("p", {}, "Reload the page to try again."));
    return;
  }
  live();
}

start();
