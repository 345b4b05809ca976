# SPDX-License-Identifier: Apache-2.0
"""Shared by the rows of the chaos run: the daemon, the load on it, and how a row is judged.

Built on tests/integration/shoal_fixture.py. A `Node` is its `Shoald`, which also follows the log as
it is written: the workers alive and since when, how long a successor took, how long a reclaim. A
`Load` is the program digits_load. A `Report` collects what a row found; every `expect` that does
not hold is a problem, and a row with a problem has FAILED.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from shoal_fixture import (BUILD, EXAMPLES, SANITIZER, SOURCE, Shoald, node,  # noqa: E402
                           pipeline, read_proc, stage, wait_until)

DIGITS_DATA = SOURCE / "examples" / "digits" / "data" / "digits.csv"
PROGRESS_SECONDS = 5
# As in src/coordinator/workers/worker_pools.h: a worker that dies more often than this in a row,
# each time before it was ready for so long, is replaced after a pause, and would keep the number of
# kills low.
QUICK_DEATHS_MAX = 3
QUICK_DEATH_SECONDS = 1.1
WORKER_LINE = re.compile(r"(worker_ready|worker_died|worker_reclaimed) pipeline=(\S+) stage=(\S+) "
                         r"worker=(\d+)(?: pid=(\d+))?(?:.* us=(\d+))?")


def percentile(values, percent):
    """The smallest that at least this share did not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, (len(ordered) * percent + 99) // 100 - 1)] if ordered else 0


def spread(values, unit, scale=1.0):
    """Median, 99th percentile and largest, as text."""
    figures = [percentile(values, percent) * scale for percent in (50, 99, 100)]
    return "p50 {:.3g}, p99 {:.3g}, max {:.3g} {}".format(*figures, unit)


# ---- the daemon ----

@dataclasses.dataclass
class Seat:
    """A worker's place and its process; pid 0: none is ready."""
    stage: str
    index: int
    pid: int = 0
    ready_at: float = 0.0
    died_at: float = 0.0  # 0: it is not known that anybody has
    quick_deaths: int = 0


class Node(Shoald):
    """A daemon in a folder of its own, in a session of its own: so its workers can be found
    later."""

    def __init__(self, run, folder, *pipelines, env=None, **keys):
        folder = pathlib.Path(folder)
        shutil.copy(EXAMPLES / "digits" / "digits.ubj", folder)
        self.run = run
        self.seats = {}
        self.kill_times = {}
        self.recovery_seconds = []
        self.reclaim_us = []
        self.ended = threading.Event()
        super().__init__(node(*pipelines, **keys), folder=folder, env=env)
        self.command.insert(0, "setsid")

    def start(self):
        self.ended.clear()
        self.seats.clear()
        return super().start()

    def read(self, stream):
        for line in stream:
            text = line.decode(errors="replace").rstrip("\n")
            match = WORKER_LINE.search(text)
            if match:
                self.on_worker(*match.groups())
            self.lines.append(text)
        stream.close()
        self.ended.set()

    def on_worker(self, event, pipeline_name, stage_name, index, pid, us):
        now = time.monotonic()
        seat = self.seats.setdefault((pipeline_name, stage_name, index),
                                     Seat(stage_name, int(index)))
        if event == "worker_reclaimed":
            self.reclaim_us.append(int(us))
        elif event == "worker_ready":
            if seat.died_at:
                self.recovery_seconds.append(now - seat.died_at)
            seat.pid, seat.ready_at, seat.died_at = int(pid), now, 0.0
        elif seat.pid in (0, int(pid)):  # or it is the old generation's, whose place is taken
            quick = seat.pid == 0 or now - seat.ready_at < QUICK_DEATH_SECONDS
            seat.quick_deaths = seat.quick_deaths + 1 if quick else 0
            seat.pid, seat.died_at = 0, self.kill_times.pop(int(pid), now)

    def ready_seats(self):
        return [seat for seat in list(self.seats.values()) if seat.pid]

    def victims(self):
        """The ready workers whose death will not make their successors wait."""
        now = time.monotonic()
        return [seat for seat in self.ready_seats()
                if seat.pid not in self.kill_times and (
                    seat.quick_deaths < QUICK_DEATHS_MAX
                    or now - seat.ready_at > QUICK_DEATH_SECONDS)]

    def kill_worker(self, pid):
        """False: there is no such process any more."""
        self.kill_times[pid] = time.monotonic()
        return self.send(pid, signal.SIGKILL)

    def send(self, pid, number):
        """A signal to one of its workers; False: it is not there any more. Numbers are used again
        soon where thousands die, and nobody else's process is to be hit."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if session_of(pid) != self.pid:
                return False
            signal.pidfd_send_signal(fd, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)

    def session_members(self):
        """The processes of its session, alive: itself and its workers, with any parent."""
        found = (int(entry.name) for entry in pathlib.Path("/proc").iterdir()
                 if entry.name.isdigit())
        return [pid for pid in found if session_of(pid) == self.pid]

    def pause(self, seconds):
        """Lets time pass; fails if the daemon ends meanwhile."""
        if self.ended.wait(seconds):
            self.process.wait()
            raise AssertionError(f"shoald has ended by itself, with {self.process.returncode}: "
                                 f"{self.lines[-5:]}")

    def discard(self):
        """Writes the log to where it can be read afterwards."""
        super().discard()
        self.run.keep_log(self.lines)
        shutil.rmtree(self.folder, ignore_errors=True)

    def check_nothing_left(self):
        """As the fixture's, but by session: of ten thousand workers some number is in use again."""
        left = self.session_members()
        assert not left, f"still alive after shoald: {left}"
        sockets = (pathlib.Path(f"{self.counters}.{what}") for what in ("control", "local"))
        for path in (self.socket, self.counters, *sockets):
            assert not path.exists(), f"{path} was left behind"

    def check_log(self):
        """Left to the run: what a sanitizer said counts in a row of its own (keep_log)."""


def session_of(pid):
    """0: there is no such process, or it only waits to be reaped."""
    fields = read_proc(pid, "stat").rpartition(")")[2].split()
    return int(fields[3]) if len(fields) > 3 and fields[0] not in "ZX" else 0


def digits(normalize, classify, label, **keys):
    """The pipeline of examples/digits with so many workers; its model lies beside the
    configuration."""
    return pipeline("digits", stage("libnormalize.so", workers=normalize),
                    stage("libxgboost_modelet.so", "classify", workers=classify,
                          params={"model": "digits.ubj"}, **{"batch_size": 64, **keys}),
                    stage("liblabel.so", workers=label), slots=1024)


# ---- the load ----

class Load:
    """digits_load against a node: real digits, each answer checked. Started with the block, and
    begun in earnest when `begin` returns; what it found is in `end` after `stop`."""

    def __init__(self, run, target, seed, outstanding=64, **options):
        self.run = run
        self.command = ["setpriv", "--pdeathsig", "KILL", str(BUILD / "chaos" / "digits_load"),
                        "--target", target, "--data", str(DIGITS_DATA), "--seed", str(seed),
                        "--outstanding", str(outstanding)]
        for name, value in options.items():
            self.command += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        self.last = {"sent": 0, "ok": 0, "wrong": 0, "failed": 0, "unanswered": 0, "cancelled": 0}
        self.reference = None
        self.end = None
        self.said = []

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.threads = [threading.Thread(target=self.read, daemon=True),
                        threading.Thread(target=self.read_errors, daemon=True)]
        for thread in self.threads:
            thread.start()
        return self.begin()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join()
        self.run.keep_log(self.said, "load")

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "reference":
                self.reference = event
            elif event["event"] == "end":
                self.last = self.end = event
            else:
                self.last = event

    def read_errors(self):
        for line in self.process.stderr:
            self.said.append(line.decode(errors="replace").rstrip("\n"))

    def check_runs(self):
        assert self.process.poll() is None, \
            f"digits_load ended with {self.process.returncode}: {self.said[-10:]}"

    def begin(self):
        """Waits for the quiet run; the model must know its digits."""
        def look():
            if self.reference is None:
                self.check_runs()
            return self.reference
        wait_until(look, lambda: f"the quiet run: {self.said[-10:]}")
        assert self.reference["right"] >= 0.95 * self.reference["digits"], self.reference
        return self

    def stop(self):
        """No new calls; waits for those that are out. Returns the sums."""
        self.process.send_signal(signal.SIGTERM)
        wait_until(lambda: self.process.poll() is not None, "the last answers", 180)
        for thread in self.threads:
            thread.join()
        assert self.end is not None, \
            f"digits_load ended with {self.process.returncode}: {self.said[-10:]}"
        return self.end

    @property
    def total(self):
        """Every request that it ever sent."""
        return self.end["sent"] + self.end["reference"]

    def failures(self, *patterns):
        """How many failed with a text that matches one of these, and all other reasons."""
        known, others = 0, []
        for reason in self.end["failures"]:
            said = f"{reason['status']} {reason['text']}"
            if any(re.search(pattern, said) for pattern in patterns):
                known += reason["count"]
            else:
                others.append(reason)
        return known, others


# ---- a row ----

class Budget:
    """How much a row is to do: a number of events, or seconds, whichever is reached first."""

    def __init__(self, count=None, seconds=None):
        self.count = count
        self.seconds = seconds
        self.began = time.monotonic()

    def begin(self):
        """Starts the clock: what came before was preparation."""
        self.began = time.monotonic()

    @property
    def elapsed(self):
        return time.monotonic() - self.began

    @property
    def left(self):
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    def goes_on(self, done):
        return (self.count is None or done < self.count) and self.left > 0

    def text(self, done):
        parts = [] if done is None else [f"{done:,} of {self.count:,}" if self.count else f"{done:,}"]
        parts.append(f"{self.elapsed:.0f} of {self.seconds:.0f} s" if self.seconds
                     else f"{self.elapsed:.0f} s")
        return ", ".join(parts)


class Report:
    """The findings of one row."""

    def __init__(self, name, wanted):
        self.name = name
        self.wanted = wanted
        self.got = []
        self.figures = {}
        self.problems = []
        self.told_at = time.monotonic()

    @property
    def ok(self):
        return not self.problems

    def say(self, text, **figures):
        self.got.append(text)
        self.figures.update(figures)

    def expect(self, holds, problem):
        if not holds:
            self.problems.append(problem)

    def progress(self, budget, done, *loads):
        """One line every few seconds; `done` None: there is nothing to count."""
        if time.monotonic() - self.told_at < PROGRESS_SECONDS:
            return
        self.told_at = time.monotonic()
        errors = [
            f"{load.last['ok']:,} right, {load.last['wrong']} wrong, {load.last['failed']} failed, "
            f"{load.last['unanswered']} unanswered" for load in loads]
        print(f"{self.name:<12} {'; '.join([budget.text(done), *errors])}", flush=True)

    def judge_load(self, load, *allowed):
        """Nothing wrong, nothing unanswered, and no failure but those whose text is allowed."""
        end = load.end
        known, others = load.failures(*allowed)
        self.say(f"{end['ok']:,} right answers, {end['wrong']} wrong, {end['unanswered']} "
                 f"unanswered, {end['failed']} failed", load=end)
        self.expect(end["ok"] > 0, "nothing was answered at all")
        self.expect(end["wrong"] == 0, f"{end['wrong']} wrong answers: {load.said[:5]}")
        self.expect(end["unanswered"] == 0, f"{end['unanswered']} requests without an answer")
        for reason in others:
            self.problems.append(f"{reason['count']} failed with status {reason['status']}: "
                                 f"{reason['text']}")
        return known

    def judge_returned(self, shoald, load):
        """After the load: every slot and block is back, and both sides have counted the same."""
        stat = shoald.wait_all_returned("digits")
        gone = load.end["cancelled"]  # some of them before they had been sent
        self.expect(load.total - gone <= stat["requests"] <= load.total,
                    f"{load.total} requests were sent and {stat['requests']} arrived")
        if not load.end["cancels"]:
            right = load.end["ok"] + load.end["reference"]
            self.expect(stat["replies_ok"] == right,
                        f"{right} right answers, of {stat['replies_ok']} that were given")
        self.expect(stat["region_resets"] == 0, f"{stat['region_resets']} resets of the region")
        self.say("0 slots, 0 blocks leaked")
        return stat


def sanitizer_reports(lines):
    return [line for line in lines if SANITIZER.search(line)]
