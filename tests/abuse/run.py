#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks a node in every way that it must withstand, and prints the effect on its other callers.

    ./dev abuse [--only ROW]... [--seconds N] [--json FILE] [--preset release|dev]

Each row starts its own daemon and a neighbour that calls it from another process, first in quiet,
then during one kind of attack (rows_callers.py, rows_streams.py: by callers; rows_workers.py: by
modelets and resource limits), and compares the measurements with what is required. --seconds:
duration of attacks that repeat (default 10). Figures depend on the machine; the neighbour's own
lateness shows whether it was busy. Short forms, judged by counts, run in `./dev test`.

Exit code: 0 when every row keeps to its limits, 1 when one is over, 2 for a wrong command line.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from shoal_table import print_table, sanitizers, take_environment  # noqa: E402

SECONDS_DEFAULT = 10
COLUMNS = (("row", 16), ("attack", 34), ("observed", 62), ("limit", 30), ("verdict", 7))

# Name, function, what is done, what is required.
ROWS = (
    ("connections", "callers.connections",
     "2,000 connections of one machine to gRPC, 1,024 descriptors",
     "another machine is served meanwhile, this one <= 1 s after they are closed"),
    ("descriptors", "callers.descriptors",
     "no descriptor for a connection (EMFILE, ENFILE), no memory (ENOMEM)",
     "not ready, connected callers are served; accepts again <= 1 s after relief"),
    ("bombs", "callers.bombs", "messages of 1 MiB that inflate to 1 GiB, gzip and deflate, in a row",
     "refused; memory + at most 64 MiB; no call fails"),
    ("window", "callers.window", "window 0: `slots` requests whose answers are never read",
     "disconnected <= 12 s (`send_timeout_ms` is 10 s); others are refused for at most 2 s in all"),
    ("idle", "callers.idle", "1,024 idle sockets on each of http, metrics, probes",
     "/live: no failure, p99 <= 100 ms"),
    ("settings", "callers.settings",
     "streams without SETTINGS ACK, 100,000 at a time, connecting again when cut",
     "others: no failure, p99 <= 100 ms; memory back within 60 s"),
    ("resets", "callers.resets", "rapid reset, 100,000 streams at a time, connecting again when cut",
     "others: no failure, p99 <= 100 ms; memory back within 60 s"),
    ("half-sent", "callers.half_sent", "messages half sent, 50,000 at a time, connecting again when cut",
     "others: no failure, p99 <= 100 ms; memory back within 60 s"),
    ("json", "callers.json_bodies", "bodies of 14 MB of JSON in a loop",
     "/live: no failure, p99 <= 100 ms"),
    ("never-fits", "callers.never_fits", "requests that the arena can never hold, gRPC and REST",
     "INVALID_ARGUMENT and 413 with both sizes, no hint to retry"),
    ("parameters", "callers.parameters", "`classification`, `shared_memory_region` and `timeout` over gRPC",
     "refused by name, or honoured"),
    ("management", "callers.management", "callers register, unregister and delete models of a mesh",
     "a separate address, and permissions"),
    ("unread-answers", "streams.answers", "60 streams of 100 kB messages whose callers do not read",
     "256 KiB of each on the node called, and on the one with the runtime"),
    ("unread-requests", "streams.requests", "60 streams of 100 kB messages that a runtime does not read",
     "256 KiB of each on the node called, and on the one with the runtime"),
    ("plain-http", "callers.plain_http", "a plain `http` beside `client_ca`",
     "does not start without `plain: yes`"),
    ("log", "workers.log", "nobody reads the log while a modelet floods stderr",
     "calls of others do not fail; dead workers replaced <= 5 s; SIGTERM ends it <= 15 s"),
    ("log-flood", "workers.log_flood", "a modelet floods stderr",
     "the log grows by `worker_log_kib_per_s` and a burst; no call fails"),
    ("poison", "workers.poison", "two poison requests a second of one caller",
     "99 % of the other callers' requests succeed"),
    ("scarcity", "workers.scarcity", "workers die while there are no descriptors",
     "no quarantine; serves <= 1 s after relief"),
    ("hangup", "workers.hangup", "SIGHUP three times during a reload", "one more reload follows"),
    ("stopped", "workers.stopped", "a worker is stopped (SIGSTOP); another hangs outside a run",
     "healed <= 10 s, `run_timeout_ms: 500`"),
    ("library", "workers.library", "gRPC's threads stand still, then SIGTERM",
     "ends within `drain_timeout_ms` (10 s at least) and 5 s, exit code 3"),
    ("secrets", "workers.secrets", "a modelet reads its environment", "nothing of shoald's secrets"),
    ("limits", "workers.limits", "started with --as=100M, --data=20M, --nofile=16",
     "exit code 2 and a message"),
    ("cgroup", "workers.cgroup", "a cgroup with less memory than the arenas",
     "they shrink to half of it; workers have oom_score_adj 500"),
    ("stall", "workers.stall", "shoald and its worker stop for 5 s",
     "none of 100 calls after it is refused"),
    ("zeroed-region", "workers.zeroed_region", "a modelet zeroes its region in `open`, on reload",
     "the reload fails, no call does"),
    ("preload", "workers.preload", "LD_PRELOAD=libasan.so, SIGTERM twice, 12 times",
     "ends each time, <= 15 s"),
    ("grandchildren", "workers.grandchildren", "a modelet leaves 100 processes behind and is killed",
     "all are gone <= 2 s later"),
)


class Run:
    """A row's arguments: for how long, whether the build is as fast as what is installed, a
    report."""

    def __init__(self, options, report):
        self.seconds = options.seconds
        self.sanitized = options.sanitized
        self.report = report


def run_row(row, options):
    import rig
    import shoal_attacks

    name, function, attack, _ = row
    report = rig.Report(row)
    print(f"{name:<16} begins: {attack}", flush=True)
    try:
        module, _, attribute = function.partition(".")
        getattr(__import__(f"rows_{module}"), attribute)(Run(options, report))
    except shoal_attacks.NotPossible as why:
        report.skipped = str(why)
    except Exception as error:  # pylint: disable=broad-except
        report.over.append(f"{type(error).__name__}: {error}"[:2000])
        traceback.print_exc()
    for line in report.over:
        print(f"{name:<16} over: {line}", flush=True)
    return report


def cells(report):
    name, _, attack, limit = report.row
    observed = report.skipped or "; ".join(report.said)
    return name, attack, observed, limit, report.verdict


def write_json(path, reports, options):
    rows = [{"row": report.row[0], "attack": report.row[2], "limit": report.row[3],
             "observed": report.skipped or report.said, "verdict": report.verdict,
             "over": report.over, "figures": report.figures} for report in reports]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"build": str(options.build), "sanitizers": options.sanitized,
                   "seconds": options.seconds, "rows": rows}, file, indent=1)


def parse(arguments):
    names = [row[0] for row in ROWS]
    parser = argparse.ArgumentParser(
        prog="./dev abuse", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__, epilog="rows: " + ", ".join(names))
    parser.add_argument("--build", default=os.environ.get("SHOAL_BUILD_DIR"), help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", metavar="ROW", choices=names)
    parser.add_argument("--seconds", type=float, default=SECONDS_DEFAULT, metavar="N")
    parser.add_argument("--json", metavar="FILE", help="also write the figures")
    options = parser.parse_args(arguments)
    if options.build is None:
        parser.error("--build, or SHOAL_BUILD_DIR, is missing")
    options.rows = [row for row in ROWS if not options.only or row[0] in options.only]
    return options


def main():
    options = parse(sys.argv[1:])
    take_environment(options.build)
    options.sanitized = sanitizers(options.build)
    sys.path.insert(0, str(HERE))
    reports = []
    began = time.monotonic()
    try:
        for row in options.rows:
            reports.append(run_row(row, options))
    finally:
        print_table(COLUMNS, map(cells, reports))
        print(f"{options.build}: {time.monotonic() - began:.0f} s")
        if options.json:
            write_json(options.json, reports, options)
    return 0 if all(report.verdict != "over" for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
