#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Injects faults into a running service under load, and prints the results as a table.

    ./dev chaos [--seconds N | --full] [--seed S] [--only ROW]... [--json FILE] [--preset PRESET]

Each row starts its own daemon, loads it with real digits whose every answer is checked bit by bit
(digits_load.c), and injects one kind of fault. --seconds is divided among the rows (default 300),
--full uses the full sizes (ROWS). The seed, which is printed first, determines victims,
moments and lengths, as far as processes allow (DESIGN.md).

Exit code: 0 when every row is ok, 1 when one has FAILED, 2 for a wrong command line.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from shoal_table import OWN_VARIABLES, print_table, sanitizers, take_environment  # noqa: E402

SECONDS_DEFAULT = 300
SANITIZED_SECONDS = 120
PROBLEMS_SHOWN = 10
REPORT_LINES_SHOWN = 60
PROBLEM_CHARACTERS = 2000
COLUMNS = (("row", 12), ("wanted", 34), ("got", 62), ("", 6))


@dataclasses.dataclass(frozen=True)
class Row:
    """`full`: how much --full does; `share`: of --seconds."""
    name: str
    function: str  # module.function
    wanted: str
    full: dict
    share: float


NOTHING_LOST = "0 wrong, 0 unanswered, 0 leaked slots or blocks"
ROWS = (
    Row("kills", "rows_workers.kills", f"{NOTHING_LOST}; failed only as the attempts rule says",
        {"count": 10000}, 0.25),
    Row("python", "rows_workers.python_kills", f"{NOTHING_LOST}; failed only as the attempts rule says",
        {"count": 10000}, 0.25),
    Row("streams", "rows_streams.streams",
        "every piece once, in order; broken off only with the number that came",
        {"count": 10000}, 0.15),
    Row("stops", "rows_workers.stops", f"{NOTHING_LOST}; 0 failed", {"count": 1000}, 0.1),
    Row("silences", "rows_workers.silences", f"{NOTHING_LOST}; none stays stopped",
        {"count": 100}, 0.05),
    Row("hostile", "rows_hostile.hostile", "coordinator alive; the other pipeline: 0 errors",
        {"seconds": 600}, 0.15),
    Row("reloads", "rows_workers.reloads", "0 failed requests", {"count": 1000}, 0.1),
    Row("bad-item", "rows_items.bad_item", "63 of 64 succeed, each time", {"count": 1000}, 0.05),
    Row("cancels", "rows_items.cancels", "no slot lost; the share that was still run",
        {"seconds": 120}, 0.1),
    Row("overload", "rows_overload.overload",
        "goodput >= 90 % of peak; refusals p99 <= 5 ms; recovered within 1 s", {"seconds": 180}, 0.15),
    Row("client_regions", "rows_client_regions.client_regions",
        f"{NOTHING_LOST}, for local clients too; nothing of dead clients is kept", {"seconds": 300}, 0.1),
    Row("coordinator", "rows_node.coordinator",
        "no process, no memory, no file that stops the next start", {"count": 200}, 0.1),
)

KILLS = "kills of workers"
UNITS = {"kills": KILLS, "python": KILLS, "streams": KILLS, "stops": "stops of workers",
         "silences": "stops for good", "reloads": "reloads", "bad-item": "batches",
         "coordinator": "kills of the daemon"}


class Run:
    """The rows' arguments: daemons and loads, each with a folder, a seed and a log that is kept."""

    def __init__(self, rig, seed, build):
        self.rig = rig  # imported once the environment is known
        self.seed = seed
        self.build = pathlib.Path(build)
        self.logs = self.build / "chaos" / "log"
        self.sanitized = sanitizers(build)
        self.reports = []  # what sanitizers and assertions said
        self.row = ""

    def begin(self, row):
        self.row = row.name
        self.begun = set()  # logs of this row
        self.draw = random.Random(f"{self.seed} {row.name}")
        return self.draw

    def node(self, *pipelines, **keys):
        folder = tempfile.mkdtemp(prefix=f"shoal-chaos-{self.row}.")
        return self.rig.Node(self, folder, *pipelines, message_mib=1, **keys)

    def load(self, shoald, **options):
        return self.rig.Load(self, shoald.target, self.draw.randrange(1 << 32), **options)

    def keep_log(self, lines, name="shoald"):
        """Appends to the row's log, and looks for what nobody may say."""
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"{self.row}.{name}.log"
        with path.open("a" if path in self.begun else "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        self.begun.add(path)
        found = self.rig.sanitizer_reports(lines)
        self.reports += [f"{path}: {line}" for line in found]
        if found:
            first = lines.index(found[0])
            print(f"--- {path}, from the first report on:", flush=True)
            print("\n".join(lines[first:first + REPORT_LINES_SHOWN]), flush=True)
        return found


def run_row(run, row, options):
    """Its report; an error on the way is a problem of the row, not of the run."""
    report = run.rig.Report(row.name, row.wanted)
    amount = row.full if options.full else {"seconds": options.seconds * row.share / options.shares}
    budget = run.rig.Budget(**amount)
    module, function = row.function.split(".")
    draw = run.begin(row)
    print(f"{row.name:<12} begins: {amount}", flush=True)
    try:
        getattr(__import__(module), function)(run, report, budget, draw)
    except AssertionError as error:  # of the fixture's: something did not happen, or had to hold
        report.problems.append(str(error))
    except Exception as error:
        report.problems.append(f"{type(error).__name__}: {error}")
        traceback.print_exc()
    for problem in report.problems[:PROBLEMS_SHOWN]:
        print(f"{row.name:<12} FAILED: {problem[:PROBLEM_CHARACTERS]}", flush=True)
    return report


def run_sanitized(build, options):
    """All of it again, shortly, with another build; returns what it wrote."""
    arguments = ["--build", build, "--seconds", str(SANITIZED_SECONDS), "--seed", str(options.seed)]
    for row in options.rows:
        arguments += ["--only", row.name]
    inherited = {name: value for name, value in os.environ.items()
                 if not name.endswith("SAN_OPTIONS") and name not in OWN_VARIABLES}
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        code = subprocess.run([sys.executable, __file__, *arguments, "--json", file.name],
                              env=inherited).returncode
        return code, json.load(file)


def sanitizer_report(run, options):
    """The last row: what the sanitizers had to say in all the others."""
    report = run.rig.Report("sanitizers", "ASan, UBSan and TSan builds of all of it: silent")
    for line in run.reports:
        report.expect(False, line)
    if run.sanitized:
        report.say(f"{run.sanitized}: {len(run.reports)} reports", reports=run.reports)
    for build in options.sanitized:
        code, found = run_sanitized(build, options)
        last = found["rows"][-1]
        report.say("; ".join(last["got"]))
        report.problems += last["problems"]
        report.expect(code == 0, f"{build}: a row FAILED, see above")
    if not run.sanitized and not options.sanitized:
        report.say("none in this build: --preset dev, --preset tsan, or --full")
    return report


def cells(report):
    got = "; ".join(report.got)
    if report.problems:
        got += f"; {len(report.problems)} problems: {report.problems[0][:300]}"
    return report.name, report.wanted, got, "ok" if report.ok else "FAILED"


def write_json(path, run, reports, options):
    rows = [{"row": report.name, "wanted": report.wanted, "got": report.got, "ok": report.ok,
             "problems": report.problems, **report.figures} for report in reports]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"seed": run.seed, "build": str(run.build), "full": options.full, "rows": rows},
                  file, indent=1)


def help_end():
    sizes = [f"  {row.name:<16}{amount:>6,} {UNITS.get(row.name, what)}" for row in ROWS
             for what, amount in row.full.items()]
    return "\n".join((
        "Sizes of --full:", *sizes, "",
        "    ./dev chaos --full --only python --only streams",
        "                                 10,000 kills of each, then both shortly with the sanitizers"))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], prog="./dev chaos", epilog=help_end(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("SHOAL_BUILD_DIR"), help="the build folder")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--seconds", type=float, default=SECONDS_DEFAULT,
                        help=f"divided among the rows, default {SECONDS_DEFAULT}")
    amount.add_argument("--full", action="store_true", help="the sizes below, however long they take")
    parser.add_argument("--seed", type=int, help="draws the same victims, moments and lengths")
    parser.add_argument("--only", action="append", choices=[row.name for row in ROWS],
                        help="only this row; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write all results")
    parser.add_argument("--sanitized", metavar="BUILD", action="append", default=[],
                        help="then repeat briefly with this build")
    options = parser.parse_args(arguments)
    if options.build is None:
        parser.error("--build, or SHOAL_BUILD_DIR, is missing")
    options.rows = [row for row in ROWS if not options.only or row.name in options.only]
    options.shares = sum(row.share for row in options.rows)
    return options


def main():
    options = parse(sys.argv[1:])
    take_environment(options.build)
    if options.seed is not None:
        os.environ["SHOAL_SEED"] = str(options.seed)
    sys.path.insert(0, str(HERE))
    import rig  # reads the environment
    import shoal_fixture

    options.seed = shoal_fixture.draw_seed()
    run = Run(rig, options.seed, os.environ["SHOAL_BUILD_DIR"])
    reports = []
    began = time.monotonic()
    try:
        for row in options.rows:
            reports.append(run_row(run, row, options))
    finally:
        reports.append(sanitizer_report(run, options))
        print_table(COLUMNS, map(cells, reports))
        print(f"{time.monotonic() - began:.0f} s; again: ./dev chaos --seed {run.seed}")
        if options.json:
            write_json(options.json, run, reports, options)
    return 0 if all(report.ok for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
