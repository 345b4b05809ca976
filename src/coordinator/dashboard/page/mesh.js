// SPDX-License-Identifier: Apache-2.0
// The Mesh page: the nodes as this one sees them, its cache, and where models are.

import { Figures, Table, card, el, setText } from "/elements.js";
import { Bars, ChartGroup, Histogram, LineChart, TimeRange } from "/chart.js";
import { count, decimal, duration, durationMs, bytes, rate, since, NONE, parseEvent }
  from "/format.js";
import { ask } from "/feed.js";
import { eventTable } from "/node.js";
import { ModelList, USED_HINT } from "/model.js";

const LOOK_MS = 2000; // between two looks at lists, which the node's loop writes
const ANSWERED = [
  ["mesh_calls_here", "by a copy here"], ["mesh_calls_waited", "after waiting for a load"],
  ["mesh_calls_elsewhere", "by another node"],
];
const REFUSED = [
  ["mesh_calls_not_found", "no such model"], ["mesh_calls_load_failed", "cannot be loaded"],
  ["mesh_calls_failed", "no node is left"], ["mesh_calls_overloaded", "overloaded"],
  ["mesh_calls_full", "no room in time"], ["mesh_calls_unavailable", "registry, or stopping"],
  ["mesh_calls_deadline", "deadline passed"],
];
const MESH_EVENT = /^(mesh_|peer_|model_|external_|worker_died|ready|draining|drained)/;

const now = Date.now;

function fullness(node) {
  return node.capacity_bytes ? 1 - node.free_bytes / node.capacity_bytes : 0;
}

function roles(node) {
  return [node.self && "this node", node.leads && "leader", node.drains && "draining",
    node.unreachable_since_ms && `unreachable for ${since(node.unreachable_since_ms, now())}`,
    node.store_silent_since_ms && `no registry for ${since(node.store_silent_since_ms, now())}`,
    node.store_full && "registry full", node.full && "full",
    node.clock_ahead_seconds && `clock ${node.clock_ahead_seconds} s`,
  ].filter(Boolean).join(", ");
}

function isBad(node) {
  return node.unreachable_since_ms || node.store_silent_since_ms || node.store_full;
}

/** 1.2.3 is 1002003 in a record; other programs' numbers are larger. */
function version(number) {
  if (number >= 1e9) return String(number);
  return [number / 1e6, number / 1e3 % 1e3, number % 1e3].map(Math.floor).join(".");
}

const nodeColumns = [
  { title: "Node", text: row => row.id },
  { title: "State", text: row => roles(row) || "serving",
    tone: row => isBad(row) ? "bad" : row.drains || row.clock_ahead_seconds ? "warn" : "" },
  { title: "Fullness", number: true, share: fullness,
    text: row => `${Math.round(100 * fullness(row))} %` },
  { title: "Capacity", number: true, text: row => bytes(row.capacity_bytes) },
  { title: "Models", number: true, text: row => count(row.copies) },
  { title: "Loading", number: true, text: row => count(row.loading) },
  { title: "Loaders", number: true, text: row => row.loaders ? count(row.loaders) : NONE },
  { title: "Req/min", number: true, text: row => count(row.calls_per_minute) },
  { title: "Cache age", number: true, text: row => since(row.oldest_ms, now()) },
  { title: "Up", number: true, text: row => since(row.start_ms, now()) },
  { title: "Address", text: row => row.address || NONE },
  { title: "Zone", text: row => row.zone || NONE },
  { title: "Version", number: true, text: row => version(row.version) },
];

const vmodelColumns = [
  { title: "Vmodel", text: row => row.id },
  { title: "State", text: row => row.state === "going over" ? "switching" : row.state,
    tone: row => row.state === "failed" ? "bad" : row.state === "going over" ? "warn" : "" },
  { title: "Active", text: row => row.active },
  { title: "Copies", number: true, text: row => count(row.active_copies) },
  { title: "Target", text: row => row.target === row.active ? NONE : row.target },
  { title: "Target's state", text: row => row.target_state || NONE },
  { title: "Copies", number: true,
    text: row => row.target === row.active ? NONE : count(row.target_copies) },
  { title: "Owner", text: row => row.owner || NONE },
];

const methodColumns = [
  { title: "Method", text: row => row.method },
  { title: "Code", text: row => row.code, tone: row => row.code === "OK" ? "good" : "warn" },
  { title: "Called here", number: true, text: row => count(row.calls) },
  { title: "Rate", number: true, text: row => rate(row.rate) },
  { title: "Mean time", number: true, text: row => row.calls ? duration(row.ns / row.calls) : NONE },
  { title: "Served here", number: true, text: row => count(row.served) },
  { title: "Mean time", number: true,
    text: row => row.served ? duration(row.served_ns / row.served) : NONE },
];

class Charts extends ChartGroup {
  constructor() {
    super(new LineChart("Calls of this node's callers", "per second", { format: decimal }),
      new LineChart("Miss delay", "mean wait for a load, log scale",
        { log: true, format: duration, empty: "No call waited for a load in this time." }),
      new LineChart("Loads and unloads", "per second", { format: decimal }),
      new LineChart("Cache age", "of the next to go, log scale",
        { log: true, format: durationMs, empty: "Nothing is loaded here." }),
      new LineChart("Memory of models", "this node", { format: bytes, binary: true }),
      new LineChart("Models loaded", "this node", { format: decimal }));
  }

  update(shown) {
    const lines = [
      [["here", 1, "", "mesh_here"], ["elsewhere", 3, "", "mesh_elsewhere"],
        ["misses", 2, "", "mesh_misses"], ["refused", 4, "", "mesh_refused"]],
      [["mean", 2, "", "miss_delay_ns"]],
      [["loads", 1, "", "loads"], ["unloads", 6, "", "unloads"],
        ["evictions", 2, "", "evictions"]],
      [["age", 5, "", "cache_age_ms"]], [["used", 1, "", "used_bytes"]],
      [["copies", 3, "", "copies"]]];
    this.charts.forEach((chart, i) => this.draw(chart, lines[i], shown));
  }
}

export function open(root, feed, about) {
  if (!about.mesh) {
    root.append(el("h1", {}, "Mesh"), card("This node is in no mesh", el("p", {},
      "Nodes that share a registry serve one set of models, load them on demand, and survive the " +
      "loss of any of them. Give each node a section ", el("code", {}, "mesh:"),
      "; docs/mesh.md begins with three lines.")));
    return { update() {}, close() {} };
  }
  let closed = false;
  let timer = null;
  let last = null;
  const summary = new Figures([["nodes", "Nodes"], ["models", "Models registered"],
    ["held", "loaded somewhere"], ["failed", "failed somewhere"], ["vmodels", "Vmodels"],
    ["moving", "in transition"], ["leader", "Leader"], ["registry", "Registry"]]);
  const nodes = new Table(nodeColumns, { caption: "Nodes", empty: "No node is known yet." });
  const ages = new Bars("Nothing is loaded on any node.");
  const answered = new Bars("No call was answered since the start.");
  const refused = new Bars("No call was refused since the start.");
  const sizes = new Histogram("Sizes of models", "when they were loaded here, number of loads",
    { format: bytes, empty: "No model was loaded here since the start." });
  const evicted = new Histogram("Age of evicted models", "since their last use, number of evictions",
    { format: durationMs, empty: "No model was evicted here since the start." });
  const methods = new Table(methodColumns, { caption: "Methods",
    empty: "No call of a mesh's model has ended yet.", key: row => row.method + row.code });
  const vmodels = new Table(vmodelColumns, { caption: "Vmodels", empty: "There are no vmodels." });
  const events = eventTable("Nothing has happened since the start.");
  const charts = new Charts();
  const models = new ModelList("mesh models",
    id => location.assign(`#/models/${encodeURIComponent(id)}`));
  const range = new TimeRange(feed, sample => update(sample));
  const trouble = el("p", { class: "note bad", hidden: true, role: "status" });
  const since0 = "Since the node's start.";
  root.append(el("h1", {}, "Mesh"), card("As this node sees it", summary.root), trouble,
    card("Nodes", nodes.root,
      { hint: "States are what this node finds: others may reach a node that it cannot." }),
    el("div", { class: "grid" },
      card("Find a model", models.root,
        { wide: true,
          hint: `By the beginning of its id. Choose one for its copies and history. ${USED_HINT}` }),
      card("Vmodels", vmodels.root, { wide: true })),
    el("div", { class: "heading" }, el("h1", {}, "This node's cache"), range.root),
    charts.root,
    el("div", { class: "charts" }, sizes.root, evicted.root),
    el("div", { class: "grid" },
      card("Calls answered", answered.root, { hint: since0 }),
      card("Calls refused", refused.root, { hint: since0 }),
      card("Cache age by node", ages.root,
        { wide: true, hint: "Time since the last use of the model that each would evict next." }),
      card("Methods", methods.root, { wide: true, hint: since0 }),
      card("Events", events.root, { wide: true,
        hint: "Loads, evictions and what became of other nodes, as this node logged it." })));

  async function look() {
    try {
      const [found, moving] = [await ask("mesh nodes"), await ask("mesh vmodels")];
      nodes.update(found.rows);
      vmodels.update(moving.rows);
      ages.update(found.rows.map(node => ({ label: node.id, colour: 5,
        value: node.oldest_ms ? Math.max(1, now() - node.oldest_ms) : 0,
        text: since(node.oldest_ms, now()) })));
      summary.set("leader", found.rows.find(node => node.leads)?.id ?? "none");
      trouble.hidden = true;
    } catch (error) {
      trouble.hidden = false;
      setText(trouble, `The node did not list the mesh: ${error.message}`);
    }
    if (!closed) timer = setTimeout(look, LOOK_MS);
  }

  function withRates(sample) {
    const rows = sample.methods.map(method => {
      const before = last?.methods.find(one =>
        one.method === method.method && one.code === method.code);
      const seconds = last ? (sample.time_ms - last.time_ms) / 1000 : 0;
      return { ...method,
        rate: seconds > 0 ? (method.calls - (before?.calls ?? 0)) / seconds : null };
    });
    if (last?.time_ms !== sample.time_ms) last = sample;
    return rows;
  }

  const bars = (stat, names, colour) => names.map(([key, label]) =>
    ({ label, colour, value: stat[key], text: count(stat[key]), data: `node.${key}` }));

  function update(sample) {
    const { stat } = sample;
    const happened = feed.events.filter(event => MESH_EVENT.test(parseEvent(event.text).name));
    for (const [key, name] of [["nodes", "mesh_instances"], ["models", "mesh_models"],
      ["held", "mesh_models_held"], ["failed", "mesh_models_failed"], ["vmodels", "mesh_vmodels"],
      ["moving", "mesh_vmodels_moving"]]) {
      summary.set(key, count(stat[name]),
        key === "failed" && stat[name] ? "bad" : key === "moving" && stat[name] ? "warn" : "");
      summary.items.get(key).dataset.counter = `node.${name}`;
    }
    summary.set("registry", stat.mesh_store_full ? "full" : stat.mesh_connected ? "connected" : "away",
      stat.mesh_connected && !stat.mesh_store_full ? "good" : "bad");
    charts.update(range.of(sample, "", happened));
    sizes.update(stat.mesh_loaded_size);
    evicted.update(stat.mesh_evicted_age);
    answered.update(bars(stat, ANSWERED, 1));
    refused.update(bars(stat, REFUSED, 2));
    if (last?.time_ms !== sample.time_ms) methods.update(withRates(sample));
    events.update(happened.slice(-80).reverse());
  }

  look();
  models.load();
  return {
    update,
    close() {
      closed = true;
      clearTimeout(timer);
      for (const chart of [charts, sizes, evicted]) chart.close();
    },
  };
}
