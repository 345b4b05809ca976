# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed, stopped and replaced under load."""

import math
import pathlib
import signal
import subprocess
import time

from rig import BUILD, digits, spread
from shoal_fixture import WAIT_SECONDS, children, is_alive, read_proc, wait_until

# Texts that a request may get when workers die: it was in flight in as many deaths as it has
# attempts, or its stage had nobody left.
POISON = r"\b2 workers died while they ran this request"  # attempts_max is 2
NO_WORKER = r"stage \".*\" has no worker|a stage has no worker|no worker is left"

# Enough workers that there is nearly always one whose worker may be killed without a pause after
# it, and few enough that it often has work.
KILL_WORKERS = {"normalize": 4, "classify": 4, "label": 4}
KILL_GAP_SECONDS = 0.012  # on average
KILL_STARTING_SHARE = 0.05
PYTHON_KILL_GAP_SECONDS = 0.15
NORMALIZE = pathlib.Path(__file__).resolve().parent / "normalize.py"
STOP_WORKERS = {"normalize": 2, "classify": 3, "label": 2}
STOPPED_MAX = 4  # of the seven: now and then a whole stage
STOP_SECONDS = (0.001, 1.0)  # all orders of magnitude between them are equally likely
STOP_GAP_SECONDS = 0.1  # on average
SILENCE_LIMIT_MS = 1000
RELOAD_WORKERS = {"normalize": 1, "classify": 2, "label": 1}


def starting_workers(shoald):
    """Those that have not said yet that they are ready."""
    ready = {seat.pid for seat in shoald.ready_seats()}
    return [pid for pid in children(shoald.pid) if pid not in ready | shoald.kill_times.keys()]


def choose_victim(shoald, draw):
    """Its pid, 0 if there is none now, and whether it was starting. Always draws equally often, so
    that the same seed goes on to draw the same."""
    early = draw.random() < KILL_STARTING_SHARE
    place = draw.random()
    pids = starting_workers(shoald) if early else []
    early = bool(pids)
    pids = pids or [seat.pid for seat in shoald.victims()]
    return (pids[int(place * len(pids))] if pids else 0), early


def kills(run, report, budget, draw, config=None, gap_seconds=KILL_GAP_SECONDS):
    """SIGKILL to random workers at random moments, starting ones among them."""
    config = config or digits(**KILL_WORKERS)
    with run.node(config) as shoald, run.load(shoald, outstanding=128) as load:
        killed = starting = 0
        budget.begin()
        while budget.goes_on(killed):
            pid, early = choose_victim(shoald, draw)
            if pid and shoald.kill_worker(pid):
                killed += 1
                starting += early
            shoald.pause(draw.expovariate(1 / gap_seconds))
            load.check_runs()
            report.progress(budget, killed, load)
        seconds = budget.elapsed
        load.stop()
        wait_until(lambda: all(seat.pid and is_alive(seat.pid)
                               for seat in list(shoald.seats.values())),
                   "the successors of the last, whose times count too")
        poison = load.failures(POISON)[0]
        report.judge_load(load, POISON, NO_WORKER)
        stat = report.judge_returned(shoald, load)
        report.expect(stat["poison"] == poison,
                      f"{poison} callers were told of poison, {stat['poison']} were counted")
        report.expect(killed > 0, "nobody was killed")
        report.say(f"{killed:,} kills ({starting:,} of starting workers), {killed / seconds:.0f} per "
                   f"second; {stat['run_again']:,} requests run again, {poison} failed by the "
                   f"attempts rule", kills=killed, kills_per_s=killed / seconds,
                   run_again=stat["run_again"], poison=poison)
        judge_times(report, shoald, stat)


def python_kills(run, report, budget, draw):
    """The same, with a first stage in Python, whose workers take longer to start."""
    config = digits(**KILL_WORKERS)
    config["stages"][0].update(modelet=str(NORMALIZE), batch_size=64)
    kills(run, report, budget, draw, config, PYTHON_KILL_GAP_SECONDS)


def judge_times(report, shoald, stat):
    """Times seen from outside, from the kill on; the daemon's histograms must have as many."""
    for name, seen in (("reclaim", shoald.reclaim_us), ("recovery", shoald.recovery_seconds)):
        counted = sum(one[name]["count"] for one in stat["stages"])
        report.expect(counted == len(seen), f"{len(seen)} times seen, {counted} counted as {name}")
    report.say(f"kill to successor ready {spread(shoald.recovery_seconds, 'ms', 1e3)}",
               recovery_ms=[1e3 * seconds for seconds in shoald.recovery_seconds])
    report.say(f"reclaim {spread(shoald.reclaim_us, 'us')}", reclaim_us=shoald.reclaim_us)


def stop_length(draw):
    low, high = map(math.log, STOP_SECONDS)
    return math.exp(draw.uniform(low, high))


class Stopper:
    """Stops workers, and lets each go on when its time is over."""

    def __init__(self, shoald, draw):
        self.shoald = shoald
        self.draw = draw
        self.workers = sorted(seat.pid for seat in shoald.ready_seats())
        self.until = {}  # pid -> when it goes on
        self.count = 0

    def stop_one(self):
        """Not if enough are stopped; it draws all the same."""
        low, high = map(math.log, STOP_SECONDS)
        place, seconds = self.draw.random(), math.exp(self.draw.uniform(low, high))
        free = [pid for pid in self.workers if pid not in self.until]
        if len(self.until) < STOPPED_MAX:
            pid = free[int(place * len(free))]
            self.until[pid] = time.monotonic() + seconds
            self.count += self.shoald.send(pid, signal.SIGSTOP)

    def pause_until(self, deadline):
        """Lets time pass, and those go on whose time comes; without deadline all of them."""
        while self.until or deadline is not None:
            due = min([*self.until.values(), *([] if deadline is None else [deadline])])
            self.shoald.pause(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            for pid in [pid for pid, until in self.until.items() if until <= now]:
                self.shoald.send(pid, signal.SIGCONT)
                del self.until[pid]
            if deadline is not None and deadline <= now:
                return


def stops(run, report, budget, draw):
    """SIGSTOP of random length: delays, and nothing else."""
    with run.node(digits(**STOP_WORKERS)) as shoald, run.load(shoald, outstanding=128) as load:
        stopper = Stopper(shoald, draw)
        budget.begin()
        while budget.goes_on(stopper.count):
            stopper.stop_one()
            stopper.pause_until(time.monotonic() + draw.expovariate(1 / STOP_GAP_SECONDS))
            load.check_runs()
            report.progress(budget, stopper.count, load)
        stopper.pause_until(None)
        load.stop()
        report.judge_load(load)
        report.judge_returned(shoald, load)
        report.expect(all(map(is_alive, stopper.workers)), "a stopped worker was taken for dead")
        report.expect(stopper.count > 0, "nobody was stopped")
        report.say(f"{stopper.count:,} stops; longest silence {load.end['silence_ms_max']:.0f} ms",
                   stops=stopper.count)


def silences(run, report, budget, draw):
    """SIGSTOP that nobody takes back: supervision does, and nothing is lost, late at most."""
    config = digits(**STOP_WORKERS)
    for one in config["stages"]:
        one["run_timeout_ms"] = SILENCE_LIMIT_MS
    with run.node(config) as shoald, run.load(shoald, outstanding=32) as load:
        count = 0
        budget.begin()
        while budget.goes_on(count):
            pid = draw.choice(sorted(seat.pid for seat in shoald.ready_seats()))
            if shoald.send(pid, signal.SIGSTOP):
                count += 1
                wait_until(lambda: not is_alive(pid) or not is_stopped(pid), "a worker to go on")
            load.check_runs()
            report.progress(budget, count, load)
        load.stop()
        report.judge_load(load, POISON, NO_WORKER)
        report.judge_returned(shoald, load)
        report.expect(count > 0, "nobody was stopped")
        report.say(f"{count:,} stops for good, all healed", stops=count)


def is_stopped(pid):
    return read_proc(pid, "stat").rpartition(")")[2].split()[:1] == ["T"]


def reload_once(shoald):
    return subprocess.run([BUILD / "bin" / "shoalctl", "reload", "--counters", shoald.counters,
                           "digits"], capture_output=True, text=True, timeout=2 * WAIT_SECONDS)


def reloads(run, report, budget, draw):
    """New generations of workers under load: not one request fails."""
    with run.node(digits(**RELOAD_WORKERS)) as shoald, run.load(shoald, outstanding=64) as load:
        first = {seat.pid for seat in shoald.ready_seats()}
        count = 0
        durations = []
        budget.begin()
        while budget.goes_on(count):
            began = budget.elapsed
            done = reload_once(shoald)
            durations.append(budget.elapsed - began)
            assert done.returncode == 0, f"shoalctl reload: {done.returncode}: {done.stderr}"
            count += 1
            shoald.pause(draw.expovariate(20))
            load.check_runs()
            report.progress(budget, count, load)
        load.stop()
        report.judge_load(load)
        stat = report.judge_returned(shoald, load)
        report.expect((stat["reloads"], stat["reloads_failed"]) == (count, 0),
                      f"{count} reloads, of which {stat['reloads']} were counted and "
                      f"{stat['reloads_failed']} failed")
        report.expect(not first & {seat.pid for seat in shoald.ready_seats()},
                      "a worker of the first generation still serves")
        report.say(f"{count:,} reloads; each {spread(durations, 'ms', 1e3)}; longest silence "
                   f"{load.end['silence_ms_max']:.0f} ms", reloads=count)
