// SPDX-License-Identifier: Apache-2.0
// The node's samples, one a second, and the history that precedes them.

const EVENTS_MAX = 512;
const FINE_MAX = 300;

async function getJson(path) {
  const answer = await fetch(path);
  if (answer.status === 401) location.assign("/login");
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `HTTP ${answer.status}`);
  return body;
}

/** A list of the operator protocol; throws what the node says. */
export async function ask(verb, members = {}) {
  const query = new URLSearchParams({ verb, ...members });
  return (await getJson(`/ask?${query}`)).list;
}

export function about() {
  return getJson("/about");
}

function trackName(track) {
  return `${track.pipeline}\n${track.stage}`;
}

/** The points of one pipeline and its stages, or of the node (""). */
export class History {
  constructor(pipeline) {
    this.pipeline = pipeline;
    this.fine = { times: [], tracks: new Map() };
    this.coarse = { times: [], tracks: new Map() };
    this.loadedMs = 0;
    this.busy = false;
  }

  async load(feed) {
    if (this.busy) return;
    this.busy = true;
    try {
      const body = await getJson(`/history?${new URLSearchParams({ pipeline: this.pipeline })}`);
      for (const name of ["fine", "coarse"]) {
        const ring = body.points[name];
        this[name] = { times: ring.times_ms, tracks: new Map() };
        for (const track of ring.tracks) this[name].tracks.set(trackName(track), track.values);
      }
      this.loadedMs = Date.now();
      feed.addEvents(body.events);
    } finally {
      this.busy = false;
    }
  }

  /** Adds a second; false: one is missing, load again. */
  add(sample) {
    const { times, tracks } = this.fine;
    const last = times[times.length - 1];
    if (last !== undefined && sample.time_ms <= last) return true;
    if (last === undefined || sample.time_ms - last > 1900) return false;
    times.push(sample.time_ms);
    const seen = new Set();
    for (const point of sample.points) {
      if (point.pipeline !== this.pipeline) continue;
      const name = trackName(point);
      if (!tracks.has(name)) return false;
      for (const [series, value] of Object.entries(point.values))
        tracks.get(name)[series].push(value);
      seen.add(name);
    }
    for (const [name, values] of tracks)
      for (const points of Object.values(values)) {
        if (!seen.has(name)) points.push(null);
        if (points.length > FINE_MAX) points.shift();
      }
    if (times.length > FINE_MAX) times.shift();
    return true;
  }

  /** `{times, values}` of a series, in the ring of that name. */
  series(ring, stage, name) {
    const values = this[ring].tracks.get(`${this.pipeline}\n${stage}`);
    return { times: this[ring].times, values: values?.[name] ?? [] };
  }
}

export class Feed {
  constructor() {
    this.sample = null;
    this.events = [];
    this.state = "connecting";
    this.listeners = new Set();
    this.stateListeners = new Set();
    this.watched = null;
  }

  setState(state) {
    this.state = state;
    for (const listener of this.stateListeners) listener(state);
  }

  connect() {
    const source = new EventSource("/stream");
    source.addEventListener("sample", event => {
      this.take(JSON.parse(event.data));
      if (this.state !== "live") this.setState("live");
    });
    source.addEventListener("error", () => {
      const refused = source.readyState === EventSource.CLOSED;
      this.setState(refused ? "refused" : "lost");
      if (refused) setTimeout(() => this.connect(), 3000);
      about().catch(() => {}); // leads to the login page if that is why
    });
  }

  addEvents(events) {
    const newest = this.events.length ? this.events[this.events.length - 1].number : 0;
    this.events.push(...events.filter(event => event.number > newest));
    if (this.events.length > EVENTS_MAX) this.events.splice(0, this.events.length - EVENTS_MAX);
  }

  take(sample) {
    // a node that was started again begins to count its events anew
    if (this.sample && this.sample.stat.started_unix_ns !== sample.stat.started_unix_ns) {
      this.events = [];
      this.watched = this.watched && new History(this.watched.pipeline);
    }
    this.sample = sample;
    this.addEvents(sample.events);
    if (this.watched && !this.watched.add(sample))
      this.watched.load(this).catch(() => {});
    if (!document.hidden)
      for (const listener of this.listeners) listener(sample);
  }

  /** Keeps the history of this pipeline (""; the node), and of no other. */
  watch(pipeline) {
    if (this.watched?.pipeline === pipeline) return this.watched;
    this.watched = new History(pipeline);
    const watched = this.watched;
    watched.load(this).then(() => {
      if (this.sample && this.watched === watched)
        for (const listener of this.listeners) listener(this.sample);
    }).catch(() => {});
    return watched;
  }

  /** The hour's points come from the node: quantiles cannot be averaged here. */
  refresh() {
    if (this.watched && Date.now() - this.watched.loadedMs > 10000)
      this.watched.load(this).catch(() => {});
  }
}
