# SPDX-License-Identifier: Apache-2.0
"""The guilty user pays, and the machine's limits are reported, not fatal: poison among good calls,
a node that may not have what it needs, a cgroup with less memory than the arenas would take.
ctest: timeout=240 presets=dev
"""

import os
import signal
import subprocess
import tempfile
import time
import unittest

import shoal_fixture
from shoal_attacks import (MIB, Caller, NotPossible, in_group, memory_group, memory_group_2, puppet,
                           rascal)
from shoal_client import Client, outcome
from shoal_fixture import BIN, Shoald, node, pipeline, read_proc

class TestPoison(unittest.TestCase):
    ROUNDS, GOOD = 12, 200

    def poison(self, **keys):
        """Of GOOD calls beside each poisonous one; counts what came of them."""
        shoald = self.enterContext(Shoald(node(pipeline("p", rascal(batch_size=16, **keys), slots=64),
                                               message_mib=1)))
        good = self.enterContext(Caller(shoald.target, "good"))
        bad = self.enterContext(Caller(shoald.target, "bad"))
        failed = 0
        for _ in range(self.ROUNDS):
            poison = None
            for start in range(0, self.GOOD, 20):
                calls = [good.tell(f"echo {i}") for i in range(10)]
                if start == self.GOOD // 2:
                    poison = bad.tell("crash now")
                calls += [good.tell(f"echo {i}") for i in range(10)]
                failed += sum(outcome(call).name != "OK" for call in calls)
            self.assertEqual(outcome(poison).name, "UNAVAILABLE")
        stat = shoald.pipeline_stat("p")
        self.assertNotIn("stage_quarantined", shoald.stderr)
        return failed, stat

    def test_many_attempts(self):
        """Restarts are not put off although lives are short: workers did answer."""
        failed, stat = self.poison()
        self.assertLessEqual(failed, self.ROUNDS * self.GOOD // 100, stat)
        self.assertGreater(stat["suspected"], 0)

    def test_one_attempt(self):
        """Only the first poison may take its company along: its caller's others run alone."""
        failed, stat = self.poison(attempts_max=1)
        self.assertLessEqual(failed, 20, stat)
        self.assertEqual(stat["poison"] - failed, self.ROUNDS)


class TestStall(unittest.TestCase):
    def test_forecasts_recover(self):
        """Node and workers stand still for seconds in the middle of runs: no later call is refused
        for it, however little is known of runs: of each pipeline as many as its name says."""
        names = ("0", "1", "2", "4", "8")
        with Shoald(node(*(pipeline(name, puppet(), slots=256) for name in names), message_mib=1)) as shoald, \
                Client(shoald.target) as client:
            for name in names:
                for _ in range(int(name)):
                    self.assertEqual(outcome(client.tell("slow 20", name)).name, "OK")
            stalled = [client.tell(f"hold {name}", name) for name in names]
            for name in names:
                shoal_fixture.wait_until((shoald.folder / f"{name}.held").exists, "a run")
            self.stall([*(worker.pid for worker in shoald.workers()), shoald.pid])
            for name in names:
                (shoald.folder / f"{name}.go").touch()
            self.assertEqual([outcome(one).name for one in stalled], ["OK"] * len(names))
            for name in names:
                with self.subTest(name):
                    for _ in range(2):  # the second one: a forecast may be 20 ms old
                        self.assertEqual(outcome(client.tell("slow 25", name)).name, "OK")
                    calls = [client.tell("slow 20", name) for _ in range(100)]
                    codes = [outcome(one).name for one in calls]
                    self.assertEqual(codes.count("OK"), 100, shoald.pipeline_stat(name))

    @staticmethod
    def stall(pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        shoal_fixture.wait_until(lambda: time.monotonic() - began > 4, "the stall's end")
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class TestLimits(unittest.TestCase):
    def run_limited(self, limit):
        """Exit code and output of a node that is started under a limit."""
        shoald = Shoald(node(pipeline("p", rascal(), slots=32), message_mib=1))
        self.addCleanup(shoald.discard)
        shoald.command = ["prlimit", limit, *shoald.command]
        code = shoald.start().wait_exit()
        shoald.check_log()
        return code, shoald.stderr

    def test_memory(self):
        probe = subprocess.run(["prlimit", f"--as={1000 * MIB}", BIN / "shoald", "--version"],
                               capture_output=True, check=False)
        if probe.returncode != 0:
            self.skipTest("a sanitizer needs terabytes of address space")
        for limit, what in ((f"--as={100 * MIB}", "address space 100 MiB"),
                            (f"--data={20 * MIB}", "data 20 MiB"),
                            (f"--data={60 * MIB}", "data 60 MiB")):
            with self.subTest(limit):
                code, text = self.run_limited(limit)
                self.assertEqual(code, 2, text)
                self.assertIn(what, text)
                self.assertIn("raise them (ulimit -v, -d, -u;", text)

    def test_descriptors(self):
        for count in (12, 16, 24):
            with self.subTest(count):
                code, text = self.run_limited(f"--nofile={count}")
                self.assertEqual(code, 2, text)
                self.assertIn(f"this process may open {count} files, and this configuration needs", text)


class TestCgroup(unittest.TestCase):
    LIMIT_MIB = 160

    def group(self):
        try:
            return self.enterContext(memory_group(self.LIMIT_MIB * MIB))
        except NotPossible as why:
            return self.skipTest(why)

    def limited(self, group, *pipelines):
        shoald = Shoald(node(*pipelines, message_mib=8))
        self.addCleanup(shoald.discard)
        return in_group(group, shoald)

    def test_default_arenas_shrink(self):
        group = self.group()
        shoald = self.limited(group, pipeline("p", rascal(), slots=64),
                              pipeline("q", rascal(), slots=64))
        with shoald:
            for name in "pq":
                shoald.wait_log(f"arena_shrunk pipeline={name} ")
            served = [shoald.wait_log(f"pipeline_serving pipeline={name} .* bytes=([0-9]+)")
                      for name in "pq"]
            self.assertLessEqual(sum(int(match[1]) for match in served), self.LIMIT_MIB * MIB // 2)
            with Client(shoald.target) as client:
                self.assertTrue(client.call("ModelReady", name="p").ready)
            for worker in shoald.workers():
                self.assertEqual(int(read_proc(worker.pid, "oom_score_adj")), 500)

    def test_given_sizes_are_refused(self):
        group = self.group()
        shoald = self.limited(group, pipeline("p", rascal(), slots=64, arena_mib=100),
                              pipeline("q", rascal(), slots=64, arena_mib=100))
        self.assertEqual(shoald.start().wait_exit(), 2, shoald.stderr)
        self.assertRegex(shoald.stderr, r"shared memory of 2 pipelines takes [12]\d\d MiB, and the "
                         rf"cgroup allows this node {self.LIMIT_MIB} MiB in all: lower `arena_mib`")


class TestCgroup2(unittest.TestCase):
    """By the files of version 2, on any machine: see IN_GROUP_2."""
    LIMIT_MIB = 160

    def limited(self, *pipelines):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        try:
            words = self.enterContext(memory_group_2(self.LIMIT_MIB * MIB, folder))
        except NotPossible as why:
            self.skipTest(why)
        shoald = Shoald(node(*pipelines, message_mib=8))
        self.addCleanup(shoald.discard)
        shoald.command = [*words, *shoald.command]
        return shoald

    def test_default_arenas_shrink(self):
        with self.limited(pipeline("p", rascal(), slots=64),
                          pipeline("q", rascal(), slots=64)) as shoald:
            served = [shoald.wait_log(f"pipeline_serving pipeline={name} .* bytes=([0-9]+)")
                      for name in "pq"]
            self.assertLessEqual(sum(int(match[1]) for match in served), self.LIMIT_MIB * MIB // 2)
            for name in "pq":
                shoald.wait_log(f"arena_shrunk pipeline={name} ")
            self.assertIn("/inner", read_proc(shoald.pid, "cgroup"))
            for worker in shoald.workers():
                self.assertEqual(int(read_proc(worker.pid, "oom_score_adj")), 500)

    def test_given_sizes_are_refused(self):
        shoald = self.limited(pipeline("p", rascal(), slots=64, arena_mib=100),
                              pipeline("q", rascal(), slots=64, arena_mib=100))
        self.assertEqual(shoald.start().wait_exit(), 2, shoald.stderr)
        self.assertRegex(shoald.stderr, r"shared memory of 2 pipelines takes [12]\d\d MiB, and the "
                         rf"cgroup allows this node {self.LIMIT_MIB} MiB in all: lower `arena_mib`")


if __name__ == "__main__":
    shoal_fixture.main()
