#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults in a mesh of real nodes and a real etcd under load, with every answer checked.

    ./dev mesh [--full] [--seed S] [--only ROW]... [--json FILE]

Each row (rows.py) starts an etcd and nodes on loopback, has callers ask random nodes for models by
popularity, checks each answer, and injects one kind of fault. Random choices follow from the seed,
which is printed first. --full uses the full sizes.

Exit code: 0 when every row is ok, 1 when one has FAILED, 2 for a wrong command line.
"""

import argparse
import json
import os
import pathlib
import random
import sys
import textwrap
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
PROBLEMS_SHOWN = 10

# Name, what is wanted, shortly, at full length.
NONE_LOST = "0 wrong, 0 failed"
ROWS = (
    ("lru", f"{NONE_LOST}; memory within its budget",
     {"models": 300, "fit": 90, "callers": 2, "in_flight": 8, "calls": 200, "turns": 5},
     {"models": 2000, "fit": 300, "callers": 2, "in_flight": 8, "calls": 500, "turns": 40}),
    ("kills", NONE_LOST,
     {"models": 24, "calls": 100, "count": 2}, {"models": 60, "calls": 500, "count": 100}),
    ("drains", NONE_LOST,
     {"models": 24, "calls": 100, "rounds": 1}, {"models": 60, "calls": 1000, "rounds": 5}),
    ("vmodels", f"{NONE_LOST}; no answer of a target that was left",
     {"calls": 20, "count": 10}, {"calls": 50, "count": 1000}),
    ("etcd", f"{NONE_LOST} of what is loaded; the registry is right again",
     {"models": 24, "calls": 100, "seconds": 2, "cut_seconds": 2, "parted_seconds": 0},
     {"models": 60, "calls": 1000, "seconds": 300, "cut_seconds": 30, "parted_seconds": 20}),
    ("streams", "0 pieces wrong, lost, crossed or doubled; nothing is left of a stream",
     {"kills": 12, "every": 4}, {"kills": 2000, "every": 20}),
    ("registry", "memory <= 48 MiB, ready within 2 s of processor time, at full length", {"models": 1000},
     {"models": 20000}),
)


def run_row(row, options, rig, rows):
    """Its report; an error on the way is a problem of the row, not of the run."""
    name, wanted, short, full = row
    report = rig.Report(name, wanted)
    amount = full if options.full else short
    print(f"{name:<9} begins: {amount}", flush=True)
    begun = time.monotonic()
    try:
        getattr(rows, name)(report, amount, random.Random(f"{options.seed} {name}"))
    except AssertionError as error:  # of the fixture's: something did not happen, or had to hold
        report.problems.append(str(error))
    except Exception as error:  # pylint: disable=broad-except
        report.problems.append(f"{type(error).__name__}: {error}")
        traceback.print_exc()
    for problem in report.problems[:PROBLEMS_SHOWN]:
        print(f"{name:<9} FAILED: {problem[:2000]}", flush=True)
    report.say(f"{time.monotonic() - begun:.0f} s")
    return report


def print_table(reports):
    for report in reports:
        got = "; ".join(report.got)
        if report.problems:
            got += f"; {len(report.problems)} problems: {report.problems[0][:300]}"
        print(f"\n{report.name:<9} {'ok' if report.ok else 'FAILED':<7} wanted: {report.wanted}")
        print(textwrap.indent(textwrap.fill(got, 90), " " * 10), flush=True)


def write_json(path, reports, options):
    rows = [{"row": report.name, "wanted": report.wanted, "got": report.got, "ok": report.ok,
             "problems": report.problems, **report.figures} for report in reports]
    text = json.dumps({"seed": options.seed, "full": options.full, "rows": rows}, indent=1)
    pathlib.Path(path).write_text(text + "\n", encoding="utf-8")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], prog="./dev mesh")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", action="append", choices=[name for name, *_ in ROWS])
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    if options.seed is not None:
        os.environ["SHOAL_SEED"] = str(options.seed)
    tests = HERE.parent
    sys.path[:0] = [str(HERE), str(tests / "integration"), str(tests / "chaos")]
    import rig  # these read the environment
    import rows
    import shoal_fixture

    options.seed = shoal_fixture.draw_seed()
    begun = time.monotonic()
    reports = []
    try:
        for row in ROWS:
            if not options.only or row[0] in options.only:
                reports.append(run_row(row, options, rig, rows))
    finally:
        print_table(reports)
        print(f"\n{time.monotonic() - begun:.0f} s; again: ./dev mesh --seed {options.seed}")
        if options.json:
            write_json(options.json, reports, options)
    return 0 if all(report.ok for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
