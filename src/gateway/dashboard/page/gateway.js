// SPDX-License-Identifier: Apache-2.0
// The page of a gateway: its endpoints, its queue, and the last placements with their scores.

import { card, el, Figures, setClass, setText, Table } from "/elements.js";
import { clock, count, decimal, duration, NONE } from "/format.js";

const PLACEMENTS_MAX = 64;
const TONES = { up: "good", suspect: "warn", down: "bad" };
const HEAD = new Set(["endpoint", "total"]);

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const state = document.getElementById("state");

const times = ([half, most]) => half === undefined ? NONE
  : `${duration(half * 1e3)} / ${duration(most * 1e3)}`;
const percent = share => `${Math.round(100 * share)} %`;
const adapters = ({ adapters: all, adapters_max }) =>
  (all.map(one => `${one.name}${one.loaded ? "" : " (waits)"}${one.pending ? ` ×${one.pending}` : ""}`)
    .join(", ") || NONE) + (adapters_max ? ` of ${adapters_max}` : "");

const figures = new Figures([
  ["saturation", "saturation"], ["queue", "waiting here"], ["sent", "sent"], ["retried", "retried"],
  ["refused", "refused"], ["ejected", "ejected"], ["prefix", "prefix hits"]]);

const endpoints = new Table([
  { title: "Endpoint", text: row => row.name },
  { title: "State", text: row => row.state, tone: row => TONES[row.state] ?? "" },
  { title: "In flight", number: true, text: row => count(row.in_flight) },
  { title: "Waiting", number: true, text: row => count(row.waiting) },
  { title: "Running", number: true, text: row => count(row.running) },
  { title: "KV cache", text: row => percent(row.kv_used), share: row => row.kv_used,
    tone: row => row.kv_used >= 0.8 ? "bad" : "" },
  { title: "First token p50 / p90", number: true, text: row => times(row.first_us) },
  { title: "Between tokens p50 / p90", number: true, text: row => times(row.token_us) },
  { title: "Adapters", wrap: true, text: adapters },
], { caption: "Endpoints", empty: "The list of endpoints is empty.", key: row => row.name });
const hidden = el("p", { class: "hint", hidden: true });

const queue = new Table([
  { title: "Priority", number: true, text: row => String(row.priority) },
  { title: "Waiting here", number: true, text: row => count(row.requests) },
], { caption: "Queue", empty: "Nothing waits here.", key: row => row.priority });

const reasons = new Table([
  { title: "Endpoint", text: row => row.endpoint },
  { title: "Score", number: true, text: row => row.total.toFixed(2) },
  { title: "Made of", wrap: true, text: row => Object.entries(row)
    .filter(([name]) => !HEAD.has(name))
    .map(([name, value]) => `${name.replace(/-scorer$/, "")} ${value.toFixed(2)}`).join(" · ") },
], { caption: "Scores of the chosen placement", empty: "Choose a placement.", key: row => row.endpoint });
const why = el("p", { class: "hint" });

const placements = new Table([
  { title: "Placement", text: row => `${clock(row.time_ms)} ${row.model || NONE}` },
  { title: "Went to", text: row => row.reasons[0].endpoint },
  { title: "Score", number: true, text: row => row.reasons[0].total.toFixed(2) },
  { title: "Next best", text: row => row.reasons[1]
    ? `${row.reasons[1].endpoint} ${row.reasons[1].total.toFixed(2)}` : NONE },
  { title: "Tries", number: true, text: row => count(row.tries), tone: row => row.tries > 1 ? "warn" : "" },
  { title: "Priority", number: true, text: row => String(row.priority) },
], { caption: "Placements", empty: "No request has come yet.", pick: explain, key: row => row.number });

let kept = [];
let picker = "";

function explain(row) {
  placements.picked = row.number;
  placements.update(kept);
  reasons.update(row.reasons);
  setText(why, `${picker} chose among ${row.candidates} of ${row.usable} usable endpoints` +
    (row.tries > 1 ? `, in try ${row.tries}` : "") + "; the first is where the request went.");
}

function show(sample) {
  const now = Date.now();
  picker = sample.picker;
  figures.set("saturation", decimal(sample.saturation), sample.saturation >= 1 ? "bad" : "");
  figures.set("queue", count(sample.queue.reduce((sum, one) => sum + one.requests, 0)));
  for (const name of ["sent", "retried", "refused", "ejected"]) figures.set(name, count(sample[name]));
  figures.set("prefix", sample.blocks ? percent(sample.blocks_matched / sample.blocks) : NONE);
  endpoints.update(sample.endpoints);
  hidden.hidden = sample.hidden === 0;
  setText(hidden, `${count(sample.hidden)} more endpoints are not shown.`);
  queue.update(sample.queue.filter(one => one.requests > 0));
  kept = [...sample.placements.reverse().map(one => ({ ...one, time_ms: now - one.age_ms })), ...kept]
    .slice(0, PLACEMENTS_MAX);
  placements.update(kept);
  if (placements.picked === null && kept.length > 0) explain(kept[0]);
  const up = sample.endpoints.filter(one => one.state === "up").length;
  state.dataset.tone = up > 0 ? "good" : "warn";
  setText(state, `${up} of ${sample.endpoints.length + sample.hidden} endpoints up · ${sample.version}`);
}

function setState(now) {
  banner.hidden = now === "live";
  setClass(document.body, "stale", now !== "live");
  setText(banner, now === "refused"
    ? "The gateway shows no further page: close another one. Trying again…"
    : "The gateway does not answer. The figures below are the last ones; trying again…");
}

function connect() {
  const source = new EventSource("/stream");
  let isFirst = true;
  source.addEventListener("open", () => { isFirst = true; });
  source.addEventListener("sample", event => {
    if (isFirst) { // it tells all that are kept, and a restarted gateway counts anew
      kept = [];
      isFirst = false;
    }
    show(JSON.parse(event.data));
    setState("live");
  });
  source.addEventListener("error", () => {
    const isRefused = source.readyState === EventSource.CLOSED;
    setState(isRefused ? "refused" : "lost");
    if (isRefused) setTimeout(connect, 3000);
  });
}

const explained = el("div", {}, why, reasons.root);
main.replaceChildren(
  card("Pool", figures.root),
  card("Endpoints", el("div", {}, endpoints.root, hidden)),
  el("div", { class: "grid" },
    card("Placements", placements.root), card("Why there", explained), card("Queue", queue.root)));
for (const table of [endpoints, queue, placements, reasons]) table.update([]);
connect();
