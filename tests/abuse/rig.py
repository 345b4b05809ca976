# SPDX-License-Identifier: Apache-2.0
"""Shared by the rows: the neighbour, the daemon's memory, times, and a row's report.

A limit is what is required, a figure what was measured; a row whose figures keep to its limits is
`ok`, else `over`.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import shoal_fixture  # noqa: E402

MIB_KIB = 1024
QUIET_SECONDS = 2
SAMPLE_SECONDS = 0.05
NEIGHBOUR_SECONDS = 60
MEMORY_SECONDS = 60  # within which it is to be returned


class Report:
    def __init__(self, row):
        self.row = row
        self.said = []
        self.figures = {}
        self.over = []
        self.skipped = ""

    def say(self, text, **figures):
        self.said.append(text)
        self.figures.update(figures)

    def limit(self, name, value, most, text=None):
        """A figure that may not be larger."""
        self.figures[name] = value
        self.said.append(text or f"{name} {value:.4g}")
        if value > most:
            self.over.append(f"{name} {value:.4g} > {most:g}")

    def must(self, condition, text):
        """Something that is so or not."""
        self.said.append(text if condition else f"NOT: {text}")
        if not condition:
            self.over.append(f"not so: {text}")

    @property
    def verdict(self):
        return "not run" if self.skipped else "over" if self.over else "ok"

    def calls(self, name, figures):
        """A neighbour's observations in one phase."""
        self.figures[f"neighbour_{name}"] = figures
        codes = "".join(f" {code}" for code in sorted(figures["failures"]))
        self.said.append(f"{name}: {figures['calls']} calls, {figures['failed']} failed{codes}, "
                         f"p50 {figures['p50_ms']:.1f}, p99 {figures['p99_ms']:.1f}, "
                         f"longest {figures['longest_ms']:.0f} ms "
                         f"(caller late by {figures['late_ms']:.1f})")


class Neighbour:
    """neighbour.py, from its first answer on. `figures` once the block is left."""

    def __init__(self, *arguments):
        self.arguments = [str(one) for one in arguments]
        self.figures = {}

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "neighbour.py"), *self.arguments], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line == "ready\n", f"the neighbour said {line!r}"
        self.phase("quiet")
        pause(QUIET_SECONDS)
        return self

    def phase(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()

    def __exit__(self, kind, *_):
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()
        if kind is None:
            self.figures = json.loads(self.process.stdout.read())
        else:
            self.process.kill()
        self.process.wait(NEIGHBOUR_SECONDS)
        self.process.stdout.close()


def infer_neighbour(shoald, model="echo", datatype="INT32"):
    return Neighbour("infer", shoald.target, model, datatype)


def pause(seconds):
    threading.Event().wait(seconds)


def until(seconds):
    """Numbers, until so many seconds are over."""
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        yield count
        count += 1


def seconds_until(condition, what, seconds=shoal_fixture.WAIT_SECONDS):
    began = time.monotonic()
    shoal_fixture.wait_until(condition, what, seconds)
    return time.monotonic() - began


class Memory:
    """Resident memory of a process: before, the most, and when it was given back."""

    def __init__(self, pid):
        self.pid = pid
        self.before_mib = self.now_mib()
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew

    def read(self, name):
        status = shoal_fixture.read_proc(self.pid, "status")
        return int(re.search(rf"{name}:\s+(\d+)", status).group(1)) / MIB_KIB

    def now_mib(self):
        return self.read("VmRSS")

    def peak_mib(self):
        return self.read("VmHWM")

    def wait_returned(self, above_mib):
        """Until no more than that is left above what there was before; seconds, or None if it
        stays."""
        began = time.monotonic()
        for _ in until(MEMORY_SECONDS):
            if self.now_mib() - self.before_mib <= above_mib:
                return time.monotonic() - began
            pause(SAMPLE_SECONDS)
        return None
