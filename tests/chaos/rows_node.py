# SPDX-License-Identifier: Apache-2.0
"""The daemon itself: killed again and again in one place."""

import os
import pathlib
import re
import signal
import stat as file_kinds
import time

from rig import digits, spread
from shoal_fixture import read_proc, wait_until

# Texts that callers of a killed daemon may get: all of it says "try again".
UNAVAILABLE = r"^14 "
KILL_WITHIN_SECONDS = 0.4
STARTING_SHARE = 0.25  # of the kills come while the daemon is starting
REGION = re.compile(r"^\S+ \S+ \S+ (\S+) (\d+) +/memfd:shoal-region", re.MULTILINE)


def regions_of(pid):
    """Inodes of the regions that a process has mapped; there is one mount of them in the kernel."""
    return {int(inode) for _, inode in REGION.findall(read_proc(pid, "maps"))}


def region_holders(inodes):
    """Processes that have one of these mapped, or open."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and (regions_of(entry.name) & inodes
                                     or open_inodes(entry / "fd") & inodes):
            found.append(int(entry.name))
    return found


def open_inodes(folder):
    inodes = set()
    try:
        for link in os.listdir(folder):
            if "memfd:shoal-region" in os.readlink(folder / link):
                status = os.stat(folder / link)
                if file_kinds.S_ISREG(status.st_mode):
                    inodes.add(status.st_ino)
    except OSError:
        pass  # gone meanwhile
    return inodes


class Life:
    """One daemon after the other in the same folder, on the same socket."""

    def __init__(self, run, report, draw):
        self.report = report
        self.draw = draw
        self.shoald = run.node(digits(1, 2, 1))
        self.expected_files = {"shoald.yaml", "digits.ubj", "grpc.sock", "counters",
                               "counters.control", "counters.local"}
        self.killed_starting = 0
        self.end_seconds = []
        self.start_seconds = []

    def wait_serving(self, load):
        """Until answers come again."""
        began = time.monotonic()
        self.shoald.wait_ready()
        before = load.last["ok"]

        def look():
            load.check_runs()
            self.shoald.check_still_runs()
            return load.last["ok"] > before
        wait_until(look, lambda: f"answers from the new daemon: {load.last} {self.shoald.lines[-5:]}")
        self.start_seconds.append(time.monotonic() - began)

    def live(self, load):
        """Starts it and lets it live for a while, perhaps not even until it is ready."""
        self.shoald.start()
        if self.draw.random() < STARTING_SHARE:
            self.killed_starting += 1
        else:
            self.wait_serving(load)
        self.shoald.pause(self.draw.uniform(0, KILL_WITHIN_SECONDS))

    def kill(self):
        """SIGKILL, and a look at what is left."""
        pid = self.shoald.pid
        regions = regions_of(pid)
        began = time.monotonic()
        code = self.shoald.kill()
        self.report.expect(code == -signal.SIGKILL, f"shoald had ended by itself with {code}: "
                                                    f"{self.shoald.lines[-3:]}")
        wait_until(lambda: not self.shoald.session_members(),
                   lambda: f"the end of the workers {self.shoald.session_members()} of shoald {pid}")
        self.end_seconds.append(time.monotonic() - began)
        holders = region_holders(regions)
        self.report.expect(not holders, f"the region's memory is still held by {holders}")
        files = {path.name for path in self.shoald.folder.iterdir()}
        self.report.expect(files <= self.expected_files,
                           f"files left behind: {files - self.expected_files}")

    def end(self):
        """Leaves nobody behind even if shoald did."""
        for pid in self.shoald.session_members() if self.shoald.process else []:
            self.shoald.send(pid, signal.SIGKILL)
        self.shoald.discard()


def coordinator(run, report, budget, draw):
    """SIGKILL to shoald at random moments; the next one starts in the same place, and serves."""
    life = Life(run, report, draw)
    try:
        life.shoald.start().wait_ready()
        with run.load(life.shoald, outstanding=32, wait_for_ready=True) as load:
            count = 0
            budget.begin()
            while budget.goes_on(count) and report.ok:
                if count > 0:
                    life.live(load)
                life.kill()
                count += 1
                report.progress(budget, count, load)
            life.shoald.start()
            life.wait_serving(load)
            load.stop()
            report.judge_load(load, UNAVAILABLE)
            life.shoald.wait_all_returned("digits")
        report.expect(life.shoald.terminate() == 0, "the last one did not end well")
        life.shoald.check_nothing_left()
        report.say(f"{count:,} kills ({life.killed_starting} while starting); 0 processes, 0 regions, "
                   f"0 files left; all gone after {spread(life.end_seconds, 'ms', 1e3)}; serving "
                   f"{spread(life.start_seconds, 'ms', 1e3)} after the next start", kills=count)
    finally:
        life.end()
