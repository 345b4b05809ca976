// SPDX-License-Identifier: Apache-2.0
// Elements of the page. Names of models, pipelines and nodes are anybody's: they only ever become
// text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value);
  }
  for (const child of children.flat())
    if (child !== null && child !== undefined) element.append(child);
  return element;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name, on) {
  element.classList.toggle(name, Boolean(on));
}

/** A card with a heading; its content goes into `body`. */
export class Card {
  constructor(title, { hint = "", wide = false, id = null } = {}) {
    this.title = el("h2", {}, title);
    this.hint = el("p", { class: "hint" }, hint);
    this.body = el("div", { class: "body" });
    this.root = el("section", { class: wide ? "card wide" : "card", id },
      el("header", {}, this.title, hint ? this.hint : null), this.body);
  }
}

/** A card with that content. */
export function card(title, content, options) {
  const made = new Card(title, options);
  made.body.append(content);
  return made.root;
}

/** Named figures in a row. Update with `set(name, text, tone)`. */
export class Figures {
  constructor(names) {
    this.items = new Map();
    this.root = el("dl", { class: "figures" });
    for (const [key, label] of names) {
      const value = el("dd", {}, "–");
      this.items.set(key, value);
      this.root.append(el("div", {}, el("dt", {}, label), value));
    }
  }

  /** An empty text hides the figure. */
  set(key, text, tone = "") {
    const value = this.items.get(key);
    setText(value, text);
    value.parentNode.hidden = text === "";
    if (value.dataset.tone !== tone) value.dataset.tone = tone;
  }
}

/** A bar whose filled part is a share. */
export class Bar {
  constructor() {
    this.filled = el("i");
    this.root = el("span", { class: "bar" }, this.filled);
  }

  set(share, tone = "") {
    const percent = `${Math.round(100 * Math.min(1, Math.max(0, share || 0)))}%`;
    if (this.filled.style.width !== percent) this.filled.style.width = percent;
    if (this.root.dataset.tone !== tone) this.root.dataset.tone = tone;
  }
}

/**
 * A table whose rows are updated in place, so that focus and selection survive. A column is
 * `{title, number, text(row), tone(row), share(row), data(row)}`; `pick(row)` makes rows buttons.
 */
export class Table {
  constructor(columns, { caption, empty, pick = null, key = row => row.id }) {
    this.columns = columns;
    this.pick = pick;
    this.key = key;
    this.lines = [];
    this.picked = null;
    this.tbody = el("tbody");
    this.empty = el("p", { class: "empty" }, empty);
    this.table = el("table", {}, el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, columns.map(column =>
        el("th", { scope: "col", class: column.number ? "number" : null }, column.title)))),
      this.tbody);
    this.root = el("div", { class: "table", tabindex: 0, role: "region", "aria-label": caption },
      this.table, this.empty);
  }

  line(index) {
    if (this.lines[index]) return this.lines[index];
    const line = { row: null, cells: [] };
    line.root = el("tr");
    this.columns.forEach((column, at) => {
      const text = el("span", {}, "");
      const cell = el("td", { class: column.number ? "number" : column.wrap ? "wrap" : null });
      const bar = column.share ? new Bar() : null;
      if (bar) cell.append(bar.root);
      if (at === 0 && this.pick) {
        const button = el("button", { type: "button", class: "link" }, text);
        button.addEventListener("click", () => this.pick(line.row));
        cell.append(button);
        line.button = button;
      } else {
        cell.append(text);
      }
      line.cells.push({ cell, text, bar });
      line.root.append(cell);
    });
    this.lines[index] = line;
    return line;
  }

  update(rows) {
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length !== 0;
    rows.forEach((row, index) => {
      const line = this.line(index);
      line.row = row;
      this.columns.forEach((column, at) => {
        const { cell, text, bar } = line.cells[at];
        setText(text, column.text(row));
        const tone = column.tone ? column.tone(row) : "";
        if ((cell.dataset.tone ?? "") !== tone) cell.dataset.tone = tone;
        if (bar) bar.set(column.share(row), tone);
        if (column.data) cell.dataset.counter = column.data(row);
      });
      if (this.pick) {
        const current = this.key(row) === this.picked;
        setClass(line.root, "picked", current);
        if (current) line.button.setAttribute("aria-current", "true");
        else line.button.removeAttribute("aria-current");
      }
      if (!line.root.isConnected) this.tbody.append(line.root);
    });
    for (const line of this.lines.splice(rows.length)) line.root.remove();
  }
}

/** Buttons of which one is pressed. */
export function choice(label, options, current, change) {
  const root = el("div", { class: "choice", role: "group", "aria-label": label });
  const set = value => {
    for (const button of root.children)
      button.setAttribute("aria-pressed", String(button.dataset.value === value));
  };
  for (const [value, text] of options)
    root.append(el("button", {
      type: "button", "data-value": value,
      onclick: () => { set(value); change(value); },
    }, text));
  set(current);
  return root;
}
