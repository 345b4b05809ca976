#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a request of the digits, process by process and library by library,
with valgrind's callgrind: with batches and without. Without, a count is the same on a busy machine
as on a quiet one; with batches it varies by some percent, by how the calls meet in batches.

    ./dev bench --instructions [--requests N] [--outstanding N] [--json FILE] [--against FILE]

Each process is counted in a run of its own, the others at full speed beside it: the client (the
difference of a long and a short run, so its start is not in it), the coordinator, the workers of
all stages. Instructions in the kernel are not seen: for those see the CPU time in `./dev bench
--only digits`. --against FILE compares with another tree's --json, of the same --requests and
--outstanding: this tree's count ÷ the other's of each row, and goals for what repeats, without
batches: the node without its library XGBoost, and the coordinator. The exit code is 0 when
everything was counted, 1 when a program failed, 2 for a wrong command line or FILE, or without
valgrind; a missed goal does not change it.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from contenders import MODEL, BATCH, Digits, Messages, XGBoost, digit_rows, infer_request, PIXELS
from contenders import process_name
from figures import VERDICTS, Goal, judge, quotient, wanted
from programs import HERE, RUN_DEADLINE_S, Failed, Missing, Setting, run_json

ROOT = HERE.parent.parent
WARMUP = 2000
# Longer than a worker under valgrind needs to fill a batch.
WAIT_MS = 100
MODES = {"off": None, "on": f"batch_wait: fixed, batch_wait_ms: {WAIT_MS}",
         "adaptive": f"batch_wait: adaptive, batch_wait_ms: {WAIT_MS}"}
HEADS = ("not batched", f"batches of {BATCH}", "adaptive wait")
ROLES = ("client", "coordinator", "normalize", "classify", "label")
OPTIONS = ("requests", "outstanding")  # that two counts must have in common
MORE_MAX = 1.03  # of another tree's instructions
CALLGRIND = ["valgrind", "--tool=callgrind", "--quiet"]
PATIENCE = 5  # times the bench's own deadline

OBJECT = re.compile(r"(c?)ob=\((\d+)\)(?: (.*))?")


def by_object(text):
    """{file name: instructions that were executed in it} of what callgrind wrote."""
    names, sums, current, called = {}, {}, None, False
    for line in text.splitlines():
        found = OBJECT.match(line)
        if found:
            if found[3]:
                names[found[2]] = Path(found[3]).name
            if not found[1]:
                current = names[found[2]]
        elif line.startswith("calls="):
            called = True  # the next line is what the called ones used
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if not called:
                sums[current] = sums.get(current, 0) + int(line.split()[-1])
            called = False
    return sums


OURS = ("shoal", "libnormalize", "liblabel", "libxgboost_modelet", "libprotobuf-c")
# Whose the C and C++ libraries' instructions are, the allocator's among them: counted for the
# caller by far the most there.
REST = {"client": "gRPC", "coordinator": "gRPC", "normalize": "Shoal", "classify": "XGBoost",
        "label": "Shoal"}


def parts(sums, role, requests):
    """{part: instructions per request}."""
    of = {}
    for name, count in sums.items():
        part = "Shoal" if name.startswith(OURS) else REST[role]
        of[part] = of.get(part, 0) + count / requests
    return of


class Counted(Digits):
    """The digits with one of its processes under callgrind: "coordinator", "workers" or, for
    "client", none."""

    def __init__(self, setting, name, wait, messages, what):
        super().__init__(setting, name, wait, messages)
        self.what = what
        self.folder = setting.directory
        text = Path(self.config).read_text().replace(", cpus:", ", sandbox_allow: [all], cpus:")
        Path(self.config).write_text(text.replace(", workers:", ", sandbox_allow: [all], workers:"))

    def output(self, pid="%p"):
        return f"--callgrind-out-file={self.folder}/{self.name}.{pid}"

    def command(self):
        shoald, *rest = super().command()
        counted = [*CALLGRIND, "--instr-atstart=no", self.output()]
        if self.what == "workers":
            worker = Path(shoald).with_name("shoal-worker")
            wrapper = Path(self.setting.write(f"{self.name}.sh", (
                f'#!/bin/sh\nexec {" ".join(counted)} {worker} "$@"\n').encode()))
            wrapper.chmod(0o755)
            return [shoald, "--worker", str(wrapper), *rest]
        return [*counted, shoald, *rest] if self.what == "coordinator" else [shoald, *rest]

    def environment(self):
        if self.what != "coordinator":
            return None
        shim = str(self.folder / "pidfd.so")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o", shim,
                        str(HERE / "callgrind" / "pidfd.c"), "-ldl", "-pthread"], check=True)
        return {"LD_PRELOAD": shim}

    def load(self, requests, outstanding, before=()):
        command = [*before, *self.client.command, "--warmup", "0", "--requests", str(requests),
                   "--outstanding", str(outstanding)]
        run_json(command, patience=PATIENCE)

    def count(self, requests, outstanding):
        """{role: {part: instructions per request}}."""
        self.load(WARMUP, outstanding)
        if self.what == "client":
            return {"client": self.count_client(requests, outstanding)}
        pids = self.pids()[:1] if self.what == "coordinator" else self.pids()[1:]
        for pid in pids:
            control("on", pid)
        self.load(requests, outstanding)
        for pid in pids:
            control("off", pid)
        roles = {pid: role_of(process_name(pid)) for pid in pids}
        self.server.stop()
        counted = {}
        for pid in pids:
            text = (self.folder / f"{self.name}.{pid}").read_text()
            of = counted.setdefault(roles[pid], {})
            for part, count in parts(by_object(text), roles[pid], requests).items():
                of[part] = of.get(part, 0) + count
        return counted

    def count_client(self, requests, outstanding):
        sums = []
        for count in (requests // 4, requests):
            self.load(count, outstanding, [*CALLGRIND, self.output(count)])
            sums.append(by_object((self.folder / f"{self.name}.{count}").read_text()))
        more = {name: sums[1][name] - sums[0].get(name, 0) for name in sums[1]}
        return parts(more, "client", requests - requests // 4)


def role_of(name):
    for stage in ("normalize", "classify", "label"):
        if stage in name:
            return stage
    return "coordinator"


def control(state, pid):
    """callgrind_control says nothing of a failure but in words."""
    done = subprocess.run(["callgrind_control", "-i", state, str(pid)], capture_output=True,
                          text=True, timeout=RUN_DEADLINE_S, check=False)
    if "OK" not in done.stdout:
        raise Failed(f"callgrind_control -i {state} {pid}: {done.stdout}{done.stderr}")


def count_all(setting, requests, outstanding):
    """{mode: {role: {part: instructions per request}}}."""
    direct = XGBoost(setting)
    setting.write(MODEL, Path(direct.model).read_bytes())
    messages = Messages([infer_request("digits", "image", [1, PIXELS], row)
                         for row in digit_rows()], direct.answers())
    counted = {}
    for mode, wait in MODES.items():
        counted[mode] = {}
        for what in ("client", "coordinator", "workers"):
            print(f"  {mode}: {what}", file=sys.stderr, flush=True)
            digits = Counted(setting, f"{mode}_{what}", wait, messages, what)
            try:
                digits.start()
                counted[mode].update(digits.count(requests, outstanding))
            finally:
                if digits.server:
                    digits.stop()
    return counted


# ---- the report


def total(roles, without=(), where=None):
    """The instructions of these roles, those of some parts left out."""
    return sum(count for role, of in roles.items() if where is None or role in where
               for part, count in of.items() if part not in without)


def table(counted):
    rows = []
    for role, of in counted["off"].items():
        for part in sorted(set(of).union(*(roles[role] for roles in counted.values()))):
            rows.append((f"{role}: {part}",
                         *(roles[role].get(part, 0) for roles in counted.values())))
    return rows + [("all", *map(total, counted.values()))]


def what_if(counted):
    """(text, off ÷ on) for each part that might cost nothing."""
    off, on = counted["off"], counted["on"]
    cpu1 = [role for role in off if role != "coordinator"]
    return [
        ("as it is", total(off) / total(on)),
        ("the CPU of client and workers, pinned", total(off, where=cpu1) / total(on, where=cpu1)),
        ("if Shoal cost nothing with batches", total(off) / total(on, ["Shoal"])),
        ("if Shoal cost nothing", total(off, ["Shoal"]) / total(on, ["Shoal"])),
        ("if the client cost nothing", (total(off) - total(off, where=["client"]))
         / (total(on) - total(on, where=["client"]))),
        ("if gRPC cost nothing, client and server", total(off, ["gRPC"]) / total(on, ["gRPC"])),
        ("XGBoost alone", total(off, ["Shoal"], ["classify"]) / total(on, ["Shoal"], ["classify"])),
    ]


def print_counts(counted):
    print(f"{'instructions per request':44}" + "".join(f"{head:>15}" for head in HEADS))
    for name, *counts in table(counted):
        print(f"{name:44}" + "".join(f"{count:15,.0f}" for count in counts))
    print("\nnot batched ÷ batched")
    for name, ratio in what_if(counted):
        print(f"  {name:42}{ratio:15.2f}")


# ---- another tree's counts


class Unusable(Exception):
    """The file of --against holds no counts to compare with."""


def read_other(path, options):
    """Another tree's counts from its --json. A tree that does not write its options there is
    trusted to have had the same."""
    try:
        other = json.loads(Path(path).read_text())
        counted = {mode: {role: dict(other[mode][role]) for role in ROLES} for mode in MODES}
        had = dict(other.get("options", {}))
        table(counted)  # adds the counts up, which must be numbers
    except (OSError, ValueError) as error:
        raise Unusable(f"--against {path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise Unusable(f"--against {path}: not from --instructions --json: {error!r}") from error
    for name in OPTIONS:
        if had.get(name, getattr(options, name)) != getattr(options, name):
            raise Unusable(f"--against {path}: counted with --{name} {had[name]}, this run has "
                           f"{getattr(options, name)}: give both the same")
    return counted


def growth(counted, other):
    """The rows of table(), as ratios of these trees; None: a part that the other lacks."""
    others = {name: counts for name, *counts in table(other)}
    return [(name, *(quotient(*pair) for pair in zip(counts, others.get(name, [0] * len(counts)))))
            for name, *counts in table(counted)]


def growth_of(roles):
    """Not batched, and of what is not XGBoost's."""
    return lambda trees: quotient(*(total(trees[tree]["off"], ["XGBoost"], roles)
                                    for tree in ("this", "other")))


GOALS = [Goal(name, f"{name}, not batched: this tree ÷ the other: instructions of a request",
              growth_of(roles), "most", MORE_MAX)
         for name, roles in (("node without XGBoost", ROLES[1:]), ("coordinator", ROLES[1:2]))]


def print_growth(counted, other):
    print(f"\n{'this tree ÷ the other':44}" + "".join(f"{head:>15}" for head in HEADS))
    for name, *ratios in growth(counted, other):
        texts = ["–" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        print(f"{name:44}" + "".join(f"{text:>15}" for text in texts))
    print(f"\n{'goal':84}{'wanted':>8}")
    for goal in judge({"free": {"this": counted, "other": other}}, GOALS):
        of = goal["placements"]["free"]
        print(f"{goal['text']:84}{wanted(goal):>8}   {of['value']:.3f}{VERDICTS[of['met']]}")


# ---- command line


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench --instructions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--requests", type=int, default=12000, help="of each count, default 12000")
    parser.add_argument("--outstanding", type=int, default=128, help="default 128")
    parser.add_argument("--json", metavar="FILE", help="write the counts")
    parser.add_argument("--against", metavar="FILE",
                        help="compare with the counts in this file, of another tree's --json")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if shutil.which("callgrind_control") is None:
        print("valgrind is not there: apt-get install valgrind", file=sys.stderr)
        return 2
    try:
        other = read_other(options.against, options) if options.against else None
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        try:
            counted = count_all(Setting(options.build, directory, "free"), options.requests,
                                options.outstanding)
        except (Failed, Missing) as failure:
            print(failure, file=sys.stderr)
            return 1
    print_counts(counted)
    if other:
        print_growth(counted, other)
    if options.json:
        of = {name: getattr(options, name) for name in OPTIONS}
        Path(options.json).write_text(json.dumps({"options": of, **counted}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
