// SPDX-License-Identifier: Apache-2.0
// The Node page: a pipeline as it is wired, its charts, its workers and what happened to it.

import { Card, Figures, Table, Bar, card, el, setText, setClass } from "/elements.js";
import { Bars, ChartGroup, LineChart, TimeRange } from "/chart.js";
import { count, decimal, duration, rate, clock, parseEvent, NONE } from "/format.js";

const REFUSALS = [
  ["rejected_invalid", "invalid"], ["rejected_full", "full"],
  ["rejected_predicted", "predicted too late"], ["rejected_share", "over its share"],
  ["rejected_unavailable", "unavailable"], ["rejected_late", "deadline passed"],
  ["streams_slow", "stream: not read"], ["streams_broken", "stream: worker died"],
];
const CLOSED = [
  ["closed_full", "full"], ["closed_adaptive", "waiting not worth it"],
  ["closed_wait", "oldest waited enough"], ["closed_single", "runs single items"],
  ["closed_deadline", "deadline near"], ["closed_crowded", "too many models"],
  ["closed_draining", "draining"],
];
const TOTALS = [
  ["requests", "requests"], ["replies_ok", "answered"], ["replies_failed", "failed"],
  ["cancelled", "cancelled"], ["run_again", "run again"], ["poison", "poison"],
];
const EVENTS_SHOWN = 60;

const sum = (object, names) => names.reduce((all, [name]) => all + object[name], 0);

/** Points of the newest second. */
function newest(sample, pipeline, stage = "") {
  return sample.points.find(one => one.pipeline === pipeline && one.stage === stage)?.values ?? {};
}

// ---- the diagram ----

class StageBox {
  constructor() {
    this.name = el("b");
    this.workers = el("span", { class: "pill" });
    this.depth = el("dd");
    this.fill = new Bar();
    this.facts = new Map();
    const list = el("dl");
    for (const [key, label] of [["rate", "items"], ["batch", "batch"], ["wait", "wait"],
      ["run", "run"], ["restarts", "restarts"]]) {
      const value = el("dd");
      this.facts.set(key, value);
      list.append(el("dt", {}, label), value);
    }
    this.root = el("li", { class: "stage" }, el("header", {}, this.name, this.workers),
      el("dl", { class: "queue" }, el("dt", {}, "queue"), this.depth), this.fill.root, list);
  }

  update(stage, points, slots) {
    const up = stage.workers_live === stage.workers_wanted;
    setText(this.name, stage.name);
    setText(this.workers, stage.quarantined ? "quarantined"
      : `${stage.workers_live} of ${stage.workers_wanted} workers`);
    this.workers.dataset.tone = stage.quarantined ? "bad" : up ? "good" : "warn";
    setText(this.depth, count(stage.depth));
    this.fill.set(stage.depth / Math.max(1, slots));
    const set = (key, text) => setText(this.facts.get(key), text);
    set("rate", rate(points.items));
    set("batch", points.batch ? `${decimal(points.batch)} items` : NONE);
    set("wait", points.wait_p50_ns ? duration(points.wait_p50_ns) : NONE);
    set("run", points.run_p50_ns ? duration(points.run_p50_ns) : NONE);
    set("restarts", count(stage.restarts));
    setClass(this.root, "down", !up || stage.quarantined);
  }
}

class Wiring {
  constructor() {
    this.callers = new Figures([["offered", "Callers"], ["refused", "refused"]]);
    this.entry = new Figures([["flight", "In flight"], ["waiting", "waiting for a slot"],
      ["streams", "open streams"]]);
    this.slots = new Bar();
    this.replies = new Figures([["ok", "Replies"], ["failed", "failed"], ["pieces", "pieces"]]);
    this.boxes = [];
    this.first = el("li", { class: "end" }, this.callers.root);
    this.gate = el("li", { class: "stage entry" }, this.entry.root, this.slots.root);
    this.last = el("li", { class: "end" }, this.replies.root);
    this.root = el("ol", { class: "wiring", "aria-label": "The pipeline as it is wired" },
      this.first, this.gate, this.last);
  }

  update(pipeline, sample) {
    const points = newest(sample, pipeline.name);
    const refused = points.refused ?? 0;
    this.callers.set("offered", rate((points.ok ?? 0) + (points.failed ?? 0) + refused));
    this.callers.set("refused", rate(refused), refused > 0 ? "warn" : "");
    this.entry.set("flight", `${count(pipeline.slots_used)} of ${count(pipeline.slots_max)}`);
    this.entry.set("waiting", count(pipeline.waiting), pipeline.waiting > 0 ? "warn" : "");
    const streams = pipeline.streams > 0 || pipeline.pieces > 0;
    this.entry.set("streams", streams ? count(pipeline.streams) : "");
    this.slots.set(pipeline.slots_used / Math.max(1, pipeline.slots_max));
    this.replies.set("ok", rate(points.ok));
    this.replies.set("failed", rate(points.failed), points.failed > 0 ? "bad" : "");
    this.replies.set("pieces", streams ? rate(points.pieces) : "");
    pipeline.stages.forEach((stage, i) => {
      if (!this.boxes[i]) {
        this.boxes[i] = new StageBox();
        this.last.before(this.boxes[i].root);
      }
      this.boxes[i].update(stage, newest(sample, pipeline.name, stage.name), pipeline.slots_max);
    });
    for (const box of this.boxes.splice(pipeline.stages.length)) box.root.remove();
  }
}

// ---- charts ----

class Charts extends ChartGroup {
  constructor() {
    const log = { format: duration, log: true };
    super(new LineChart("Answers", "per second", { format: decimal }),
      new LineChart("Latency", "arrival to reply, log scale",
        { ...log, empty: "No request was answered in this time." }),
      new LineChart("Queue depth", "items", { format: decimal }),
      new LineChart("Batch size", "items per batch",
        { format: decimal, empty: "No batch ran in this time." }),
      new LineChart("Wait per stage", "p50, log scale",
        { ...log, empty: "No item waited in this time." }),
      new LineChart("Run per stage", "p50 of a batch, log scale",
        { ...log, empty: "No batch ran in this time." }));
  }

  update(pipeline, shown) {
    const stages = name => pipeline.stages.map((stage, i) =>
      [stage.name, i % 6 + 1, stage.name, name]);
    const lines = [
      [["ok", 1, "", "ok"], ["failed", 4, "", "failed"], ["refused", 2, "", "refused"]],
      [["p50", 1, "", "latency_p50_ns"], ["p99", 2, "", "latency_p99_ns"]],
      stages("depth"), stages("batch"), stages("wait_p50_ns"), stages("run_p50_ns")];
    this.charts.forEach((chart, i) => this.draw(chart, lines[i], shown));
  }
}

// ---- tables ----

const pipelineColumns = [
  { title: "Pipeline", text: row => row.pipeline.name },
  { title: "Stages", number: true, text: row => count(row.pipeline.stages.length) },
  { title: "Answers", number: true, text: row => rate(row.points.ok) },
  { title: "Refused", number: true, text: row => rate(row.points.refused),
    tone: row => row.points.refused > 0 ? "warn" : "" },
  { title: "p50", number: true, text: row => duration(row.points.latency_p50_ns) },
  { title: "p99", number: true, text: row => duration(row.points.latency_p99_ns) },
  { title: "In flight", number: true, share: row => row.pipeline.slots_used / row.pipeline.slots_max,
    text: row => `${count(row.pipeline.slots_used)} of ${count(row.pipeline.slots_max)}` },
  { title: "Workers", number: true,
    text: row => `${sum2(row, "workers_live")} of ${sum2(row, "workers_wanted")}`,
    tone: row => sum2(row, "workers_live") < sum2(row, "workers_wanted") ? "bad" : "" },
];
const sum2 = (row, name) => row.pipeline.stages.reduce((all, stage) => all + stage[name], 0);

const workerColumns = [
  { title: "Stage", text: row => row.stage },
  { title: "Worker", number: true, text: row => row.worker.name },
  { title: "Pid", number: true, text: row => row.worker.pid ? String(row.worker.pid) : "none",
    tone: row => row.worker.pid ? "" : "bad" },
  { title: "Last sign of life", number: true,
    text: row => !row.worker.pid ? NONE : row.worker.heartbeat_age_ns < 1e9 ? "now"
      : `${duration(row.worker.heartbeat_age_ns)} ago`,
    tone: row => row.worker.heartbeat_age_ns > 5e9 ? "warn" : "" },
  { title: "Items", number: true, text: row => count(row.worker.items) },
  { title: "Batches", number: true, text: row => count(row.worker.batches) },
  { title: "Mean batch", number: true,
    text: row => row.worker.batch_items.count ? decimal(row.worker.batch_items.mean) : NONE },
  { title: "Run p50", number: true,
    text: row => row.worker.run.count ? duration(row.worker.run.p50) : NONE },
  { title: "Run p99", number: true,
    text: row => row.worker.run.count ? duration(row.worker.run.p99) : NONE },
];

const oldestColumns = [
  { title: "Age", number: true, text: row => duration(row.age_ns) },
  { title: "Where", text: row => row.where },
  { title: "Stage", text: row => row.stage ?? NONE },
  { title: "Worker", number: true, text: row => row.pid ? `${row.worker} (pid ${row.pid})` : NONE },
  { title: "Deadline in", number: true, tone: row => row.deadline_left_ns <= 0 ? "bad" : "",
    text: row => row.deadline_left_ns === undefined ? "none"
      : row.deadline_left_ns <= 0 ? "passed" : duration(row.deadline_left_ns) },
  { title: "Deaths", number: true, text: row => count(row.deaths) },
];

export const eventColumns = [
  { title: "Time", text: row => clock(row.time_ms) },
  { title: "Event", text: row => parseEvent(row.text).name.replaceAll("_", " "),
    tone: row => row.level === "error" ? "bad" : row.level === "warn" ? "warn" : "" },
  { title: "What", wrap: true, text: row => row.text.slice(row.text.indexOf(" ") + 1) },
];

export function eventTable(empty) {
  return new Table(eventColumns, { caption: "Events, newest first", empty });
}

/** Events of one pipeline, and those that name none. */
function eventsOf(feed, name) {
  return feed.events.filter(event => {
    const { pipeline } = parseEvent(event.text).values;
    return pipeline === undefined || pipeline === name;
  });
}

// ---- the page ----

export function open(root, feed) {
  let picked = null;
  const table = new Table(pipelineColumns, {
    caption: "Pipelines", empty: "This node has no pipelines: a runtime beside it serves the models.",
    key: row => row.pipeline.name, pick: row => pick(row.pipeline.name),
  });
  const wiring = new Wiring();
  const charts = new Charts();
  const totals = new Figures(TOTALS);
  const refusals = new Bars("No request was refused since the start.");
  const closed = el("div", { class: "split" });
  const closedBars = new Map();
  const workers = new Table(workerColumns, { caption: "Workers", empty: "There are no workers." });
  const oldest = new Table(oldestColumns,
    { caption: "Oldest requests in flight", empty: "No request is in flight." });
  const events = eventTable("Nothing has happened since the start.");
  const name = el("h1");
  const list = new Card("Pipelines", { wide: true });
  list.body.append(table.root);

  const since = "Since the node's start.";
  const range = new TimeRange(feed, sample => update(sample));
  root.append(list.root,
    el("div", { class: "heading" }, name, range.root),
    wiring.root, charts.root,
    el("div", { class: "grid" },
      card("Requests", totals.root, { hint: since }),
      card("Refused, by reason", refusals.root, { hint: since }),
      card("Why batches closed", closed, { hint: since, wide: true }),
      card("Oldest requests", oldest.root, { wide: true }),
      card("Workers", workers.root, { hint: since, wide: true }),
      card("Events", events.root, { wide: true, hint: "They are also the marks below the charts." })));

  function pick(pipeline) {
    picked = pipeline;
    feed.watch(pipeline);
    if (feed.sample) update(feed.sample);
  }

  function updateClosed(pipeline) {
    for (const stage of pipeline.stages) {
      if (!closedBars.has(stage.name)) {
        const bars = new Bars("No batch has run.");
        const part = el("section", {}, el("h3", {}, stage.name), bars.root);
        closedBars.set(stage.name, { bars, part });
        closed.append(part);
      }
      closedBars.get(stage.name).bars.update(CLOSED.filter(([key]) => stage[key] > 0)
        .map(([key, label]) => ({ label, value: stage[key], text: count(stage[key]),
          data: `${pipeline.name}.${stage.name}.${key}` })));
    }
    for (const [stage, { part }] of closedBars)
      if (!pipeline.stages.some(one => one.name === stage)) {
        part.remove();
        closedBars.delete(stage);
      }
  }

  function update(sample) {
    const { pipelines } = sample.stat;
    const pipeline = pipelines.find(one => one.name === picked) ?? pipelines[0];
    if (pipeline && picked !== pipeline.name) {
      picked = pipeline.name;
      feed.watch(picked);
    }
    table.picked = picked;
    table.update(pipelines.map(one => ({ pipeline: one, points: newest(sample, one.name) })));
    if (!pipeline) return;
    const happened = eventsOf(feed, picked);
    setText(name, pipeline.name);
    wiring.update(pipeline, sample);
    charts.update(pipeline, range.of(sample, picked, happened));
    for (const [key] of TOTALS) {
      totals.set(key, count(pipeline[key]));
      totals.items.get(key).dataset.counter = `${pipeline.name}.${key}`;
    }
    refusals.update(sum(pipeline, REFUSALS) === 0 ? [] : REFUSALS.map(([key, label]) => ({
      label, value: pipeline[key], text: count(pipeline[key]), colour: 2,
      data: `${pipeline.name}.${key}` })));
    updateClosed(pipeline);
    oldest.update(pipeline.oldest);
    workers.update(pipeline.stages.flatMap(stage =>
      stage.workers.map(worker => ({ stage: stage.name, worker }))));
    events.update(happened.slice(-EVENTS_SHOWN).reverse());
  }

  return { update, close: () => charts.close() };
}
