#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Shoal and its references side by side in one run, and prints the ratios beside their goals.

    ./dev bench                      everything, pinned and free: over an hour
    ./dev bench --quick              a few minutes: 2 short rounds, pinned
    ./dev bench --only echo          one cell: echo, local, digits, python, models, mesh, register,
                                     http, gateway, picker, stages, service, ring, idle
    ./dev bench --publish            everything, and write docs/performance.md from it
    ./dev bench --publish --only echo
                                     replace the published cell
    ./dev bench --report             write that page again from docs/performance.json

Cells:
  echo     a bare gRPC C core echo server and Shoal's echo with 1, 2 and 4 stages: the same client,
           the same message; 100 B and 4 KiB over a unix socket, 64 KiB and 1 MiB over TCP
  local    one stage of echo through shared memory, by libshoal, and over gRPC; all four sizes
  digits   three stages, one of them XGBoost: without batching, with several batch waits, and
           XGBoost called directly by one process
  python   the same modelet in Python and in C
  models   50 models of one stage: while others are loaded, and without loads
  mesh     50 networks: a node without a mesh, a mesh of one node, behind a bare proxy, behind
           another node of the mesh, in a runtime beside the node
  register models registered through a node, with an etcd that waits for its disk; keys put directly
           into that etcd
  http     keep-alive requests of 1 KiB: nginx and Shoal's HTTP server (packages nginx-light, wrk)
  picker   shoal-gateway behind Envoy's ext_proc, without Envoy: requests of 1 KB and 220 KB
  gateway  shoal-gateway, nginx and HAProxy (package haproxy) before one model server: requests of
           1 KB and 220 KB, 1 KB over HTTP/2 (package nghttp2-client), 200 streams, the memory of open
           ones, the cost of 100 endpoints without calls
  stages   echo with 1, 2 and 4 stages without a network: the cost of a stage
  service  two stages: a service in plain Python without a network; Shoal without a network
           (pipeline_bench submits as the front does); Shoal over gRPC
  ring     Shoal's ring and plain rings, between two threads on two cores
  idle     the cost of servers without calls

The contenders of a group start together, once a round. Each case (1, 16 and 128 outstanding, then an
open loop at fractions of the measured capacity) is measured with all of them in turn, A B A B,
starting with another one each round, so that slow phases of the machine affect all alike. A figure is
the median over the rounds, with its range. Measurements on a busy machine are flagged.

Speed is not judged: the exit code is 0 when everything was measured, 1 when a program failed or gave
a wrong answer, 2 for a wrong command line. A missing part is skipped by name.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page
from contenders import SPARE
from groups import GROUPS
from figures import (PLACEMENTS, RATE, VERDICTS, judge, merge, report_text, rounded, short, spread,
                     wanted)
from programs import HERE, Failed, Missing, Setting
from quiet import LIMITS, LOAD_AVERAGE_MAX, Machine, is_quiet, noise

ROOT = HERE.parent.parent
PUBLISHED = ROOT / "docs" / "performance.json"
ROUNDS, SECONDS = 5, 1.0
QUICK_ROUNDS, QUICK_SECONDS = 2, 0.3
CELLS = sorted({group.name.split()[0] for group in GROUPS})
# Starting a client, warming up, looking at the machine; starting and stopping a server.
OVERHEAD_S, START_S = 0.45, 0.6


class Progress:
    """A line for each round of a group, with what is left by the measurements still to come."""

    def __init__(self, total_s):
        self.total_s = total_s
        self.begun = time.monotonic()
        self.done_s = 0.0

    def say(self, text, planned_s):
        elapsed = time.monotonic() - self.begun
        left = self.total_s - self.done_s
        if self.done_s > 20:
            left *= elapsed / self.done_s
        print(f"  {elapsed / 60:4.0f} min, about {left / 60:3.0f} left: {text}", file=sys.stderr,
              flush=True)
        self.done_s += planned_s


class Bench:
    """Goes through groups, placements and rounds, and fills the report."""

    def __init__(self, options, report):
        self.options = options
        self.report = report
        self.progress = None

    # ---- plan

    def plan(self):
        """(group, placement) in the order of measuring. A group that knows one placement has that."""
        chosen = [group for group in GROUPS
                  if not self.options.only or group.name.split()[0] in self.options.only]
        return [(group, placement) for group in chosen
                for placement in [one for one in self.options.placement if one in group.placements]
                or group.placements]

    def planned_s(self, group):
        """Seconds of one round."""
        count = sum(len(group.contenders(case)) for case in group.cases)
        return (count * (self.options.seconds * group.times + OVERHEAD_S)
                + len(group.names) * START_S)

    def run(self):
        plan = self.plan()
        rounds = self.options.rounds
        self.progress = Progress(rounds * sum(self.planned_s(group) for group, _ in plan))
        print(f"about {self.progress.total_s / 60:.0f} minutes", flush=True)
        with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
            groups = list(dict.fromkeys(group.name for group, _ in plan))
            for name in groups:
                for turn in range(rounds):
                    for group, placement in plan:
                        if group.name == name:
                            self.round(group, placement, turn, directory)

    # ---- one round

    def round(self, group, placement, turn, directory):
        key = f"{group.name}, {PLACEMENTS[placement]}"
        if key in self.report["failed"]:
            return
        self.progress.say(f"{key}, round {turn + 1} of {self.options.rounds}",
                          self.planned_s(group))
        setting = Setting(self.options.build, directory, placement)
        started = {}
        try:
            self.start(group, setting, started)
            self.measure(group, placement, turn, started)
        except Missing as missing:
            self.report["skipped"][group.name] = str(missing)
        except Failed as failed:
            self.report["failed"][key] = str(failed)
        finally:
            for contender in started.values():
                wrong = contender.stop()
                if wrong:
                    self.report["failed"].setdefault(key, wrong)

    def start(self, group, setting, started):
        for name, contender in group.make(setting).items():
            started[name] = contender
            try:
                contender.start()
            except Missing as missing:
                del started[name]
                self.report["skipped"][f"{group.name}: {name}"] = str(missing)

    def measure(self, group, placement, turn, started):
        capacity = {}
        for case in group.cases:
            names = [name for name in group.contenders(case) if name in started]
            for index in range(len(names)):
                name = names[(index + turn) % len(names)]
                rate = None
                if case.fraction:
                    rate = case.fraction * capacity.get(group.reference, 0.0)
                    if not 0 < rate <= SPARE * capacity[name]:
                        continue
                figures = self.measure_one(group, placement, turn, started, name, case, rate)
                if case.outstanding:
                    capacity[name] = max(capacity.get(name, 0), figures.get(RATE, 0))

    def measure_one(self, group, placement, turn, started, name, case, rate):
        pids = [pid for contender in started.values() for pid in contender.pids()]
        try:
            before = Machine(pids)
            figures = started[name].measure(case, self.options.seconds * group.times, rate,
                                            turn + 1)
            heard = noise(before, Machine(pids))
        except OSError as error:
            raise Failed(f"{name}, {case.name}: a process ended by itself: {error}") from error
        counts = self.report["noise"]["of"].setdefault(placement, {}).setdefault(group.name, [0, 0])
        counts[1] += 1
        if not is_quiet(heard):
            counts[0] += 1
            self.report["noise"]["flagged"].append(
                [placement, group.name, name, case.name, turn + 1, rounded(list(heard.values()))])
        cell = self.report["cells"].setdefault(placement, {}).setdefault(group.name, {})
        kept = cell.setdefault(name, {}).setdefault(case.name, {})
        for figure, value in figures.items():
            kept.setdefault(figure, []).append(rounded(value))
        return figures

    def finish(self):
        """Makes one distribution of those of the rounds."""
        for groups in self.report["cells"].values():
            for contenders in groups.values():
                for cases in contenders.values():
                    for case, figures in cases.items():
                        cases[case] = {name: rounded(values)
                                       for name, values in merge(figures).items()}


# ---- the report of a run


def command_text(arguments):
    """Without what changes no figure."""
    words = list(arguments)
    if "--json" in words:
        at = words.index("--json")
        del words[at:at + 2]
    return " ".join(["./dev bench", *words])


def git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine():
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    release = {}
    if Path("/etc/os-release").exists():
        lines = Path("/etc/os-release").read_text().splitlines()
        release = dict(line.split("=", 1) for line in lines if "=" in line)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2 ** 30, 1),
        "kernel": platform.release(),
        "system": release.get("PRETTY_NAME", platform.system()).strip('"'),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def describe(options, arguments):
    """A report without figures."""
    commit = git("log", "-1", "--format=%h of %cs")
    if commit and git("status", "--porcelain", "--untracked-files=no"):
        commit += ", with changes"
    return {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit,
        "command": command_text(arguments),
        "options": {"rounds": options.rounds, "seconds": options.seconds,
                    "placements": options.placement},
        "noise": {"limits": LIMITS, "of": {}, "flagged": []},
        "cells": {}, "skipped": {}, "failed": {},
    }


# ---- print


def print_group(group, contenders):
    print(f"  {'':18}{'':14}" + "".join(f"{title:>26}" for _, title in group.figures))
    for case in group.cases:
        for name in group.contenders(case):
            figures = contenders.get(name, {}).get(case.name)
            if figures:
                texts = [spread(figures.get(figure, [])) for figure, _ in group.figures]
                print(f"  {case.name:18}{name:14}" + "".join(f"{text:>26}" for text in texts))


def print_report(report):
    for placement, groups in report["cells"].items():
        for group in GROUPS:
            if group.name in groups:
                flagged, count = report["noise"]["of"][placement][group.name]
                print(f"\n{group.title}; {PLACEMENTS[placement]}; median [range]; "
                      f"not quiet: {flagged} of {count}")
                print_group(group, groups[group.name])
    print(f"\n{'goal':96}{'wanted':>12}")
    for goal in report["goals"]:
        values = [f"{PLACEMENTS[placement]} {short(of['value'])}{VERDICTS[of['met']]}"
                  for placement, of in goal["placements"].items()]
        print(f"{goal['text']:96}{wanted(goal):>12}   {'; '.join(values)}")
    for part, why in report["skipped"].items():
        print(f"skipped {part}: {why}")
    for part, why in report["failed"].items():
        print(f"FAILED {part}: {why}")
    print_noise(report)


def print_noise(report):
    counts = [count for groups in report["noise"]["of"].values() for count in groups.values()]
    flagged, every = (sum(count[index] for count in counts) for index in (0, 1))
    print(f"\nnot quiet during {flagged} of {every} measurements")
    load, cores = report["machine"]["load_average"], report["machine"]["cores"]
    if load > LOAD_AVERAGE_MAX * cores:
        print(f"the machine was busy before it began: load average {load} on {cores} cores")


# ---- command line


def at_least(least, kind):
    def read(text):
        value = kind(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"at least {least}")
        return value

    return read


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", default=str(ROOT / "build" / "release"),
        help="the build folder, default build/release")
    add("--json", metavar="FILE", help="write all measurements")
    add("--quick", action="store_true", help="2 short rounds, pinned: a few minutes")
    add("--rounds", type=at_least(1, int), help=f"default {ROUNDS}")
    add("--seconds", type=at_least(0.01, float), help=f"per measurement, default {SECONDS}")
    add("--only", action="append", choices=CELLS, help="only this cell; may be repeated")
    add("--placement", choices=["both", *PLACEMENTS], help="pinned: servers on CPU 0, workers and "
        "client on CPU 1; free: not pinned; default both")
    add("--publish", action="store_true", help=f"write {PUBLISHED.relative_to(ROOT)} and its page")
    add("--report", nargs="?", metavar="JSON", const=str(PUBLISHED),
        help="measure nothing: write the page and the charts beside this file")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    placement = options.placement or ("pinned" if options.quick else "both")
    options.placement = list(PLACEMENTS) if placement == "both" else [placement]
    return options


def main(arguments):
    options = parse(arguments)
    if options.report:
        page.write(Path(options.report))
        return 0
    report = describe(options, arguments)
    print("  ".join(f"{name} {value}" for name, value in report["machine"].items()))
    published = json.loads(PUBLISHED.read_text()) if options.publish and options.only else None
    if published and not page.is_of_same_machine(published, report):
        print(f"{PUBLISHED.relative_to(ROOT)} was measured on another machine: publish everything, "
              "without --only", file=sys.stderr)
        return 2
    bench = Bench(options, report)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or its servers would stay
    try:
        bench.run()
    except KeyboardInterrupt:
        report["failed"]["the run"] = "interrupted; the results so far stand above"
    bench.finish()
    report["goals"] = judge(report["cells"])
    print_report(report)
    if options.json:
        Path(options.json).write_text(report_text(report))
    if options.publish:
        PUBLISHED.write_text(report_text(page.joined(published, report) if published else report))
        page.write(PUBLISHED)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
