# SPDX-License-Identifier: Apache-2.0
"""Local clients: honest ones under load, beside others that are killed and some that do their
worst, while workers die and the daemon does."""

import os
import pathlib
import re
import signal
import subprocess
import time
import time

from rig import BUILD, DIGITS_DATA, Load, digits
from rows_node import UNAVAILABLE, open_inodes, regions_of
from rows_workers import NO_WORKER, POISON
from shoal_fixture import WAIT_SECONDS, read_proc, wait_until

HONEST = 2
VICTIMS = 2
HOSTILE = 2
CLIENT_OUTSTANDING = 16
CLIENT_KILL_GAP_SECONDS = 0.08  # on average
# Workers that died with something of a user's clients in hand are held against the user: one is
# forgiven each second, and with more than eight the honest would be disconnected, too.
WORKER_KILLS_AT_ONCE = 5
WORKER_KILL_GAP_SECONDS = 1.25
RELOAD_GAP_SECONDS = 1
ENDS = 2  # of the daemon, for each …
END_EVERY_SECONDS = 20  # … so many seconds, at least
CLIENT_POISON = r"\b\d+ workers died while they ran this request"
MAPPING = re.compile(r"memfd:shoal-region")
SETTLE_SECONDS = 60


class LocalLoad(Load):
    """local_load, an honest local client, with the same words."""

    def __init__(self, run, shoald, seed):
        super().__init__(run, shoald.target, seed)
        self.command = ["setpriv", "--pdeathsig", "KILL", str(BUILD / "chaos" / "local_load"),
                        f"{shoald.counters}.local", str(DIGITS_DATA), str(CLIENT_OUTSTANDING),
                        str(seed)]


class Crowd:
    """Clients that nobody waits for: killed at any moment, and replaced. Their output is kept: a
    wrong answer, or a sanitizer's word."""

    def __init__(self, run, shoald, draw):
        self.run = run
        self.draw = draw
        socket = f"{shoald.counters}.local"
        chaos = BUILD / "chaos"
        self.commands = [[str(chaos / "local_load"), socket, str(DIGITS_DATA),
                          str(CLIENT_OUTSTANDING)]] * VICTIMS
        self.commands += [[str(chaos / "local_hostile"), socket]] * HOSTILE
        self.log = (run.build / "chaos" / "crowd.log").open("w+b")
        self.members = [self.start(command) for command in self.commands]
        self.killed = 0

    def start(self, command):
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "prlimit", "--core=0", *command,
                                 str(self.draw.randrange(1 << 32))],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)

    def kill_one(self):
        place = self.draw.randrange(len(self.members))
        self.members[place].kill()
        self.members[place].wait()
        self.members[place] = self.start(self.commands[place])
        self.killed += 1

    def end(self):
        for member in self.members:
            member.kill()
            member.wait()
        self.members = []
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").splitlines()
        self.log.close()
        self.run.keep_log(lines, "crowd")
        return [line for line in lines if "wrong answer" in line]


def holdings(pid):
    """Resources of a process: descriptors, regions' files that it has open, and regions that it
    maps. None: there is no such process."""
    folder = pathlib.Path(f"/proc/{pid}/fd")
    try:
        return (len(os.listdir(folder)), len(open_inodes(folder)), len(regions_of(pid)),
                len(MAPPING.findall(read_proc(pid, "maps"))))
    except FileNotFoundError:
        return None


def held_by_all(shoald):
    """Of the daemon, and of its present workers."""
    workers = [holdings(pid) for pid in shoald.session_members() if pid != shoald.pid]
    return {"shoald": holdings(shoald.pid), "workers": sorted(workers, key=str)}


def all_seated(shoald):
    return all(seat.pid for seat in list(shoald.seats.values()))


def kill_workers(shoald, draw, killed, elapsed):
    """One, if that many may have died by now."""
    allowed = WORKER_KILLS_AT_ONCE + elapsed / WORKER_KILL_GAP_SECONDS
    victims = shoald.victims()
    place = draw.random()
    if killed + 1 > allowed or not victims:
        return 0
    return 1 if shoald.kill_worker(victims[int(place * len(victims))].pid) else 0


class Reloader:
    """Has a pipeline reloaded, one reload after the other."""

    def __init__(self, shoald, pipeline="digits"):
        self.shoald = shoald
        self.pipeline = pipeline
        self.process = None
        self.next_at = time.monotonic() + RELOAD_GAP_SECONDS
        self.done = 0
        self.failed = []  # what was said

    def go_on(self):
        if self.process is None and time.monotonic() > self.next_at:
            self.process = subprocess.Popen(
                [BUILD / "bin" / "shoalctl", "reload", "--counters", self.shoald.counters, self.pipeline],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        elif self.process is not None and self.process.poll() is not None:
            self.end()

    def end(self):
        """Waits for the one that is under way."""
        if self.process is None:
            return
        said, _ = self.process.communicate(timeout=2 * WAIT_SECONDS)
        if self.process.returncode != 0:
            self.failed.append(f"shoalctl reload: {self.process.returncode}: {said}")
        self.process = None
        self.done += 1
        self.next_at = time.monotonic() + RELOAD_GAP_SECONDS


def storm(run, report, budget, draw, shoald, loads):
    """Everybody but the daemon dies now and then, generations come and go, and the honest notice
    nothing. Returns how many of each."""
    crowd = Crowd(run, shoald, draw)
    reloader = Reloader(shoald)
    workers = 0
    try:
        while budget.goes_on(None):
            crowd.kill_one()
            workers += kill_workers(shoald, draw, workers, budget.elapsed)
            reloader.go_on()
            shoald.pause(draw.expovariate(1 / CLIENT_KILL_GAP_SECONDS))
            for load in loads:
                load.check_runs()
            report.progress(budget, crowd.killed, *loads)
        reloader.end()
        assert not reloader.failed, reloader.failed
    finally:
        wrong = crowd.end()
    report.expect(not wrong, f"a client that was killed had got {wrong[:3]}")
    report.expect(workers > 0 and crowd.killed > 0, "nobody was killed")
    return crowd.killed, workers, reloader.done


def judge_held(report, shoald, before):
    """Once no client is left everything is as it was: descriptors, mappings, files of regions."""
    def look():
        return held_by_all(shoald) == before
    try:
        wait_until(look, "what was held to be given back", SETTLE_SECONDS)
    except AssertionError:
        report.expect(False, f"held before: {before}; after all clients have gone: "
                             f"{held_by_all(shoald)}")


def ends(run, report, draw, shoald, seconds):
    """The daemon is killed under the same load, and started again."""
    loads = [LocalLoad(run, shoald, draw.randrange(1 << 32)) for _ in range(HONEST)]
    count = max(ENDS, round(seconds / END_EVERY_SECONDS))
    with loads[0] as first, loads[1] as second:
        for _ in range(count):
            shoald.pause(draw.uniform(0, 0.3))
            shoald.kill()
            wait_until(lambda: not shoald.session_members(), "the workers' end")
            shoald.start().wait_ready()
            before = [load.last["ok"] for load in (first, second)]
            wait_until(lambda: all(load.last["ok"] > ok for load, ok in zip((first, second), before)),
                       lambda: f"answers after the restart: {[first.last, second.last]}")
        for load in (first, second):
            load.stop()
            report.judge_load(load, UNAVAILABLE)
    return count


def client_regions(run, report, budget, draw):
    """Honest local clients and gRPC; then the daemon's own ends."""
    # to classify runs a while: so that clients and workers die with something in hand
    pipeline = {**digits(2, 3, 2), "local_clients": 16, "local_slots": 32, "local_mib": 4}
    with run.node(pipeline) as shoald:
        wait_until(lambda: all_seated(shoald), "all workers")
        with run.load(shoald, outstanding=16) as grpc:
            before = held_by_all(shoald)
            locals_ = [LocalLoad(run, shoald, draw.randrange(1 << 32)) for _ in range(HONEST)]
            with locals_[0] as first, locals_[1] as second:
                budget.begin()
                clients, workers, reloads = storm(run, report, budget, draw, shoald, (grpc, first, second))
                elapsed = budget.elapsed
                for load in (first, second):
                    load.stop()
                    report.judge_load(load, CLIENT_POISON)
                    report.expect(load.end["refused"] == 0,
                                  f"an honest client was disconnected: {load.end}")
            judge_held(report, shoald, before)
            grpc.stop()
        report.judge_load(grpc, POISON, NO_WORKER)
        report.judge_returned(shoald, grpc)
        charged = [line for line in shoald.lines if re.search(r"local_client_dropped.*workers died", line)]
        report.expect(not charged, f"dropped for deaths that were forgiven: {charged[:2]}")
        count = ends(run, report, draw, shoald, elapsed)
        report.say(f"{clients:,} kills of clients, {workers:,} of workers, {count} of the daemon, "
                   f"{reloads} reloads; 0 descriptors, 0 mappings, 0 regions leaked",
                   client_kills=clients, worker_kills=workers, ends=count, reloads=reloads)
