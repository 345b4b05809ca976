# SPDX-License-Identifier: Apache-2.0
"""Results from the measured values: medians, ranges, distributions, ratios and goals. Pure.

A report is what run.py writes as JSON:

    {"machine": {...}, "options": {...}, "skipped": {...}, "failed": {...}, "noise": {...},
     "cells": {placement: {group: {contender: {case: {figure: [a value of each round]}}}}},
     "anew": {group: {...}}}  the run that a group is of, if it is another one (page.py: joined)

Two figures are not numbers: "distribution", [[share, microseconds that this share did not exceed]],
and "batch_sizes", [[least size, batches]]; of these the rounds are made one by merge().
"""

import json
import re
import statistics
from dataclasses import dataclass
from typing import Callable

MERGED = ("distribution", "batch_sizes")
PLACEMENTS = {"pinned": "pinned", "free": "not pinned"}


# ---- statistics


def summary(values):
    """Median and range of the rounds."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def merge_distributions(rounds):
    """The median latency of each share."""
    shares = {}
    for points in rounds:
        for share, value in points:
            shares.setdefault(share, []).append(value)
    return [[share, statistics.median(values)] for share, values in sorted(shares.items())]


def merge_sizes(rounds):
    """All batches of all rounds."""
    sums = {}
    for buckets in rounds:
        for floor, count in buckets:
            sums[floor] = sums.get(floor, 0) + count
    return [[floor, sums[floor]] for floor in sorted(sums)]


def merge(figures):
    """The same figures, each distribution of the rounds made one."""
    merged = dict(figures)
    for name, merge_one in zip(MERGED, (merge_distributions, merge_sizes)):
        if name in merged:
            merged[name] = merge_one(merged[name])
    return merged


def difference(before, after):
    """Growth of a histogram's buckets between two snapshots, [[floor, count]] each."""
    old = dict(map(tuple, before))
    grown = [[floor, count - old.get(floor, 0)] for floor, count in after]
    return [[floor, count] for floor, count in grown if count > 0]


def mean_size(buckets):
    """Items per batch; a bucket of several sizes counts as its least."""
    batches = sum(count for _, count in buckets)
    return sum(floor * count for floor, count in buckets) / batches if batches else 0.0


def rounded(value):
    """Four significant digits: more than the noise of any round."""
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


# ---- what is wanted


def median_of(cells, group, contender, case, figure):
    """None: not measured."""
    return median_or_none(cells.get(group, {}).get(contender, {}).get(case, {}).get(figure))


def median_or_none(values):
    return statistics.median(values) if values else None


@dataclass(frozen=True)
class Goal:
    """`value` takes the cells of one placement and returns a number, or None if it can't be had."""

    name: str
    text: str
    value: Callable
    sense: str  # "least" or "most"
    bound: float
    unit: str = ""

    def met(self, value):
        return value >= self.bound if self.sense == "least" else value <= self.bound


def ratio(group, case, figure, above, below):
    return lambda cells: quotient(median_of(cells, group, above, case, figure),
                                  median_of(cells, group, below, case, figure))


def best_each_round(cells, group, case, figure, prefix):
    """Of each round the value of one of the contenders whose names begin so: of that which was best
    in the other rounds. The largest of several medians is too large by what chance adds to it."""
    rounds = [of[case][figure] for name, of in cells.get(group, {}).items()
              if name.startswith(prefix) and of.get(case, {}).get(figure)]
    turns = range(min(map(len, rounds), default=0))

    def others(values, turn):
        return statistics.median(values[:turn] + values[turn + 1:] or values)

    return [max(rounds, key=lambda values, turn=turn: others(values, turn))[turn]
            for turn in turns]


def best(cells, group, case, figure, prefix):
    return median_or_none(best_each_round(cells, group, case, figure, prefix))


def quotient(above, below):
    return above / below if above is not None and below else None


def ratio_to_best(group, case, figure, above, prefix):
    """The median over the rounds."""

    def value(cells):
        values = cells.get(group, {}).get(above, {}).get(case, {}).get(figure) or []
        ratios = [quotient(*pair) for pair in
                  zip(values, best_each_round(cells, group, case, figure, prefix))]
        return median_or_none(ratios)

    return value


def ratio_of_best(group, case, figure, prefix, below):
    return lambda cells: quotient(best(cells, group, case, figure, prefix),
                                  median_of(cells, group, below, case, figure))


def plain(group, contender, case, figure, factor=1.0):
    def value(cells):
        found = median_of(cells, group, contender, case, figure)
        return None if found is None else found * factor

    return value


def added(group, case, figure, above, below, stages):
    """The time that each further stage adds."""

    def value(cells):
        a = median_of(cells, group, above, case, figure)
        b = median_of(cells, group, below, case, figure)
        return None if a is None or b is None else (a - b) / stages

    return value


def run_overhead(cells):
    above = added("python", MANY, "run_us", "in_python", "in_c", 1)(cells)
    items = median_of(cells, "python", "in_python", MANY, "run_items")
    return None if above is None or items is None else above / (60 + items)


RATE = "requests_per_s"
LONE, FEW, MANY = "1 outstanding", "16 outstanding", "128 outstanding"
GOALS = [
    Goal("echo-rate-100", "Shoal's one-stage echo ÷ bare echo, 100 B: requests/s, 128 outstanding",
         ratio("echo 100 B", MANY, RATE, "shoal_1", "bare"), "least", 0.90),
    Goal("echo-rate-4k", "one-stage echo ÷ bare echo, 4 KiB: requests/s, 128 outstanding",
         ratio("echo 4 KiB", MANY, RATE, "shoal_1", "bare"), "least", 0.90),
    Goal("echo-lone-100", "one-stage echo ÷ bare echo, 100 B: p50, 1 outstanding",
         ratio("echo 100 B", LONE, "p50_us", "shoal_1", "bare"), "most", 1.25),
    Goal("echo-lone-4k", "one-stage echo ÷ bare echo, 4 KiB: p50, 1 outstanding",
         ratio("echo 4 KiB", LONE, "p50_us", "shoal_1", "bare"), "most", 1.25),
    Goal("echo-rate-1m-16", "one-stage echo ÷ bare echo, 1 MiB: requests/s, 16 outstanding",
         ratio("echo 1 MiB", FEW, RATE, "shoal_1", "bare"), "least", 0.85),
    Goal("echo-rate-1m-128", "one-stage echo ÷ bare echo, 1 MiB: requests/s, 128 outstanding",
         ratio("echo 1 MiB", MANY, RATE, "shoal_1", "bare"), "least", 0.85),
    Goal("stage", "a further stage, wait and run, a core each: p50, 1 outstanding",
         plain("stages", "shoal_2", LONE, "second_stage_ns", 1e-3), "most", 2, "µs"),
    Goal("local-lone", "local client, one-stage echo, 100 B: p50, 1 outstanding",
         plain("local 100 B", "local", LONE, "p50_us"), "most", 5, "µs"),
    Goal("local-grpc", "one-stage echo over gRPC ÷ local client, 100 B: p50, 1 outstanding",
         ratio("local 100 B", LONE, "p50_us", "shoal_grpc", "local"), "least", 20),
    Goal("batching", "digits, best fixed wait ÷ not batched: requests/s, 128 outstanding",
         ratio_of_best("digits", MANY, RATE, "wait_", "off"), "least", 3),
    Goal("adaptive", "digits, adaptive wait ÷ not batched: requests/s, 128 outstanding",
         ratio("digits", MANY, RATE, "adaptive", "off"), "least", 3),
    Goal("adaptive-lone", "digits, adaptive wait ÷ not batched: p50, 1 outstanding",
         ratio("digits", LONE, "p50_us", "adaptive", "off"), "most", 1.05),
    Goal("adaptive-best", "digits, adaptive wait ÷ best fixed wait: requests/s, 128 outstanding",
         ratio_to_best("digits", MANY, RATE, "adaptive", "wait_"), "least", 0.98),
    Goal("python-rate", "four numbers doubled in Python ÷ in C: requests/s, 128 outstanding",
         ratio("python", MANY, RATE, "in_python", "in_c"), "least", 0.5),
    Goal("python-lone", "a run in Python − in C, 1 outstanding",
         added("python", LONE, "run_us", "in_python", "in_c", 1), "most", 61, "µs"),
    Goal("python-run", "a run in Python − in C, ÷ (60 µs + 1 µs per request), 128 outstanding",
         run_overhead, "most", 1),
    Goal("models", "50 models, while 10 others a second are loaded ÷ not: p99, 64 outstanding",
         ratio("models", "64 outstanding", "p99_us", "loads", "alone"), "most", 1.20),
    Goal("models-mlp", "50 networks, while 10 others a second are mapped ÷ not: p99, 64 outstanding",
         ratio("models mlp", "64 outstanding", "p99_us", "loads", "alone"), "most", 1.20),
    Goal("mesh-local", "50 networks, a mesh of one ÷ no mesh: requests/s, 128 outstanding",
         ratio("mesh", MANY, RATE, "mesh", "no_mesh"), "least", 0.95),
    Goal("mesh-forwarded", "50 networks, behind a node of the mesh ÷ behind a bare proxy: requests/s, "
         "128 outstanding", ratio("mesh", MANY, RATE, "mesh_forwarded", "bare_proxy"), "least", 0.85),
    Goal("mesh-external", "50 networks, in a runtime beside the node ÷ behind a bare proxy: requests/s, "
         "128 outstanding", ratio("mesh", MANY, RATE, "mesh_external", "bare_proxy"), "least", 0.85),
    Goal("http-cpu", "HTTP, 1 KiB heads: Shoal ÷ nginx: CPU of the server, 16 outstanding",
         ratio("http", FEW, "server_cpu_us_per_request", "shoal", "nginx"), "most", 1.3),
    Goal("picker-1k", "ext_proc, 1 KB, 32 outstanding: CPU; the reference takes 113 µs",
         plain("picker 1 KB", "shoal", "32 outstanding", "server_cpu_us_per_request"), "most", 56, "µs"),
    Goal("picker-220k", "ext_proc, 220 KB, 16 outstanding: CPU; the reference takes 3,600 µs",
         plain("picker 220 KB", "shoal", "16 outstanding", "server_cpu_us_per_request"), "most", 360,
         "µs"),
    Goal("gateway-1k", "shoal-gateway, 1 KB: nginx ÷ Shoal: CPU of the proxy, 128 outstanding",
         ratio("gateway 1 KB", MANY, "server_cpu_us_per_request", "nginx", "shoal"), "least", 0.8),
    Goal("gateway-220k", "shoal-gateway, 220 KB: nginx ÷ Shoal: CPU of the proxy, 16 outstanding",
         ratio("gateway 220 KB", FEW, "server_cpu_us_per_request", "nginx", "shoal"), "least", 0.6),
    Goal("gateway-lag", "shoal-gateway, 200 streams: Shoal ÷ HAProxy: p99 of an event's lag",
         ratio("gateway streams", "streams", "lag_p99_us", "shoal", "haproxy"), "most", 1),
    Goal("gateway-stream", "shoal-gateway: memory of an open stream",
         plain("gateway memory", "shoal", "memory", "stream_kib"), "most", 6, "KiB"),
    Goal("gateway-memory", "shoal-gateway, idle: resident memory",
         plain("gateway memory", "shoal", "memory", "idle_mib"), "most", 24, "MiB"),
    Goal("gateway-idle", "shoal-gateway, idle, 100 endpoints: CPU, of one core",
         plain("gateway idle", "shoal", "idle", "core_percent"), "most", 3, "%"),
    Goal("idle", "an idle node with 4 stages: CPU, of one core",
         plain("idle", "shoal_4", "idle", "core_percent"), "most", 0.5, "%"),
    Goal("service-rate", "Shoal, no network ÷ Python service: requests/s, 128 outstanding",
         ratio("service", MANY, RATE, "shoal", "python"), "least", 30),
    Goal("service-lone", "Shoal, no network ÷ Python service: p50, 1 outstanding",
         ratio("service", LONE, "p50_us", "shoal", "python"), "most", 1 / 100),
    Goal("service-rate-grpc", "Shoal, gRPC ÷ Python service: requests/s, 128 outstanding",
         ratio("service", MANY, RATE, "shoal_grpc", "python"), "least", 3),
    Goal("service-lone-grpc", "Shoal, gRPC ÷ Python service: p50, 1 outstanding",
         ratio("service", LONE, "p50_us", "shoal_grpc", "python"), "most", 1 / 50),
    Goal("ring-record", "Shoal's ring ÷ a plain one with a record per item: streaming",
         ratio("ring", "stream", "ns", "shoal", "plain_record"), "most", 2),
    Goal("ring-stream", "Shoal's ring ÷ a plain one of indices: streaming",
         ratio("ring", "stream", "ns", "shoal", "plain"), "most", 2),
    Goal("ring-hop", "Shoal's ring ÷ a plain one of indices: a lone item",
         ratio("ring", "hop", "ns", "shoal", "plain"), "most", 2),
]

# Shown beside the goals: no bound was set for them.
SHOWN = [
    Goal("echo-rate-64k", "one-stage echo ÷ bare echo, 64 KiB: requests/s, 16 outstanding",
         ratio("echo 64 KiB", FEW, RATE, "shoal_1", "bare"), "", 0),
    Goal("echo-cpu-100", "one-stage echo ÷ bare echo, 100 B: CPU of the server, 128 outstanding",
         ratio("echo 100 B", MANY, "server_cpu_us_per_request", "shoal_1", "bare"), "", 0),
    Goal("stage-grpc", "a further stage over gRPC, (4 stages − 1) ÷ 3, 100 B: p50, 1 outstanding",
         added("echo 100 B", LONE, "p50_us", "shoal_4", "shoal_1", 3), "", 0, "µs"),
    Goal("batching-example", "digits, the example's wait (2 ms) ÷ not batched: requests/s, "
         "128 outstanding", ratio("digits", MANY, RATE, "wait_2", "off"), "", 0),
    Goal("models-burned", "50 models, while an idle-class program burns 10 ms ten times a second ÷ not: p99, "
         "64 outstanding", ratio("models", "64 outstanding", "p99_us", "burned", "alone"), "", 0),
    Goal("register", "models registered through a node ÷ keys put into its etcd: requests/s, 64 outstanding",
         ratio("register", "64 outstanding", RATE, "shoal", "etcd"), "", 0),
    Goal("digits-direct", "digits, best fixed wait ÷ XGBoost alone, 64 per call: requests/s",
         lambda cells: quotient(best(cells, "digits", MANY, RATE, "wait_"),
                                median_of(cells, "digits", "xgboost", "64 per call", RATE)), "", 0),
]


def judge(cells, goals=(*GOALS, *SHOWN)):
    """[{name, text, unit, sense, bound, placements: {placement: {value, met}}}] of what was
    measured."""
    judged = []
    for goal in goals:
        placements = {}
        for placement, measured in cells.items():
            value = goal.value(measured)
            if value is not None:
                met = goal.met(value) if goal.sense else None
                placements[placement] = {"value": rounded(value), "met": met}
        if placements:
            judged.append({"name": goal.name, "text": goal.text, "unit": goal.unit,
                           "sense": goal.sense, "bound": goal.bound, "placements": placements})
    return judged


# ---- text

LISTS = re.compile(r"\[\s*((?:[^][{}]|\[[^][{}]*\])*?)\s*\]")


def report_text(report):
    """JSON, a line for each figure, so that two reports can be compared."""
    return LISTS.sub(one_line, json.dumps(report, indent=1, ensure_ascii=False)) + "\n"


def one_line(found):
    return f"[{' '.join(found[1].split())}]".replace("[ ", "[").replace(" ]", "]")


def short(value):
    """A number as a reader wants it: three significant digits, thousands set apart."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        digits = len(str(int(abs(value))))
        return f"{round(value, 3 - digits):,.0f}"
    text = f"{value:.3g}"
    return f"{value:.5f}".rstrip("0") if "e" in text else text


def spread(values):
    """Median [least – most]."""
    if not values:
        return "–"
    of = summary(values)
    if len(values) == 1:
        return short(of["median"])
    return f"{short(of['median'])} [{short(of['min'])} – {short(of['max'])}]"


VERDICTS = {None: "", True: ", met", False: ", NOT met"}


def wanted(goal):
    if not goal["sense"]:
        return ""
    sign = "≥" if goal["sense"] == "least" else "≤"
    return f"{sign} {short(goal['bound'])}{' ' + goal['unit'] if goal['unit'] else ''}"
