// The status, kept up to date: one look for all views.

import { ask, may } from "./ask.js";
import { announce, say } from "./dom.js";
import { sentence } from "./dialog.js";
import { span } from "./words.js";

/** How often the status is asked for, in milliseconds. */
const EVERY = 10_000;
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
export function lookNow() {
  wake();
}

/** Follows the status until the page is closed. */
export async function live() {
  setInterval(tell, 1_000);
  document.addEventListener("visibilitychange", () => document.hidden || wake());
  for (;;) {
    try {
      if (may("read")) take(await ask("/v1/status"));
    } catch (error) {
      problem = error;
    }
    tell();
    await pause(EVERY);
  }
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

// A page that nobody sees asks nothing; it looks at once when it is seen again.
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
