// SPDX-License-Identifier: Apache-2.0
// The frame of the page: tabs, the node's state, the theme. Each page exports
// `open(root, feed, about, argument)`, which returns {update(sample), close()}.

import { el, setText, setClass } from "/elements.js";
import { duration } from "/format.js";
import { Feed, about } from "/feed.js";
import * as node from "/node.js";
import * as mesh from "/mesh.js";
import * as models from "/model.js";

const pages = { node, mesh, models };
const feed = new Feed();
const main = document.getElementById("main");
const banner = document.getElementById("banner");
const state = document.getElementById("state");
let facts = null;
let page = null;

// ---- theme ----

const themes = ["system", "light", "dark"];
const themeButton = document.getElementById("theme");

function showTheme(theme) {
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
  themeButton.title = `Theme: ${theme}`;
  themeButton.setAttribute("aria-label", `Theme: ${theme}; change it`);
}

let theme = "system";
try {
  theme = themes.find(one => one === localStorage.getItem("shoal-theme")) ?? "system";
} catch { /* no storage: the system's */ }
showTheme(theme);
themeButton.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  showTheme(theme);
  try {
    localStorage.setItem("shoal-theme", theme);
  } catch { /* for this visit only */ }
});

// ---- pages ----

function show() {
  const [, name = "node", ...rest] = location.hash.split("/");
  const chosen = pages[name] ? name : "node";
  for (const tab of document.querySelectorAll("#tabs a"))
    if (tab.getAttribute("href") === `#/${chosen}`) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  page?.close();
  main.replaceChildren();
  page = pages[chosen].open(main, feed, facts, decodeURIComponent(rest.join("/")));
  document.title = `${{ node: "Node", mesh: "Mesh", models: "Models" }[chosen]} · Shoal`;
  if (feed.sample) page.update(feed.sample);
}

function showState(sample) {
  const { stat } = sample;
  const up = duration(sample.time_ms * 1e6 - stat.started_unix_ns);
  const who = facts.instance ? `${facts.instance} · ` : "";
  state.dataset.tone = stat.state === "ready" ? "good" : "warn";
  setText(state, `${who}${stat.state} · up ${up}`);
  state.title = `pid ${stat.pid}, version ${facts.version}`;
}

feed.listeners.add(sample => {
  showState(sample);
  page.update(sample);
});

feed.stateListeners.add(now => {
  banner.hidden = now === "live" || now === "connecting";
  setClass(document.body, "stale", !banner.hidden);
  setText(banner, now === "lost"
    ? "The node does not answer. The figures below are the last ones; trying again…"
    : "The node shows no further page: close another one, or raise dashboard_viewers. Trying again…");
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && feed.sample) for (const listener of feed.listeners) listener(feed.sample);
});

// ---- start ----

try {
  facts = await about();
  show();
  window.addEventListener("hashchange", show);
  feed.connect();
} catch (error) {
  main.replaceChildren(el("p", { class: "empty" }, `The node does not answer: ${error.message}`));
}
