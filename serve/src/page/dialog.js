// Questions to the person.

import { el, put } from "./dom.js";

/** Opens a dialog with this content, and resolves with what `answer` makes of it at its submit, or with null if it is closed. */
function open(title, content, buttons, answer) {
  return new Promise((resolve) => {
    const form = el("form", { method: "dialog" }, el("h2", { id: "question" }, title), content, el("p", { class: "buttons" }, buttons));
    const dialog = el("dialog", { "aria-labelledby": "question" }, form);
    let answered = null;
    form.addEventListener("submit", (event) => {
      if (event.submitter?.value === "cancel") return;
      answered = answer(form);
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answered);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}


/** Asks for the token, until there is one. `wasRefused`: the server no longer knows the last one. */
export async function askToken(wasRefused) {
  const input = el("input", { id: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false", autofocus: true });
  const content = [
    el("p", {}, wasRefused ? "The server does not know this token." : "This server answers those who have a token."),
    el("label", { for: "token" }, "Token"),
    input,
    el("p", { class: "muted" }, "The page keeps it in memory, until you close or reload it."),
  ];
  for (;;) {
    const entered = await open("Sign in", content, el("button", { class: "primary" }, "Continue"), () => input.value.trim());
    if (entered) return entered;
  }
}

/** Asks whether to go on. A field is an input, or with `choices` a select. Resolves with what was entered into the fields by their names, or with null. `keep`: the word for no. */
export function confirm(title, content, action, { danger = false, fields = [], keep = "Cancel" } = {}) {
  const entered = (form) => Object.fromEntries(new FormData(form));
  const labelled = fields.map(({ name, label, hint, choices, ...attributes }) => [
    el("label", { for: `field-${name}` }, label),
    el(choices ? "select" : "input", { id: `field-${name}`, name, autocomplete: "off", "aria-describedby": hint && `hint-${name}`, ...attributes }, choices),
    hint && el("p", { class: "muted", id: `hint-${name}` }, hint),
  ]);
  const buttons = [el("button", { value: "cancel", formnovalidate: true }, keep), el("button", { class: danger ? "danger" : "primary", value: "go" }, action)];
  return open(title, [content, labelled], buttons, entered);
}

/** Runs an action of a button: it cannot be pressed twice meanwhile, and what goes wrong is said below it. */
export function acting(button, said, action) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    put(said);
    try {
      await action();
    } catch (error) {
      put(said, el("span", { class: "bad" }, sentence(error)));
    } finally {
      button.disabled = false;
    }
  });
  return button;
}

/** Returns what went wrong as a sentence. */
export function sentence(error) {
  const detail = error.message;
  const text = error.status === 403 ? `Not allowed: ${detail}` : detail.charAt(0).toUpperCase() + detail.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
