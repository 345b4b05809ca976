# SPDX-License-Identifier: Apache-2.0
"""Processes run where the configuration says, and are called what they are.

Looks at /proc: CPUs allowed to each thread of shoald and to each worker, names of processes and threads.
ctest: timeout=120
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import shoal_fixture
from shoal_client import Client
from shoal_fixture import BIN, Shoald, node, pipeline, read_proc, stage, wait_until

CPUS = sorted(os.sched_getaffinity(0))
FIRST, LAST = CPUS[0], CPUS[-1]  # the same on a machine with one


def allowed(pid):
    """CPUs of each thread of a process."""
    found = set()
    for task in list(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(ProcessLookupError):  # gRPC's threads come and go
            found.add(frozenset(os.sched_getaffinity(int(task.name))))
    return found


def classes(pid):
    """Scheduling classes of its threads."""
    return {os.sched_getscheduler(int(task.name)) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def may_leave_idle_class():
    """As the coordinator tries it."""
    tries = "import os; os.nice(10); [os.sched_setscheduler(0, c, os.sched_param(0)) for c in ({}, {})]"
    return subprocess.run([sys.executable, "-c", tries.format(os.SCHED_IDLE, os.SCHED_OTHER)],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


class TestPinning(unittest.TestCase):
    def serve(self, config, *args):
        shoald = self.enterContext(Shoald(config, args))
        with Client(shoald.target) as client:  # all threads that there will be
            client.infer_raw("echo", ("x", "INT8", [1], b"a"))
        return shoald

    def check_pinned(self, shoald, stage_name, cpus):
        for worker, cpu in zip(sorted(shoald.workers("echo", stage_name),
                                      key=lambda worker: worker.index), cpus, strict=True):
            self.assertEqual(allowed(worker.pid), {frozenset([cpu])}, worker)
            self.assertIn(f"Cpus_allowed_list:\t{cpu}\n", read_proc(worker.pid, "status"))

    def test_everything_pinned(self):
        shoald = self.serve(node(
            pipeline("echo", stage("libecho.so", "one", cpus=[LAST]),
                     stage("libecho.so", "two", cpus=[FIRST, LAST, LAST]), slots=8),
            cpus=[FIRST], message_mib=1))
        self.assertEqual(allowed(shoald.pid), {frozenset([FIRST])})
        self.check_pinned(shoald, "one", [LAST])
        self.check_pinned(shoald, "two", [FIRST, LAST, LAST])

    def test_loads_run_where_there_is_room(self):
        """Of the idle class, if that can be left; a load that has too little of the CPU leaves it."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        (folder / "models").mkdir()
        (folder / "models" / "m").write_text("1")
        gate = folder / "models" / "gate"
        models = {"root": "models", "memory_mib": 64, "watch": "no"}
        shoald = self.enterContext(Shoald(node(
            pipeline("shelf", stage("libshelf.so", cpus=[LAST]), models=models, slots=8),
            cpus=[FIRST]), folder=folder))
        worker = shoald.workers()[0]
        self.assertEqual(allowed(worker.pid), {frozenset(CPUS), frozenset([LAST])})
        self.assertEqual(classes(worker.pid), {os.SCHED_OTHER})
        with subprocess.Popen([BIN / "shoalctl", "model", "load", "--counters", shoald.counters, "m", "m",
                               "--key", f"gate={gate}"]) as load:
            if may_leave_idle_class():
                # it has nothing to compute, so it leaves the class after a moment, and says so
                wait_until(lambda: os.SCHED_IDLE in classes(worker.pid)
                           or "load_starved" in shoald.stderr, "a load in the idle class")
                shoald.wait_log("load_starved")
            wait_until(lambda: classes(worker.pid) == {os.SCHED_OTHER}, "the ordinary class")
            gate.touch()
            self.assertEqual(load.wait(shoal_fixture.WAIT_SECONDS), 0)

    def test_pinned_workers_of_a_free_coordinator(self):
        shoald = self.serve(node(pipeline("echo", stage("libecho.so", "one", cpus=[LAST]),
                                          stage("libecho.so", "two", workers=2), slots=8),
                                 message_mib=1))
        self.assertEqual(allowed(shoald.pid), {frozenset(CPUS)})
        self.check_pinned(shoald, "one", [LAST])
        for worker in shoald.workers("echo", "two"):
            self.assertEqual(allowed(worker.pid), {frozenset(CPUS)})

    def test_free_workers_of_a_pinned_coordinator(self):
        """They do not inherit its CPUs."""
        shoald = self.serve(node(pipeline("echo", stage("libecho.so"), slots=8), cpus=[FIRST],
                                 message_mib=1))
        self.assertEqual(allowed(shoald.pid), {frozenset([FIRST])})
        self.assertEqual(allowed(shoald.workers()[0].pid), {frozenset(CPUS)})

    def test_no_pin(self):
        """--no-pin starts as many workers, on any CPU, even where the CPUs do not exist."""
        shoald = self.serve(node(pipeline("echo", stage("libecho.so", cpus=[0, 1000]), slots=8),
                                 cpus=[1001], message_mib=1), "--no-pin")
        self.assertEqual(len(shoald.workers()), 2)
        for pid in [shoald.pid, *(worker.pid for worker in shoald.workers())]:
            self.assertEqual(allowed(pid), {frozenset(CPUS)})

    def test_names(self):
        shoald = self.serve(node(pipeline("echo", stage("libecho.so", "one", workers=2),
                                          stage("libecho.so", "a-very-long-name"), slots=8),
                                 message_mib=1))
        self.assertEqual(read_proc(shoald.pid, "comm"), "shoald\n")
        names = {read_proc(shoald.pid, f"task/{task.name}/comm").strip()
                 for task in list(pathlib.Path(f"/proc/{shoald.pid}/task").iterdir())}
        self.assertLessEqual({"shoald", "shoald:front", "shoald:gather"}, names)
        for worker in shoald.workers():
            self.assertEqual(read_proc(worker.pid, "comm"),
                             f"shoal:{worker.stage}.{worker.index}"[:15] + "\n")


if __name__ == "__main__":
    shoal_fixture.main()
