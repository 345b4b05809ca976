// SPDX-License-Identifier: Apache-2.0
// The Models page: what a model takes and gives, where it is, what happened to it, and a form that
// calls it.

import { Figures, Table, card, el, setText } from "/elements.js";
import { count, bytes, clock, duration, since, NONE, parseEvent } from "/format.js";
import { ask } from "/feed.js";
import { eventTable } from "/node.js";

const ROWS = 50; // in a page of the list, whatever number of models there is
const place = { prefix: "", starts: [0] }; // of this page's list, from one model to the next
const now = Date.now;

/** Records have no stamp for a model that was never used. */
export const USED_HINT = "A model that was never called counts as used 6 hours before its " +
  "registration, or 1 hour if that asked for its load.";

const stateTone = row => row.state === "failed" ? "bad" : row.state === "loaded" ? "good"
  : row.state === "loading" ? "warn" : "";

const columns = {
  "model list": [
    { title: "Model", text: row => row.id },
    { title: "State", text: row => row.state, tone: stateTone },
    { title: "Memory", number: true, text: row => row.bytes ? bytes(row.bytes) : NONE },
    { title: "Last use", number: true,
      text: row => row.idle_ns === undefined ? NONE : row.idle_ns === null ? "never" : `${duration(row.idle_ns)} ago` },
  ],
  "mesh models": [
    { title: "Model", text: row => row.id },
    { title: "State", text: row => row.state, tone: stateTone },
    { title: "Copies", number: true, text: row => count(row.loaded) },
    { title: "Here", text: row => row.here || NONE },
    { title: "Counts as used", number: true, text: row => row.used_ms ? `${since(row.used_ms, now())} ago` : "never" },
  ],
  pipelines: [
    { title: "Model", text: row => row.id },
    { title: "State", text: row => row.state, tone: stateTone },
  ],
};

/** A list that the node pages and this searches by the beginning of the id. `place`: where a list
 * of before was left. */
export class ModelList {
  constructor(verb, pick, { own = () => [], place = { prefix: "", starts: [0] } } = {}) {
    this.verb = verb;
    this.own = own; // models that are pipelines, which no verb lists
    this.place = place;
    this.table = new Table(columns[verb], { caption: "Models", pick: row => pick(row.id),
      empty: "No model's id begins so." });
    this.input = el("input", { type: "search", id: "search", autocomplete: "off",
      spellcheck: "false", value: place.prefix });
    this.before = el("button", { type: "button", onclick: () => this.move(-1) }, "Previous");
    this.after = el("button", { type: "button", onclick: () => this.move(1) }, "Next");
    this.where = el("span", { role: "status" });
    this.root = el("div", {},
      el("form", { class: "search", role: "search", onsubmit: event => {
        event.preventDefault();
        this.search();
      } }, el("div", {}, el("label", { for: "search" }, "Id begins with"), this.input),
      el("button", { type: "submit" }, "Search")),
      this.table.root,
      el("div", { class: "pager" }, this.before, this.where, this.after));
    this.input.addEventListener("input", () => {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.search(), 250);
    });
  }

  search() {
    clearTimeout(this.soon);
    this.place.prefix = this.input.value;
    this.place.starts = [0];
    return this.load();
  }

  move(step) {
    if (step > 0) this.place.starts.push(this.next);
    else this.place.starts.pop();
    return this.load();
  }

  async load() {
    const { prefix, starts } = this.place;
    const from = starts[starts.length - 1];
    const turn = this.turn = (this.turn ?? 0) + 1;
    try {
      const list = this.verb === "pipelines" ? { rows: [], next: 0 }
        : await ask(this.verb, { prefix, from, limit: ROWS });
      if (turn !== this.turn) return; // a later search was quicker
      const own = from === 0 ? this.own().filter(row => row.id.startsWith(prefix)) : [];
      this.next = list.next;
      this.rows = [...own, ...list.rows];
      this.table.update(this.rows);
      setText(this.where, `page ${starts.length}${list.next ? "" : ", the last"}`);
    } catch (error) {
      setText(this.where, error.message);
      this.next = 0;
    }
    this.before.disabled = starts.length === 1;
    this.after.disabled = !this.next;
  }

  mark(id) {
    this.table.picked = id;
    if (this.rows) this.table.update(this.rows);
  }
}

// ---- a request ----

function literal(datatype) {
  return datatype === "BOOL" ? false : datatype === "BYTES" ? "text" : 0;
}

/** A request that fits the inputs: one item, of zeros. */
function sampleRequest(inputs) {
  return { inputs: inputs.map(input => {
    const shape = input.shape.map(size => size < 0 ? 1 : size);
    const elements = shape.reduce((all, size) => all * size, 1);
    return { name: input.name, datatype: input.datatype, shape,
      data: Array(Math.min(elements, 4096)).fill(literal(input.datatype)) };
  }) };
}

/** Indented, but a line per tensor's data. */
function pretty(request) {
  const tensors = request.inputs.map(input => "    " + JSON.stringify(input)
    .replace(/,"/g, ', "').replace(/":/g, '": '));
  return `{\n  "inputs": [\n${tensors.join(",\n")}\n  ]\n}`;
}

function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function curl(about, id, body) {
  const scheme = about.http_tls ? "https" : "http";
  const unix = about.http.startsWith("unix:");
  const address = about.http.replace(/^port:/, "localhost:").replace(/^0\.0\.0\.0:/, "localhost:");
  const where = !about.http ? `${location.origin}` : unix ? "http://localhost" : `${scheme}://${address}`;
  let compact = body;
  try {
    compact = JSON.stringify(JSON.parse(body));
  } catch { /* as it was typed */ }
  return `curl -s ${unix ? `--unix-socket ${quote(about.http.slice(5))} ` : ""}` +
    `${where}/v2/models/${encodeURIComponent(id)}/infer --json ${quote(compact)}`;
}

class Form {
  constructor(about) {
    this.about = about;
    this.body = el("textarea", { id: "body", spellcheck: "false",
      oninput: () => this.showCommand() });
    this.send = el("button", { type: "submit", class: "primary" }, "Send");
    this.said = el("span", { role: "status" });
    this.answer = el("pre", { hidden: true, tabindex: 0, "aria-label": "Answer" });
    this.command = el("pre", { tabindex: 0, "aria-label": "Command" });
    this.copy = el("button", { type: "button", onclick: () => this.copyCommand() }, "Copy");
    this.root = el("form", { class: "stack", onsubmit: event => {
      event.preventDefault();
      this.submit();
    } },
    el("div", {}, el("label", { for: "body" }, "Request, in JSON"), this.body),
    about.infer ? el("div", { class: "row" }, this.send, this.said)
      : el("p", { class: "hint" }, "This page calls no models (",
        el("code", {}, "dashboard_infer: off"), "). The command below does."),
    this.answer,
    el("div", { class: "row" }, el("h3", {}, "From a shell"), this.copy),
    about.http || about.infer ? null : el("p", { class: "note" },
      "This node has no address for REST: set the key http."),
    this.command);
  }

  show(id, inputs) {
    this.id = id;
    this.body.value = pretty(sampleRequest(inputs));
    this.answer.hidden = true;
    setText(this.said, "");
    this.showCommand();
  }

  showCommand() {
    setText(this.command, curl(this.about, this.id, this.body.value));
  }

  async copyCommand() {
    try {
      await navigator.clipboard.writeText(this.command.textContent);
      setText(this.copy, "Copied");
    } catch {
      getSelection().selectAllChildren(this.command);
      setText(this.copy, "Selected");
    }
    setTimeout(() => setText(this.copy, "Copy"), 2000);
  }

  async submit() {
    const id = this.id;
    this.send.disabled = true;
    setText(this.said, "Waiting for the answer…");
    const began = performance.now();
    try {
      const answer = await fetch(`/v2/models/${encodeURIComponent(id)}/infer`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: this.body.value });
      const text = await answer.text();
      if (id !== this.id) return;
      const took = duration((performance.now() - began) * 1e6);
      setText(this.said, `${answer.status} ${answer.statusText}, ${took} as this page saw it`);
      this.said.dataset.tone = answer.ok ? "good" : "bad";
      setText(this.answer, text.length > 20000 ? `${text.slice(0, 20000)}…` : text);
      this.answer.hidden = false;
    } catch (error) {
      setText(this.said, `No answer: ${error.message}`);
      this.said.dataset.tone = "bad";
    } finally {
      this.send.disabled = false;
    }
  }
}

// ---- the page ----

const tensorColumns = [
  { title: "Tensor", text: row => row.name },
  { title: "Datatype", text: row => row.datatype },
  { title: "Shape", text: row => `[${row.shape.map(size => size < 0 ? "any" : size).join(", ")}]` },
];

const copyColumns = [
  { title: "Node", text: row => row.node },
  { title: "State", text: row => row.here || row.state, tone: stateTone },
  { title: "Since", text: row => row.since_ms
    ? `${clock(row.since_ms)} (${since(row.since_ms, now())})` : NONE },
  { title: "By", text: row => row.by || NONE },
  { title: "Why", wrap: true, text: row => row.error || NONE, tone: row => row.error ? "bad" : "" },
];

/** Of a model without a copy. `refusal`: with it a call would fail; undefined outside a mesh. */
function whyNoCopy({ error, refusal }) {
  if (refusal && refusal === error)
    return `It could not be loaded, and no node would try again now: ${error}`;
  if (refusal)
    return `It is not loaded, and no node would load it now: ${refusal}` +
      (error ? ` Its last load failed: ${error}` : "");
  if (error && refusal === "") return `The next call loads it again. Its last load failed: ${error}`;
  if (error) return `It could not be loaded: ${error}`;
  return "It is not loaded: models are loaded on demand, and the next call loads it.";
}

function whyNotLoaded(row) {
  if (row.error && row.state === "loaded")
    return `Its new version could not be loaded, and the one before serves: ${row.error}`;
  if (row.fetched_bytes !== undefined)
    return `It is being fetched: ${bytes(row.fetched_bytes)} of ${row.fetch_bytes ? bytes(row.fetch_bytes) : "?"}.`;
  if (row.state === "loading") return "It is being loaded.";
  return row.state === "loaded" ? "" : whyNoCopy(row);
}

export function open(root, feed, about, chosen) {
  let id = chosen || null;
  let closed = false;
  let timer = null;
  let row = null;
  let pipeline = null;
  let described = false;
  let refused = ""; // why the last load by the button failed
  const dynamic = feed.sample?.stat.pipelines.some(one => one.model_bytes_max > 0) ?? true;
  const verb = about.mesh ? "mesh models" : dynamic ? "model list" : "pipelines";
  const fixed = () => (feed.sample?.stat.pipelines ?? [])
    .filter(one => one.model_bytes_max === 0)
    .map(one => ({ id: one.name, bytes: 0, used_ms: 0, loaded: 1, here: "",
      state: one.stages.every(stage => stage.workers_live > 0) ? "loaded" : "not ready",
      error: "", pipeline: one.name }));
  const list = new ModelList(verb, picked => location.assign(`#/models/${encodeURIComponent(picked)}`),
    { own: fixed, place });
  const title = el("h1", { tabindex: -1 }, id ?? "Models");
  const why = el("p", { class: "note", hidden: true });
  const facts = new Figures([["state", "State"], ["versions", "Versions"], ["platform", "Platform"],
    ...(about.mesh ? [] : [["memory", "Memory"]]), ["used", about.mesh ? "Counts as used" : "Last use"],
    ["p50", "Pipeline's p50"], ["p99", "Pipeline's p99"]]);
  const inputs = new Table(tensorColumns, { caption: "Inputs", key: tensor => tensor.name,
    empty: "It declares no inputs: it takes any tensors." });
  const outputs = new Table(tensorColumns, { caption: "Outputs", key: tensor => tensor.name,
    empty: "It declares no outputs." });
  const copies = new Table(copyColumns, { caption: "Copies", key: copy => copy.node,
    empty: "No node has it, and none has failed to load it." });
  const events = eventTable("Nothing has happened to it since the node's start.");
  const form = new Form(about);
  const schema = el("div", { class: "split" },
    el("section", {}, el("h3", {}, "Inputs"), inputs.root),
    el("section", {}, el("h3", {}, "Outputs"), outputs.root));
  const trouble = el("p", { class: "hint", hidden: true });
  const load = el("button", { type: "button", hidden: true, onclick: () => {
    described = true;
    refused = "";
    load.hidden = true;
    setText(trouble, "It is being loaded.");
    describe();
  } }, "Load it");

  const schemaCard = card("What it takes and gives", el("div", {}, trouble, load, schema));
  const formCard = card("Call it", form.root);
  schema.hidden = formCard.hidden = true; // until it is described
  const detail = el("div", { class: "stack" }, title, why,
    card("Model", facts.root, { hint: about.mesh ? USED_HINT : "" }), schemaCard,
    formCard, about.mesh ? card("Copies", copies.root) : null,
    card("History", events.root, { hint: "What this node logged about it." }));
  const nothing = el("p", { class: "empty" }, "Choose a model to see what it takes and gives, and to call it.");
  root.append(el("div", { class: "two" }, el("div", { class: "stack" }, card("Models", list.root)),
    id ? detail : nothing));

  async function describe() {
    try {
      const answer = await fetch(`/v2/models/${encodeURIComponent(id)}`);
      const body = await answer.json();
      if (!answer.ok) throw new Error(body.error ?? `HTTP ${answer.status}`);
      inputs.update(body.inputs ?? []);
      outputs.update(body.outputs ?? []);
      facts.set("versions", (body.versions ?? []).join(", ") || NONE);
      facts.set("platform", body.platform || NONE);
      trouble.hidden = true;
      schema.hidden = false;
      formCard.hidden = false;
      if (form.id !== id) form.show(id, body.inputs ?? []);
    } catch (error) {
      trouble.hidden = false;
      refused = `The node does not describe it: ${error.message}`;
      setText(trouble, refused);
      schema.hidden = true;
      formCard.hidden = true;
      described = !about.mesh || row?.state === "loaded"; // a load has failed: the next may not
    }
  }

  /** In a mesh a description is a call, which loads the model and may evict another. */
  function describeIfLoaded() {
    if (described) return;
    described = !about.mesh || row?.state === "loaded";
    if (described) describe();
    else setText(trouble, refused || "Only a node that has loaded it can describe it.");
    load.hidden = described;
    trouble.hidden = described;
    schema.hidden = formCard.hidden = !described;
  }

  async function find() {
    const own = fixed().find(one => one.id === id);
    if (verb === "pipelines" || own) return own ?? null;
    if (about.mesh) {
      const answer = await ask("mesh copies", { id });
      copies.update(answer.rows);
      return answer.model;
    }
    const answer = await ask("model list", { prefix: id, limit: 1 });
    return answer.rows.find(one => one.id === id) ?? null;
  }

  async function look() {
    try {
      await list.load();
      if (id) {
        row = await find();
        pipeline = row?.pipeline ?? null;
        facts.set("state", row?.state ?? "unknown", row ? stateTone(row) : "bad");
        if (!about.mesh) facts.set("memory", row?.bytes ? bytes(row.bytes) : NONE);
        facts.set("used", row?.idle_ns ? `${duration(row.idle_ns)} ago`
          : row?.used_ms ? `${since(row.used_ms, now())} ago` : NONE);
        const reason = row ? whyNotLoaded(row) : "This node knows no such model.";
        why.hidden = !reason;
        setText(why, reason);
        list.mark(id);
        describeIfLoaded();
      }
    } catch (error) {
      why.hidden = false;
      setText(why, error.message);
    }
    if (!closed) timer = setTimeout(look, 2000);
  }

  function update(sample) {
    if (!id) return;
    const found = sample.stat.pipelines.find(one => one.name === pipeline) ??
      (about.mesh && sample.stat.pipelines.length === 1 ? sample.stat.pipelines[0] : null);
    facts.set("p50", found?.latency.count ? duration(found.latency.p50) : NONE);
    facts.set("p99", found?.latency.count ? duration(found.latency.p99) : NONE);
    events.update(feed.events.filter(event => {
      const { values } = parseEvent(event.text);
      return values.model === id || values.id === id ||
        (values.model === undefined && values.pipeline === id);
    }).slice(-80).reverse());
  }

  look();
  if (id && feed.sample) title.focus(); // it was chosen here; on a phone it is below the list
  return {
    update,
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
