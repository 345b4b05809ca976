#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client walks through far more models than fit, and everything about it is looked at.

    ./dev walk [--models N] [--fit N] [--loads N] [--workers N] [--seed S] [--json FILE]

In a directory lie 10,000 small XGBoost models (shoal_boosters.py), each with other answers; the
memory of the pipeline is enough for 500 of them, by the size that the node itself has measured
of some before. The client asks by turns as popularity has it (Zipf) and one after the other, so
that most of what it asks for has just been evicted; it goes on until 20,000 models have been
loaded.

Properties: every answer is the right one of the right model; at every sample what the catalog
says is in use is within the budget, and what the workers have in memory beyond what they had before
the first model is within the budget and MARGIN of it; over the last half neither the workers'
memory nor what models have left behind rises, and that is no more than what an engine keeps once
for itself (ONCE_BYTES). Exit code: 0 if all of it does, 1 if not.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import threading
import time

import shoal_boosters
import shoal_fixture
from shoal_client import Client
from shoal_ctl import shoalctl
from shoal_fixture import Shoald, node, pipeline, read_proc, stage

MIB = 1 << 20
PIPELINE = "boosters"
IN_FLIGHT = 32         # requests of the client at once
SAMPLE_SECONDS = 0.25  # as often as gauges are written
TRIED = 24             # models whose size is measured before
TURN = 2000            # requests between two kinds of choosing
MARGIN = 0.25          # of the budget: what workers may have beyond it, for what is no model's
MARGIN_BYTES = 24 * MIB  # and beside that: requests, the engine's own
RISE = 0.03            # of their memory over the last half, from its first to its second part
RISE_BYTES = 2 * MIB
WARM_LOADS = 2000      # then the fragments of the workers' memory have stopped growing,
COLD_RISE_BYTES = 8 * MIB  # earlier they grow by up to 3 MiB over the last half
ONCE_BYTES = 1 * MIB   # that an engine keeps of its first load, of each worker


@dataclasses.dataclass(frozen=True)
class Plan:
    models: int = 10000
    fit: int = 500
    loads: int = 20000
    workers: int = 2
    seconds_max: int = 1800


@dataclasses.dataclass(frozen=True)
class Sample:
    used: int
    capacity: int
    leaked: int
    loads: int
    resident: int  # of all workers, beyond their base


def configuration(root, memory_mib, workers):
    return node(pipeline(PIPELINE, stage("libxgboost_modelet.so", workers=workers, batch_size=16),
                         models={"root": str(root), "memory_mib": memory_mib, "default_size_mib": 1,
                                 "load_concurrency": 4, "preload": "no"}))


def resident(pids):
    found = [re.search(r"^VmRSS:\s+(\d+) kB", read_proc(pid, "status"), re.M) for pid in pids]
    return sum(1024 * int(match[1]) for match in found if match)


def rows(shoald, *options):
    return shoalctl("model", "list", "--json", "--counters", shoald.counters, *options).json_lines


class Walker:
    """Asks, and checks every answer."""

    def __init__(self, client, plan, draw):
        self.client = client
        self.plan = plan
        self.draw = draw
        self.flying = collections.deque()
        self.asked = 0
        self.problems = []
        self.order = list(range(plan.models))  # from the most popular on
        draw.shuffle(self.order)
        self.weights = [1 / (rank + 1) for rank in range(plan.models)]
        self.next = 0  # of the sweep

    def by_popularity(self, count):
        return self.draw.choices(self.order, self.weights, k=count)

    def one_after_the_other(self, count):
        chosen = [(self.next + i) % self.plan.models for i in range(count)]
        self.next = (self.next + count) % self.plan.models
        return chosen

    def ask(self, number):
        side = self.draw.randrange(2)
        future = self.client.start_raw(shoal_boosters.name(number), shoal_boosters.tensor(side))
        self.flying.append((future, number, side))
        self.asked += 1
        if len(self.flying) >= IN_FLIGHT:
            self.look_at_oldest()

    def look_at_oldest(self):
        future, number, side = self.flying.popleft()
        name = shoal_boosters.name(number)
        try:
            answer = future.result()
        except Exception as error:  # pylint: disable=broad-except
            self.problems.append(f"{name}: {error}")
            return
        right = shoal_boosters.answers(number)[side]
        value = shoal_boosters.value_of(answer)
        if answer.model_name != name or value != right:
            self.problems.append(f"{name} answered {value} as {answer.model_name}, not {right}")

    def walk(self, count, choose):
        for number in choose(count):
            self.ask(number)

    def land(self):
        while self.flying:
            self.look_at_oldest()


class Sampler:
    """Looks at the node every now and then, on a thread of its own."""

    def __init__(self, shoald):
        self.shoald = shoald
        self.pids = [worker.pid for worker in shoald.workers()]
        self.base = resident(self.pids)
        self.samples = []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.problems = []

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()

    def look(self):
        stat = self.shoald.pipeline_stat(PIPELINE)
        self.samples.append(Sample(stat["model_bytes"], stat["model_bytes_max"],
                                   stat["model_bytes_leaked"], stat["model_loads"],
                                   resident(self.pids) - self.base))
        return self.samples[-1]

    def run(self):
        try:
            self.look()
            while not self.ends.wait(SAMPLE_SECONDS):
                self.look()
        except Exception as error:  # pylint: disable=broad-except
            self.problems.append(f"sampling: {error}")

    @property
    def loads(self):
        return self.samples[-1].loads if self.samples else 0


# ---- the walk ----

def measured_size(root, plan):
    """A model's size, by the catalog, once some have been loaded."""
    with Shoald(configuration(root, 4096, plan.workers)) as shoald, \
            Client(shoald.target) as client:
        for number in range(TRIED):
            client.infer_raw(shoal_boosters.name(number), shoal_boosters.tensor(0))
        sizes = [row["bytes"] for row in rows(shoald, "--state", "loaded")]
    assert len(sizes) >= TRIED, f"{TRIED} models were asked for, {len(sizes)} are loaded"
    return max(sizes)


def go(shoald, plan, draw):
    """Walks; returns the walker and the sampler."""
    begun = time.monotonic()
    with Client(shoald.target) as client, Sampler(shoald) as sampler:
        walker = Walker(client, plan, draw)
        chosen = (walker.by_popularity, walker.one_after_the_other)
        turn = 0
        while sampler.loads < plan.loads and not walker.problems and not sampler.problems:
            walker.walk(min(TURN, plan.models), chosen[turn % len(chosen)])
            turn += 1
            assert sampler.loads >= plan.loads or time.monotonic() - begun < plan.seconds_max, \
                f"only {sampler.loads} of {plan.loads} loads in {plan.seconds_max} s"
        walker.land()
    shoald.wait_all_returned(PIPELINE)
    sampler.look()
    return walker, sampler


def check(plan, memory, walker, sampler, sanitized):
    """The violations."""
    problems = walker.problems[:10] + sampler.problems
    for sample in sampler.samples:
        if sample.used > sample.capacity or sample.capacity != memory:
            problems.append(f"over the budget of {memory}: {sample}")
        if not sanitized and sample.resident > memory * (1 + MARGIN) + MARGIN_BYTES:
            problems.append(f"workers have more than the budget of {memory} and its margin: {sample}")
    last = sampler.samples[-1]
    # by what was done, not by the clock: on a busy machine half of the time may pass before an
    # eviction
    half = [sample for sample in sampler.samples if 2 * sample.loads >= last.loads]
    halfway = half[0]
    if last.leaked > min(halfway.leaked, ONCE_BYTES * plan.workers):
        problems.append(f"{last.leaked} bytes were left behind, of them {halfway.leaked} at half time")
    if last.loads < plan.loads:
        problems.append(f"{last.loads} loads, {plan.loads} were to be made")
    resident = [sample.resident for sample in half]
    first, second = resident[:len(half) // 2], resident[len(half) // 2:]
    if first and not sanitized:
        was, now = statistics.median(first), statistics.median(second)
        rise_bytes = RISE_BYTES if halfway.loads >= WARM_LOADS else COLD_RISE_BYTES
        if now > was * (1 + RISE) + rise_bytes:
            problems.append(f"the workers' memory rises: from {was} to {now} over the last half")
    return problems[:20]


def run(plan, seed, sanitized=False):
    """The whole of it: a report, whose "problems" are empty if everything held."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="shoal-walk.") as folder:
        root = pathlib.Path(folder) / "models"
        root.mkdir()
        begun = time.monotonic()
        shoal_boosters.write_many(root, plan.models)
        written = time.monotonic()
        size = measured_size(root, plan)
        memory_mib = -(-plan.fit * size // MIB)
        with Shoald(configuration(root, memory_mib, plan.workers)) as shoald:
            listed = int(shoald.wait_log(r"models_listed .* count=(\d+) us=(\d+)")[1])
            assert listed == plan.models, f"{listed} models are listed, {plan.models} lie there"
            started = time.monotonic()
            walker, sampler = go(shoald, plan, draw)
            walked = time.monotonic() - started
            stat = shoald.pipeline_stat(PIPELINE)
            lines = shoald.lines
    look = re.search(r"models_listed .* us=(\d+)", "\n".join(lines))
    return {
        "seed": seed, **dataclasses.asdict(plan),
        "write_seconds": round(written - begun, 2),
        "list_ms": int(look[1]) / 1000,
        "model_bytes": size,
        "budget_bytes": memory_mib * MIB,
        "walk_seconds": round(walked, 2),
        "requests": walker.asked,
        "loaded": sampler.samples[-1].loads,
        "evicted": stat["model_evictions"],
        "samples": len(sampler.samples),
        "used_bytes_max": max(sample.used for sample in sampler.samples),
        "resident_bytes_max": max(sample.resident for sample in sampler.samples),
        "resident_bytes_end": sampler.samples[-1].resident,
        "leaked_bytes": sampler.samples[-1].leaked,
        "problems": check(plan, memory_mib * MIB, walker, sampler, sanitized),
    }


def tell(report):
    def mib(what):
        return f"{report[what] / MIB:.1f} MiB"

    print(f"{report['models']:,} models written in {report['write_seconds']} s, listed in "
          f"{report['list_ms']:.0f} ms; one takes {report['model_bytes']:,} bytes\n"
          f"budget {mib('budget_bytes')} for {report['fit']}; in use at most {mib('used_bytes_max')} of it\n"
          f"{report['requests']:,} requests in {report['walk_seconds']} s, {report['loaded']:,} loads, "
          f"{report['evicted']:,} evictions\n"
          f"workers: at most {mib('resident_bytes_max')} beyond their base, {mib('resident_bytes_end')} at "
          f"the end; leaked {report['leaked_bytes']} bytes; {report['samples']} samples", flush=True)
    for problem in report["problems"]:
        print(f"FAILED: {problem}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev walk", description=__doc__.split("\n", 1)[0])
    for field in dataclasses.fields(Plan):
        if field.name != "seconds_max":
            parser.add_argument(f"--{field.name}", type=int, default=field.default, metavar="N")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.seed is not None:
        os.environ["SHOAL_SEED"] = str(options.seed)
    report = run(Plan(options.models, options.fit, options.loads, options.workers),
                 shoal_fixture.draw_seed())
    tell(report)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
