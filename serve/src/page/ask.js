// Requests to the API. The token is in this variable alone: no cookie, no storage, and gone with the page.

import { askToken } from "./dialog.js";

let token = null;
let asking = null;
let rights = null;

/** What the server says is wrong with a request. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Asks, and returns the answer. Asks the person for a token where the server wants one. */
export async function request(path, { method = "GET", body, signal, accept = "application/json" } = {}) {
  for (;;) {
    const used = token;
    const headers = { accept };
    if (used !== null) headers.authorization = `Bearer ${used}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const answer = await sent(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    if (answer.ok) return answer;
    const problem = await read(answer);
    if (problem.status !== 401) throw problem;
    await enter(used);
  }
}

async function sent(path, options) {
  try {
    return await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the server does not answer");
  }
}

async function read(answer) {
  try {
    const problem = await answer.json();
    return new Problem(answer.status, String(problem.detail));
  } catch {
    return new Problem(answer.status, `the server answers with ${answer.status}`);
  }
}

/** Asks and returns the answer's JSON. */
export async function ask(path, options) {
  const answer = await request(path, options);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "the answer of the server was cut off");
  }
}

/** Sends a change. */
export function post(path, body) {
  return ask(path, { method: "POST", body });
}

// Several requests may find out at once that the token is missing or no longer known: the person is asked once.
async function enter(refused) {
  if (token !== refused) return;
  asking ??= askToken(refused !== null).then((entered) => {
    token = entered;
    asking = null;
    return learnRights();
  });
  await asking;
}

/** Learns what the token may do. */
export async function learnRights() {
  const learned = (await ask("/v1/token")).rights;
  const isKnown = rights !== null && learned.join() === [...rights].join();
  rights = new Set(learned);
  if (!isKnown) document.dispatchEvent(new Event("rights"));
}

/** Returns whether the token may do this: `read` or `operate`. */
export function may(right) {
  return rights?.has(right) ?? false;
}
