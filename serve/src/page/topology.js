// The picture of the topology: lanes of what an event passes, with how many messages are where.

import { ask } from "./ask.js";
import { el, pill, put, redraw } from "./dom.js";
import { sentence } from "./dialog.js";
import { follow } from "./live.js";
import { count, counted } from "./words.js";
import { pausedWords } from "./now.js";

/** How long the counts stay, in milliseconds: each look makes the broker list its queues. */
const STAY = 25_000;

export const topology = {
  title: "Topology",
  show(root) {
    const picture = el("div", {}, el("p", { class: "muted" }, "The server counts the messages …"));
    put(root, picture);
    let lookedAt = -Infinity;
    return follow(async () => {
      if (performance.now() - lookedAt < STAY) return;
      lookedAt = performance.now();
      try {
        redraw(picture, draw(await ask("/v1/topology")));
      } catch (error) {
        redraw(picture, el("p", { class: "bad" }, sentence(error)));
      }
    });
  },
};

function draw(shown) {
  const counts = new Map(shown.queues.map((queue) => [queue.queue, queue]));
  const node = (one) => drawn(one, figures(one, shown.name, counts));
  const lanes = shown.groups.map(({ id, title }) => ({ title, nodes: shown.nodes.filter(({ group }) => group === id) }));
  const first = shown.nodes.findIndex(({ group }) => group);
  const alone = shown.nodes.filter(({ group }) => !group);
  const into = (target) => alone.filter(({ id, kind }) => kind === "program" && shown.edges.some(({ from, to }) => from === id && to === target));
  const begins = into("scheduler");
  const rest = alone.filter((one) => one.kind === "queue" && shown.nodes.indexOf(one) > first);
  const pauses = new Map(shown.types.filter(({ pause }) => pause).map(({ type, pause }) => [type, pause]));
  return [
    el("p", { class: "muted" }, shown.summary),
    el("ul", { class: "lane begin" }, begins.map((one) => el("li", {}, node(one)))),
    lanes.map(({ title, nodes }) => el("section", { class: "swim" },
      el("h2", {}, title, pauses.has(title) && [" ", el("span", { title: pausedWords(pauses.get(title)) }, pill("paused", "warn"))]),
      el("ol", { class: "lane" }, nodes.map((one) => {
        const before = step(one, shown);
        return el("li", { class: before && "after" }, before?.label && el("span", { class: "step muted" }, before.label), node(one));
      })))),
    rest.length > 0 && el("section", { class: "swim" }, el("h2", {}, "Beside the way"), el("ul", { class: "lane" }, rest.map((one) => el("li", {}, node(one))))),
  ];
}

// The way to a node from another one of its lane, if there is one: itself, or to an exchange between them, whose way has the word.
function step(node, { nodes, edges }) {
  const incoming = edges.filter(({ to, back }) => to === node.id && !back);
  const exchanges = incoming.filter(({ from }) => nodes.find(({ id }) => id === from)?.kind === "exchange").map(({ from }) => from);
  const isOfLane = ({ from }) => nodes.find(({ id }) => id === from)?.group === node.group;
  return incoming.find(isOfLane) ?? edges.find((edge) => exchanges.includes(edge.to) && isOfLane(edge) && !edge.back);
}

function drawn({ kind, name, about }, known) {
  return el("div", { class: `node ${kind} ${known?.ready > 0 ? "full" : ""}` },
    el("b", {}, name),
    known && el("p", { class: "figure" }, count(known.ready), el("span", { class: "unseen" }, " messages"),
      known.unacknowledged > 0 && el("span", { class: "muted" }, ` +${count(known.unacknowledged)} in work`)),
    kind === "queue" && known?.consumers > 0 && el("p", { class: "muted" }, counted(known.consumers, "consumer")),
    about.map((line) => el("p", { class: "muted" }, line)));
}

// The counts of a node's queues: a queue of its name, or all those whose names begin with it, such as those of retries.
function figures({ kind, name }, topologyName, counts) {
  if (kind !== "queue" && kind !== "timer") return null;
  const full = `${topologyName}.${name.startsWith("ladder.") ? "ladder" : name}`;
  const queues = [...counts].filter(([queue]) => queue === full || (kind === "timer" && queue.startsWith(`${full}.`))).map(([, figure]) => figure);
  if (queues.length === 0) return null;
  const sum = (key) => queues.reduce((all, queue) => (all === null || queue[key] === null ? null : all + queue[key]), 0);
  return { ready: sum("ready"), unacknowledged: sum("unacknowledged"), consumers: sum("consumers") };
}
