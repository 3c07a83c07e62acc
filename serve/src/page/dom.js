// Builds elements. A text becomes a text node, so that nothing that people have put into an event can become markup.

/**
 * Returns an element. An attribute that is null, undefined or false is left out; `on` has listeners by the names of their events.
 * A child is a node or a text; one that is null, undefined or false is left out.
 */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Returns an element of a drawing. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...present(children));
  return element;
}

/** Puts these children in place of those that an element has. */
export function put(element, ...children) {
  element.replaceChildren(...present(children));
}

function present(children) {
  const flat = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return flat.map((child) => (child instanceof Node ? child : String(child)));
}

const drawn = new WeakMap();

/** Puts these children in place of those of the last call only if they say something else: so the focus and a selection stay. */
export function redraw(element, ...children) {
  const nodes = present(children);
  const text = nodes.map(said).join("\n");
  if (drawn.get(element) !== text) element.replaceChildren(...nodes);
  drawn.set(element, text);
}

// Returns the text of a child. A redraw ignores how long ago an instant is: that changes by itself.
function said(child) {
  if (!(child instanceof Element)) return child.textContent ?? child;
  const copy = child.cloneNode(true);
  for (const time of copy.querySelectorAll("time[data-age]")) time.textContent = time.dateTime;
  return copy.textContent;
}

/** Sets a text only if it is another one, so that a selection, and what a screen reader reads, stay. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Tells people with a screen reader what has changed. */
export function announce(text) {
  say(document.getElementById("said"), text);
}

/** Returns a list of names and values. A value is a node or a text; what has none is left out. */
export function facts(pairs, style = "") {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return el("dl", { class: `facts ${style}` }, known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** Returns a command that can be copied. */
export function command(text) {
  const copied = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      say(button, "Copied");
    } catch {
      // Without TLS a browser gives no clipboard to a page of another machine; the text can be selected.
      say(button, "Select it");
      getSelection().selectAllChildren(button.previousSibling);
    }
  };
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Copy the command ${text}`, on: { click: copied } }, "Copy");
  return el("p", { class: "command" }, el("code", {}, text), button);
}

/** Returns a table that scrolls sideways on a phone. A heading is a text, or a text in a list for a column of numbers. */
export function tableOf(label, headings, rows) {
  const cells = headings.filter(Boolean).map((heading) => el("th", { scope: "col", class: Array.isArray(heading) ? "number" : null }, heading));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, cells)), el("tbody", {}, rows)));
}

/** Returns a state as a word in a frame; its colour is one of `bad`, `warn`, `good` and none. */
export function pill(word, colour = "") {
  return el("span", { class: `pill ${colour}` }, word);
}
