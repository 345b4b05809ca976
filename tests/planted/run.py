#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one bug after another into a copy of the tree and expects a named test to fail.

    run.py [NUMBER...] [--json FILE]      SHOAL_JOBS limits parallel builds

To add a bug: break the code, see the test fail, write `git diff` to NN-what-is-wrong.patch here,
with the next free number (tests/sim/planted, for the mesh core, shares the numbers), and put above
its first `---` one or two sentences on what is wrong, an empty line, and these fields:
  Fails: unit.shm_ring    the ctest name of the test that must fail
  Target: NAME...         targets to build; default: the test (if it is in C), all programs and
                          modelets, since tests start some
  Preset: release         or tsan; default: dev
  By: timeout             the test hangs instead of failing; no other timeout counts
The text of a hunk must be in its file exactly once; line numbers do not matter. A patch that does
not apply is an error: adapt it to the code, or delete it with the code it broke. Prefer a plausible
bug, and the fastest test that should detect it. Each named test also runs once without a bug. A
failed build or a test that does not run is an error, not a detection. The copy stays in
build/planted/src, so the next run compiles only changes.
"""

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COPY = os.path.join(ROOT, "build", "planted", "src")
MESH = os.path.join(ROOT, "tests", "sim", "planted")
BUGS_MIN = 43  # with those of the mesh core
PROGRAMS = ["src/all", "examples/all", "tests/modelets/all"]
FIELDS = {"Fails", "Target", "Preset", "By"}


class PlantError(Exception):
    """The bug could not be tried: neither caught nor missed."""


class Bug:
    """One patch file."""

    def __init__(self, path):
        self.file = os.path.basename(path)
        self.number, self.name = int(self.file[:2]), self.file[3:-len(".patch")]
        with open(path, encoding="utf-8") as file:
            head, mark, diff = file.read().partition("\n--- ")
        fields = dict(re.findall(r"^([A-Z]\w+): (.+)$", head, re.MULTILINE))
        if not mark or "Fails" not in fields or set(fields) - FIELDS:
            raise PlantError(f"{self.file}: needs a diff and Fails:, and has {sorted(fields)}")
        self.test, self.preset = fields["Fails"], fields.get("Preset", "dev")
        self.by_timeout = fields.get("By") == "timeout"
        self.targets = fields.get("Target", "").split() or targets_of(self.test)
        self.hunks = list(read_hunks(mark[1:] + diff))

    def changed_files(self):
        """File -> text with the bug."""
        changed = {}
        for name, old, new in self.hunks:
            if name not in changed:
                changed[name] = read(os.path.join(COPY, name))
            if changed[name].count(old) != 1:
                raise PlantError(f"{self.file} does not apply: {name} has this "
                                 f"{changed[name].count(old)} times, not once:\n{old}")
            changed[name] = changed[name].replace(old, new)
        return changed


def targets_of(test):
    """Besides the test all that it may start, or it would start programs without the bug."""
    kind, _, name = test.partition(".")
    if kind == "integration":
        return [*PROGRAMS, "tests/integration/all"]
    return [*PROGRAMS, f"test_{kind}_{name}"]


def read_hunks(diff):
    """(file, old text, new text) of each hunk, as whole lines."""
    name, old, new = None, [], []
    for line in diff.split("\n") + ["@@"]:
        if line.startswith(("--- ", "+++ ", "@@")):
            if old:
                yield name, "\n".join(old) + "\n", "\n".join(new) + "\n" if new else ""
            old, new = [], []
            if line.startswith("+++ "):
                name = line[4:].strip().removeprefix("b/")
        elif line[:1] in (" ", "-", "+"):
            if line[0] != "+":
                old.append(line[1:])
            if line[0] != "-":
                new.append(line[1:])


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    """With a new time, so that what was built of the former text is built again."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def same(path, copied):
    if os.path.islink(path) or os.path.islink(copied):
        return (os.path.islink(path) and os.path.islink(copied)
                and os.readlink(path) == os.readlink(copied))
    if not os.path.exists(copied) or os.stat(path).st_mode != os.stat(copied).st_mode:
        return False
    with open(path, "rb") as ours, open(copied, "rb") as theirs:
        return ours.read() == theirs.read()


def make_copy():
    """Makes COPY the same as the working tree; touches only what differs."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and os.path.lexists(os.path.join(ROOT, name))}
    for folder, folders, files in os.walk(COPY):
        if folder == COPY and "build" in folders:
            folders.remove("build")
        for file in files:
            if os.path.relpath(os.path.join(folder, file), COPY) not in wanted:
                os.remove(os.path.join(folder, file))
    for name in wanted:
        path, copied = os.path.join(ROOT, name), os.path.join(COPY, name)
        if not same(path, copied):
            os.makedirs(os.path.dirname(copied), exist_ok=True)
            if os.path.lexists(copied):
                os.remove(copied)
            shutil.copy(path, copied, follow_symlinks=False)  # the time is now


def run(words, log):
    """The exit code; what was printed is added to the log."""
    environment = dict(os.environ, CCACHE_BASEDIR=COPY, CCACHE_NOHASHDIR="1")
    with open(log, "ab") as file:
        return subprocess.run(words, cwd=COPY, env=environment, stdin=subprocess.DEVNULL,
                              stdout=file, stderr=subprocess.STDOUT, check=False).returncode


def build(bug, log):
    jobs = os.environ.get("SHOAL_JOBS") or str(os.cpu_count())
    if run(["cmake", "--build", f"build/{bug.preset}", "-j", jobs, "--target", *bug.targets],
           log) != 0:
        raise PlantError(f"{bug.file}: {' '.join(bug.targets)} does not build: {log}")


def run_test(bug, log):
    """ctest's name for the end of the test: Passed, Failed, Timeout or Exception."""
    name = bug.test + ("" if bug.preset == "dev" else f"@{bug.preset}")
    before = os.path.getsize(log)
    run(["ctest", "--test-dir", f"build/{bug.preset}", "--output-on-failure", "--no-tests=error",
         "-R", f"^{re.escape(name)}$"], log)
    with open(log, "rb") as file:
        file.seek(before)
        said = file.read().decode(errors="replace")
    end = re.search(rf"^1/1 Test +#\d+: {re.escape(name)} \.*(?: +|.*?\*\*\*)"
                    "(Passed|Failed|Timeout|Exception|Not Run|Skipped)", said, re.MULTILINE)
    if end is None or end.group(1) in ("Not Run", "Skipped"):
        raise PlantError(f"{bug.file}: {name} did not run: {log}")
    return end.group(1)


def configure(presets):
    for preset in sorted(presets):
        log = os.path.join(COPY, "build", f"{preset}.log")
        write(log, "")
        if run(["cmake", "--preset", preset], log) != 0:
            raise PlantError(f"configuring {preset} failed: {log}")


def try_sound(bug, ends):
    """A test must pass without a bug, or its failure would show nothing. `ends` keeps what came of
    those that were tried before."""
    key = (bug.test, bug.preset)
    log = os.path.join(COPY, "build", f"{bug.preset}.log")
    if key not in ends:
        build(bug, log)
        ends[key] = run_test(bug, log)
    if ends[key] != "Passed":
        raise PlantError(f"{bug.file}: {bug.test} without a bug: {ends[key]}: {log}")


def try_bug(bug):
    """(whether the test has found it, what ctest calls its end)."""
    log = os.path.join(COPY, "build", f"{bug.number}.log")
    write(log, "")
    sound = {}
    try:
        for name, text in bug.changed_files().items():
            sound[name] = read(os.path.join(COPY, name))
            write(os.path.join(COPY, name), text)
        build(bug, log)
        end = run_test(bug, log)
    finally:
        for name, text in sound.items():
            write(os.path.join(COPY, name), text)
    return end == "Timeout" if bug.by_timeout else end not in ("Passed", "Timeout"), end


def mesh_rows():
    """sim.planted tries these."""
    return [{"number": int(os.path.basename(path)[:2]),
             "name": os.path.basename(path)[3:-len(".patch")], "test": "sim.planted",
             "result": "by sim.planted"} for path in glob.glob(os.path.join(MESH, "*.patch"))]


def print_row(row):
    seconds = f"{row['seconds']:6.1f} s" if "seconds" in row else ""
    line = f"{row['number']:3} {row['name']:44} {row['test']:30} {row['result']:14} {seconds}"
    print(line.rstrip(), flush=True)


def row_of(bug, ends):
    row = {"number": bug.number, "name": bug.name, "test": bug.test, "preset": bug.preset}
    began = time.monotonic()
    try:
        try_sound(bug, ends)
        began = time.monotonic()
        caught, row["end"] = try_bug(bug)
        row["result"] = "caught" if caught else "NOT CAUGHT"
    except PlantError as error:
        print(error, file=sys.stderr)
        row["result"] = "ERROR"
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("numbers", metavar="NUMBER", type=int, nargs="*")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.makedirs(os.path.join(COPY, "build"), exist_ok=True)
    make_copy()
    bugs = [Bug(path) for path in sorted(glob.glob(os.path.join(HERE, "*.patch")))]
    rows = sorted(mesh_rows(), key=lambda row: row["number"])
    numbers = [row["number"] for row in rows] + [bug.number for bug in bugs]
    if len(set(numbers)) != len(numbers) or len(numbers) < BUGS_MIN:
        raise PlantError(f"{len(numbers)} planted bugs, {len(set(numbers))} numbers: "
                         f"at least {BUGS_MIN} are wanted, each with its own")
    if options.numbers:
        bugs, rows = [bug for bug in bugs if bug.number in options.numbers], []
        if len(bugs) != len(set(options.numbers)):
            raise PlantError("not all of these numbers are here")
    for row in rows:
        print_row(row)
    configure({bug.preset for bug in bugs})
    ends = {}
    for bug in bugs:
        rows.append(row_of(bug, ends))
        print_row(rows[-1])
    missed = [row for row in rows if row["result"] in ("NOT CAUGHT", "ERROR")]
    print(f"{len(rows)} planted bugs, {len(missed)} of them not caught")
    if options.json:
        write(options.json, json.dumps(rows, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PlantError as error:
        sys.exit(f"planted: {error}")
