// SPDX-License-Identifier: Apache-2.0
// A line chart over time, and bars. Colours come from classes; every axis has its unit.

import { choice, el, svg, setText } from "/elements.js";
import { clock } from "/format.js";

const LEFT = 58;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
const HEIGHT = 172;

function niceStep(most, steps) {
  const rough = most / steps;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find(one => one * power >= rough * 0.999);
  return factor * power;
}

/** `binary`: of bytes, whose units are powers of two. */
function linearTicks(most, binary = false) {
  const high = most > 0 ? most : 1;
  const step = binary ? 2 ** Math.ceil(Math.log2(high / 4)) : niceStep(high, 4);
  const ticks = [];
  for (let at = 0; at < high + step * 0.999; at += step) ticks.push(at);
  return ticks;
}

function logTicks(least, most) {
  const ticks = [];
  const [low, high] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  const factors = high - low > 2 ? [1] : [1, 2, 5]; // a decade or two are too few lines
  for (let power = low; power < Math.max(high, low + 1); power++)
    ticks.push(...factors.map(factor => factor * 10 ** power));
  return [...ticks, 10 ** Math.max(high, low + 1)];
}

function timeStep(spanMs) {
  return [15e3, 30e3, 60e3, 300e3, 600e3, 900e3, 1800e3].find(step => spanMs / step <= 6) ?? 3600e3;
}

/**
 * `lines`: [{label, colour 1…6}]; `format` writes a value with its unit; `log`: a logarithmic axis;
 * `binary`: one of bytes.
 */
export class LineChart {
  constructor(title, unit, { format, log = false, binary = false,
    empty = "Nothing was measured in this time." }) {
    this.title = title;
    this.format = format;
    this.log = log;
    this.binary = binary;
    this.lines = [];
    this.data = { times: [], rows: [] };
    this.events = [];
    this.pointed = null;
    this.width = 0;
    this.svg = svg("svg", {
      class: "plot", role: "img", tabindex: 0,
      onpointermove: event => this.point(event.offsetX),
      onpointerleave: () => this.unpoint(),
      onblur: () => this.unpoint(),
      onkeydown: event => this.key(event),
    });
    this.legend = el("ul", { class: "legend" });
    this.when = el("span", { class: "when" });
    this.empty = el("p", { class: "empty over" }, empty);
    this.root = el("figure", { class: "chart" },
      el("figcaption", {}, el("b", {}, title), el("span", { class: "unit" }, unit), this.when),
      el("div", { class: "plotbox" }, this.svg, this.empty), this.legend);
    this.observer = new ResizeObserver(() => {
      this.width = this.svg.clientWidth;
      this.draw();
    });
    this.observer.observe(this.svg);
  }

  close() {
    this.observer.disconnect();
  }

  setLines(lines) {
    const names = lines.map(line => `${line.colour}${line.label}`).join("\n");
    if (names === this.names) return;
    this.names = names;
    this.lines = lines;
    this.legend.replaceChildren(...lines.map(line => {
      line.value = el("span", { class: "value" });
      return el("li", {}, el("i", { class: `key c${line.colour}` }), el("span", {}, line.label),
        line.value);
    }));
  }

  /** `rows`: for each line its points; `span`: [from, to] in milliseconds. */
  update(times, rows, span, events = []) {
    this.data = { times, rows };
    this.span = span;
    this.events = events;
    this.draw();
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.data.times.length) return;
    event.preventDefault();
    const last = this.data.times.length - 1;
    this.pointed = Math.min(last, Math.max(0, (this.pointed ?? last) + step));
    this.draw();
  }

  point(x) {
    const { times } = this.data;
    if (!times.length || !this.span) return;
    const share = (x - LEFT) / Math.max(1, this.width - LEFT - RIGHT);
    const time = this.span[0] + share * (this.span[1] - this.span[0]);
    let best = 0;
    for (let i = 1; i < times.length; i++)
      if (Math.abs(times[i] - time) < Math.abs(times[best] - time)) best = i;
    this.pointed = best;
    this.draw();
  }

  unpoint() {
    this.pointed = null;
    this.draw();
  }

  scaleY() {
    const all = this.data.rows.flat().filter(value => value !== null && value !== undefined &&
                                                      (!this.log || value > 0));
    const most = Math.max(...all, 0);
    if (!all.length) return null;
    const ticks = this.log ? logTicks(Math.min(...all), most) : linearTicks(most, this.binary);
    const [low, high] = [ticks[0], ticks[ticks.length - 1]];
    const place = this.log
      ? value => (Math.log10(Math.max(value, low)) - Math.log10(low)) /
                 (Math.log10(high) - Math.log10(low))
      : value => value / high;
    return { ticks, y: value => HEIGHT - BOTTOM - place(value) * (HEIGHT - BOTTOM - TOP) };
  }

  path(times, row, x, y) {
    let text = "";
    let pen = "M";
    times.forEach((time, i) => {
      const value = row[i];
      if (value === null || value === undefined || time < this.span[0]) {
        pen = "M";
        return;
      }
      text += `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      // a single point between gaps is drawn as a dot by its round cap
      if (row[i + 1] === null || row[i + 1] === undefined) text += "h.01";
    });
    return text;
  }

  axes(x, y, ticks) {
    const parts = [];
    for (const tick of ticks) {
      const at = y(tick);
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: at, y2: at }),
        svg("text", { class: "tick", x: LEFT - 8, y: at + 4, "text-anchor": "end" },
          this.format(tick).replace(/\.0+(?=\D|$)/, "")));
    }
    const step = timeStep(this.span[1] - this.span[0]);
    for (let time = Math.ceil(this.span[0] / step) * step; time <= this.span[1]; time += step) {
      if (x(time) < LEFT + 14 || x(time) > this.width - 18) continue;
      parts.push(svg("text", { class: "tick", x: x(time), y: HEIGHT - 6, "text-anchor": "middle" },
        clock(time, { seconds: step < 60e3 })));
    }
    return parts;
  }

  /** Of the events; those that would cover each other share one. */
  marks(x) {
    const groups = new Map();
    for (const event of this.events) {
      if (event.time_ms < this.span[0] || event.time_ms > this.span[1]) continue;
      const at = Math.round(x(event.time_ms) / 9) * 9;
      const grave = event.level !== "info";
      const group = groups.get(at) ?? { at: x(event.time_ms), grave: false, texts: [] };
      if (grave && !group.grave) group.at = x(event.time_ms);
      group.grave ||= grave;
      group.texts.push(`${clock(event.time_ms)} ${event.text}`);
      groups.set(at, group);
    }
    return [...groups.values()].map(({ at, grave, texts }) =>
      svg("g", { class: grave ? "mark grave" : "mark" },
        svg("title", {}, texts.slice(0, 8).join("\n") + (texts.length > 8 ? "\n…" : "")),
        grave ? svg("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }) : null,
        svg("path", { d: `M${(at - 3.5).toFixed(1)} ${HEIGHT - BOTTOM + 6}h7l-3.5 -5.5z` })));
  }

  draw() {
    if (!this.span || this.width < 120) return;
    const { times, rows } = this.data;
    const scale = this.scaleY();
    const x = time => LEFT + (time - this.span[0]) / (this.span[1] - this.span[0]) *
                             (this.width - LEFT - RIGHT);
    this.empty.hidden = scale !== null;
    const parts = this.axes(x, scale?.y ?? (() => HEIGHT - BOTTOM), scale?.ticks ?? []);
    parts.push(svg("line", { class: "base", x1: LEFT, x2: this.width - RIGHT,
      y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
    parts.push(...this.marks(x));
    if (scale)
      rows.forEach((row, i) => parts.push(svg("path",
        { class: `line c${this.lines[i].colour}`, d: this.path(times, row, x, scale.y) })));
    if (this.pointed !== null && times[this.pointed] !== undefined) {
      const at = x(times[this.pointed]);
      parts.push(svg("line", { class: "cursor", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    this.values();
  }

  values() {
    const { times, rows } = this.data;
    const at = this.pointed ?? times.length - 1;
    setText(this.when, this.pointed === null ? "" : clock(times[at]));
    const said = this.lines.map((line, i) => {
      const text = this.format(rows[i]?.[at] ?? null);
      setText(line.value, text);
      return `${line.label} ${text}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}: ${said.join(", ")}`);
  }
}

/** Charts side by side that show the same time. */
export class ChartGroup {
  constructor(...charts) {
    this.charts = charts;
    this.root = el("div", { class: "charts" }, charts.map(chart => chart.root));
  }

  close() {
    for (const chart of this.charts) chart.close();
  }

  /** `lines`: [[label, colour, stage, name of the series], …]; `shown` as `TimeRange.of`. */
  draw(chart, lines, { history, ring, span, events }) {
    chart.setLines(lines.map(([label, colour]) => ({ label, colour })));
    chart.update(history[ring].times,
      lines.map(([, , stage, name]) => history.series(ring, stage, name).values), span, events);
  }
}

/** The choice of how much time charts show. */
export class TimeRange {
  constructor(feed, update) {
    this.feed = feed;
    this.ring = "fine";
    this.root = choice("Time shown", [["fine", "5 minutes"], ["coarse", "1 hour"]], this.ring,
      ring => {
        this.ring = ring;
        if (feed.sample) update(feed.sample);
      });
  }

  /** What is shown of a pipeline (""; the node) and of these events. */
  of(sample, pipeline, events) {
    const history = this.feed.watch(pipeline);
    if (this.ring === "coarse") this.feed.refresh();
    const span = [sample.time_ms - (this.ring === "fine" ? 300e3 : 3600e3), sample.time_ms];
    return { history, ring: this.ring, span, events };
  }
}

/** Horizontal bars: `items` [{label, value, text, colour, data}]. */
export class Bars {
  constructor(empty) {
    this.list = el("ul", { class: "bars" });
    this.empty = el("p", { class: "empty" }, empty);
    this.root = el("div", {}, this.list, this.empty);
    this.lines = [];
  }

  update(items) {
    const most = Math.max(...items.map(item => item.value), 0);
    this.empty.hidden = most > 0;
    this.list.hidden = most <= 0;
    while (this.lines.length > items.length) this.lines.pop().root.remove();
    items.forEach((item, i) => {
      if (!this.lines[i]) {
        const [label, value, bar] = [el("span"), el("span", { class: "value" }), el("i")];
        this.lines[i] = { label, value, bar,
          root: el("li", {}, label, el("span", { class: "bar" }, bar), value) };
        this.list.append(this.lines[i].root);
      }
      const line = this.lines[i];
      setText(line.label, item.label);
      setText(line.value, item.text);
      line.bar.style.width = most > 0 ? `${100 * item.value / most}%` : "0";
      line.bar.className = `c${item.colour ?? 1}`;
      if (item.data) line.value.dataset.counter = item.data;
    });
  }
}

/** Vertical bars of a histogram: `buckets` [[lower bound, count]]. */
export class Histogram {
  constructor(title, unit, { format, empty }) {
    this.format = format;
    this.title = title;
    this.svg = svg("svg", { class: "plot", role: "img" });
    this.empty = el("p", { class: "empty over" }, empty);
    this.note = el("p", { class: "hint" });
    this.root = el("figure", { class: "chart" },
      el("figcaption", {}, el("b", {}, title), el("span", { class: "unit" }, unit)),
      el("div", { class: "plotbox" }, this.svg, this.empty), this.note);
    this.buckets = [];
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.svg);
  }

  close() {
    this.observer.disconnect();
  }

  update(histogram) {
    // four buckets per power of two are fine; two are enough to look at
    const merged = new Map();
    for (const [floor, number] of histogram.buckets) {
      const at = floor < 8 ? floor : 2 ** (Math.floor(Math.log2(floor) * 2) / 2);
      merged.set(at, (merged.get(at) ?? 0) + number);
    }
    this.buckets = [...merged].sort((a, b) => a[0] - b[0]);
    this.empty.hidden = this.buckets.length > 0;
    setText(this.note, histogram.count
      ? `${histogram.count.toLocaleString("en-US")} in all; half below ` +
        `${this.format(histogram.p50)}, 99 % below ${this.format(histogram.p99)}.` : "");
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (width < 120) return;
    const most = Math.max(...this.buckets.map(bucket => bucket[1]), 1);
    const ticks = linearTicks(most).filter(Number.isInteger);
    const high = Math.max(ticks[ticks.length - 1], most);
    const y = value => HEIGHT - BOTTOM - value / high * (HEIGHT - BOTTOM - TOP);
    const room = (width - LEFT - RIGHT) / Math.max(this.buckets.length, 6);
    const every = Math.max(1, Math.ceil(72 / room));
    const parts = ticks.flatMap(tick => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" },
        tick.toLocaleString("en-US"))]);
    this.buckets.forEach(([floor, number], i) => {
      const left = LEFT + i * room;
      parts.push(svg("rect", { class: "column", x: left + 1, width: Math.max(1, room - 2),
        y: y(number), height: HEIGHT - BOTTOM - y(number) },
      svg("title", {}, `from ${this.format(floor)}: ${number}`)));
      if (i % every === 0)
        parts.push(svg("text", { class: "tick", x: left + 1, y: HEIGHT - 6 }, this.format(floor)));
    });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.setAttribute("aria-label", `${this.title}: ${this.buckets.length} buckets`);
    this.svg.replaceChildren(...(this.buckets.length ? parts : []));
  }
}
