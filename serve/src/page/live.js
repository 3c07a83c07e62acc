// The status, kept up to date: one look for all views.

import { Problem, ask, may, request } from "./ask.js";
import { announce, say } from "./dom.js";
import { sentence } from "./dialog.js";
import { span, tick } from "./words.js";

/** How often the status is asked for where there is no stream of changes, in milliseconds. */
const EVERY = 10_000;
/** How long the stream of changes may say nothing, in milliseconds: it sends at least a line every ten seconds. */
const SILENCE = 30_000;
/** After how many seconds without an answer the data count as old. One look takes up to twelve seconds. */
const OLD = 30;
/** How many looks the sparklines show. */
const LOOKS = 60;

const listeners = new Set();
const looks = new Map();
let status = null;
let receivedAt = null;
let problem = null;
let wake = () => {};
let leave = () => {};

/** Calls a listener with the status now, if there is one, and whenever it changes. Returns how to end that. */
export function follow(listener) {
  listeners.add(listener);
  if (status !== null) listener(status);
  return () => listeners.delete(listener);
}

/** Returns the due events of a type at the last looks. */
export function history(type) {
  return looks.get(type) ?? [];
}

/** Looks at once, as after a change. */
export async function lookNow() {
  wake();
  try {
    take(await ask("/v1/status"));
  } catch {
    // The stream, or the next look, says what is wrong.
  }
}

/** Follows the status until the page is closed. */
export async function live() {
  setInterval(tell, 1_000);
  setInterval(tick, 1_000);
  // A page that nobody sees asks nothing; it looks at once when it is seen again.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : wake()));
  for (;;) {
    try {
      if (may("read")) {
        await changes();
        continue;
      }
    } catch (error) {
      // The server may have as many listeners as it takes.
      if (error.status > 0) await once();
      else if (error.name !== "AbortError") problem = error;
    }
    tell();
    await pause(problem?.status === 0 && !document.hidden ? 1_000 : EVERY);
  }
}

async function once() {
  try {
    take(await ask("/v1/status"));
  } catch (error) {
    problem = error;
  }
}

// Listens to the stream of changes until its end. The server ends it from time to time.
async function changes() {
  const abort = new AbortController();
  leave = () => abort.abort();
  let silence;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(leave, SILENCE);
  };
  try {
    const answer = await request("/v1/changes", { accept: "text/event-stream", signal: abort.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      heard();
      const { value, done } = await reader.read();
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      events.forEach(hear);
    }
  } catch (error) {
    if (error.name === "AbortError" && !document.hidden) throw new Problem(0, "the server says nothing any more");
    // The connection was cut off.
    throw error instanceof TypeError ? new Problem(0, "the server does not answer") : error;
  } finally {
    clearTimeout(silence);
  }
}

// An event has the status, or why there is none. A line without one says that nothing has changed.
function hear(event) {
  const data = /^data: (.*)$/m.exec(event)?.[1];
  if (data === undefined) {
    if (problem === null && status !== null) take(status);
  } else if (/^event: problem$/m.test(event)) {
    const { status: code, detail } = JSON.parse(data);
    problem = new Problem(code, detail);
  } else {
    take(JSON.parse(data));
  }
  tell();
}

function take(answer) {
  status = answer;
  receivedAt = performance.now();
  problem = null;
  for (const { type, due } of answer.types) {
    const known = looks.get(type) ?? [];
    known.push(due ?? 0);
    looks.set(type, known.slice(-LOOKS));
  }
  say(document.getElementById("topology"), answer.topology);
  say(document.getElementById("broker"), answer.broker ? `RabbitMQ ${answer.broker}` : "");
  for (const listener of listeners) listener(answer);
}

async function pause(most) {
  do {
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, most);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  } while (document.hidden);
}

// Says how old the data are, in words and in colour.
function tell() {
  const age = document.getElementById("age");
  const seconds = receivedAt === null ? null : (performance.now() - receivedAt) / 1_000;
  const isOld = problem !== null || (seconds !== null && seconds > OLD);
  const ago = seconds === null ? "" : `${span(seconds)} old`;
  const before = age.className;
  if (!may("read")) {
    say(age, "");
  } else if (problem !== null) {
    say(age, `${sentence(problem)} ${ago && `What is shown is ${ago}.`}`.trim());
    age.className = "age bad";
  } else if (isOld) {
    say(age, `No answer yet: what is shown is ${ago}`);
    age.className = "age warn";
  } else {
    say(age, seconds === null ? "The server looks at the broker …" : `Live, ${ago}`);
    age.className = "age good";
  }
  if (before !== "age" && before !== age.className) announce(isOld ? age.textContent : "The page is up to date again.");
  document.body.classList.toggle("old", isOld && seconds !== null);
}
