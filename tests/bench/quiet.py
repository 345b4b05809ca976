# SPDX-License-Identifier: Apache-2.0
"""Was the machine quiet while something was measured? Looked at before and after, never meanwhile.

The CPU time of others is all CPU time of the machine less that of ourselves, of our ended children
and of the servers under measurement; others' switches are those of other processes that lived
through it, kernel threads left out. A measurement that had too much of any is flagged, not thrown
away.
"""

import os
import resource
import time
from pathlib import Path

LIMITS = {"steal_percent": 2.0, "others_percent": 5.0, "others_switches_per_s": 1000.0}
LOAD_AVERAGE_MAX = 0.5  # of each core, before we begin
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids):
    """CPU time of all threads of these processes, by the kernel's clock of a process id."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def switches(pid):
    """How often the threads of a process were put on a CPU."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[2])
    return total


class Machine:
    """All CPU seconds, those that others than us had, and the switches of other processes."""

    def __init__(self, pids):
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
        self.at = time.monotonic()
        self.all = (user + nice + system + idle + iowait + irq + softirq + steal) / TICKS_PER_S
        self.steal = steal / TICKS_PER_S
        usage = [resource.getrusage(who) for who in
                 (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ours = sum(one.ru_utime + one.ru_stime for one in usage) + cpu_seconds(pids)
        self.others = (user + nice + system) / TICKS_PER_S - ours
        self.switches = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid() and int(name) not in pids:
                self.look(int(name))

    def look(self, pid):
        try:
            os.readlink(f"/proc/{pid}/exe")  # a kernel thread has none
            self.switches[pid] = switches(pid)
        except OSError:
            pass


def noise(before, after):
    """Figures by the names of LIMITS, of what was between two looks."""
    seconds = max(after.at - before.at, 1e-3)
    # a thread that ended takes its count with it
    others = sum(max(0, count - before.switches[pid]) for pid, count in after.switches.items()
                 if pid in before.switches)
    return {
        "steal_percent": max(0.0, 100 * (after.steal - before.steal)
                             / max(after.all - before.all, 1e-3)),
        "others_percent": max(0.0, 100 * (after.others - before.others) / seconds),
        "others_switches_per_s": others / seconds,
    }


def is_quiet(figures):
    return all(figures[name] <= limit for name, limit in LIMITS.items())
