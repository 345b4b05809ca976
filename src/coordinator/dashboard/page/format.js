// SPDX-License-Identifier: Apache-2.0
// Numbers as text, with units, in the manner of shoalctl.

export const NONE = "–";

export function count(number) {
  return number === null || number === undefined ? NONE : Number(number).toLocaleString("en-US");
}

function threeDigits(value, unit) {
  const decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${value.toFixed(decimals)} ${unit}`;
}

export function duration(ns) {
  if (ns === null || ns === undefined) return NONE;
  const s = ns / 1e9;
  if (ns < 1000) return `${Math.max(0, Math.round(ns))} ns`;
  if (ns < 999.5e3) return threeDigits(ns / 1e3, "µs");
  if (ns < 999.5e6) return threeDigits(ns / 1e6, "ms");
  if (s < 120) return threeDigits(s, "s");
  if (s < 7200) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

export function durationMs(ms) {
  return ms === null || ms === undefined ? NONE : duration(ms * 1e6);
}

export function bytes(number) {
  if (number === null || number === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit + 1 < units.length) {
    number /= 1024;
    unit++;
  }
  return unit === 0 ? `${Math.round(number)} B` : threeDigits(number, units[unit]);
}

export function decimal(number) {
  if (number === null || number === undefined) return NONE;
  if (number === 0) return "0";
  if (number < 0.01) return "<0.01";
  const decimals = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
  return Number(number.toFixed(decimals)).toLocaleString("en-US",
    { minimumFractionDigits: decimals === 2 ? 1 : decimals, maximumFractionDigits: decimals });
}

export function rate(number) {
  return number === null || number === undefined ? NONE : `${decimal(number)}/s`;
}

const two = number => String(number).padStart(2, "0");

export function clock(ms, { seconds = true } = {}) {
  const date = new Date(ms);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return seconds ? `${text}:${two(date.getSeconds())}` : text;
}

export function since(ms, now) {
  return ms ? durationMs(Math.max(0, now - ms)) : NONE;
}

/** A log event: `{name, values: {key: value}}`. */
export function parseEvent(text) {
  const values = {};
  const name = text.split(" ", 1)[0];
  for (const match of text.matchAll(/ ([a-z_0-9]+)=(?:"([^"]*)"|(\S*))/g))
    values[match[1]] = match[2] ?? match[3];
  return { name, values };
}
