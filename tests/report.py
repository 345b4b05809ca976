#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the failures of a ctest run, the most basic first, and the slowest tests.

    report.py RESULTS.xml [--slowest N] [--json FILE]     RESULTS.xml: from ctest --output-junit

Tests run in parallel, so the order is made here: a failure in the sources precedes one in a unit
test, which precedes one between nodes. Each is printed with its output, the command that runs it
again, and its seed if it printed one.

Exit code: 0 when no test failed, 1 otherwise, 2 when the file holds no test.
"""

import argparse
import json
import re
import sys
import xml.etree.ElementTree

KINDS = ("tidy", "unit", "modelets", "explore", "fuzz", "stress", "store", "etcd", "sim",
         "integration", "chaos", "mesh", "install")
OUTPUT_LINES_SHOWN = 200


def split(name):
    """`integration.60_cancellation@release` is ("integration", "60_cancellation", "release")."""
    kind, _, rest = name.partition(".")
    rest, _, preset = rest.partition("@")
    return kind, rest, preset or "dev"


def basic_first(test):
    kind, rest, preset = split(test["name"])
    return (KINDS.index(kind) if kind in KINDS else len(KINDS)), rest, preset


def read(path):
    tests = []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        tests.append({"name": case.get("name"), "seconds": float(case.get("time", 0)),
                      "status": case.get("status"), "output": case.findtext("system-out") or ""})
    return tests


def again(test):
    """The command that runs a failed test once more."""
    name = test["name"]
    preset = split(name)[2]
    seed = re.search(r"SHOAL_SEED=[0-9a-fx]+", test["output"])
    words = [seed.group(0)] if seed else []
    words.append("./dev test")
    if preset != "dev":
        words.append(preset)
    return " ".join(words) + f" -R '^{re.escape(name)}$'"


def print_failures(failures):
    for test in failures:
        lines = test["output"].rstrip().split("\n")
        print(f"\n==== {test['name']} FAILED after {test['seconds']:.1f} s")
        if len(lines) > OUTPUT_LINES_SHOWN:
            print(f"[{len(lines) - OUTPUT_LINES_SHOWN} lines left out]")
        print("\n".join(lines[-OUTPUT_LINES_SHOWN:]))
    if failures:
        print("\nAgain:")
    for test in failures:
        print(f"  {again(test)}")


def print_times(tests, slowest):
    total = sum(test["seconds"] for test in tests)
    by_kind = {}
    for test in tests:
        kind = split(test["name"])
        key = f"{kind[0]}@{kind[2]}"
        count, seconds = by_kind.get(key, (0, 0))
        by_kind[key] = (count + 1, seconds + test["seconds"])
    print(f"\n{len(tests)} tests, {total:.0f} s one after another; the slowest:")
    for test in sorted(tests, key=lambda test: -test["seconds"])[:slowest]:
        print(f"  {test['seconds']:7.1f} s  {test['name']}")
    print("by kind and preset:")
    for key, (count, seconds) in sorted(by_kind.items(), key=lambda item: -item[1][1]):
        print(f"  {seconds:7.1f} s  {count:4} {key}")


def main():
    parser = argparse.ArgumentParser(description="Print the results of a ctest run")
    parser.add_argument("results", help="file written by ctest --output-junit")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="also the N slowest tests")
    parser.add_argument("--json", metavar="FILE", help="seconds and status of every test")
    options = parser.parse_args()
    tests = read(options.results)
    if not tests:
        print(f"{options.results}: no test in it", file=sys.stderr)
        return 2
    failures = sorted((test for test in tests if test["status"] == "fail"), key=basic_first)
    print_failures(failures)
    if options.slowest:
        print_times(tests, options.slowest)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({test["name"]: {"seconds": test["seconds"], "status": test["status"]}
                       for test in sorted(tests, key=basic_first)}, file, indent=1)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
