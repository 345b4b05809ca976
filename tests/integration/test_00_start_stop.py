# SPDX-License-Identifier: Apache-2.0
"""shoald starts, says that it is ready, stops when told, and leaves nothing behind.

Runs the real program on the smallest configurations there are, with real signals, and looks at
exit codes, at the log, and through /proc at what is left.

ctest: timeout=180 presets=dev
"""

import pathlib
import signal
import subprocess
import unittest

import shoal_fixture
from shoal_client import Client, failure
from shoal_fixture import (BIN, Shoald, children, is_alive, node, pipeline, run_shoald, stage,
                           wait_until)

ECHO = node(pipeline("echo", stage("libecho.so", workers=2), slots=16), message_mib=1)


def run(*arguments):
    return subprocess.run([BIN / "shoald", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=shoal_fixture.WAIT_SECONDS)


def regions(pid):
    """Device and inode of the regions that a process has mapped: others may run nodes, too."""
    lines = [line.split() for line in shoal_fixture.read_proc(pid, "maps").splitlines()
             if "memfd:shoal-region" in line]
    return {(fields[3], fields[4]) for fields in lines}


def who_maps(wanted):
    """Processes of this machine that have one of these regions mapped."""
    return {int(entry.name) for entry in pathlib.Path("/proc").iterdir()
            if entry.name.isdigit() and regions(entry.name) & wanted}


class TestOptions(unittest.TestCase):
    def test_help(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        for option in ("--check", "--listen", "--counters", "--no-pin", "--worker", "Exit codes"):
            self.assertIn(option, done.stdout)

    def test_version(self):
        done = run("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^shoald \d+\.\d+\.\d+\n$")

    def test_manual(self):
        for option in ("--help-config", "--help-config=markdown"):
            done = run(option)
            self.assertEqual(done.returncode, 0, done.stderr)
            for key in ("listen", "slots", "batch_wait_ms", "attempts_max", "start_timeout_ms"):
                self.assertIn(key, done.stdout, f"{option} does not name the key {key}")

    def test_wrong_use(self):
        for arguments in ((), ("a.yaml", "b.yaml"), ("--no-such-option", "a.yaml"),
                          ("--log-level", "loud", "a.yaml"), ("--worker", "/nowhere", "a.yaml")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, f"{arguments}: {done.stdout}{done.stderr}")
            self.assertIn("shoald --help", done.stderr, f"{arguments}: no hint at --help")

    def test_check_starts_nothing(self):
        code, said = run_shoald(ECHO, ["--check"])
        self.assertEqual(code, 0, said)
        self.assertIn("configuration is good: 1 pipeline", said)
        self.assertNotIn("ready", said, "--check has started something")


class TestLife(unittest.TestCase):
    def test_ready_and_sigterm(self):
        with Shoald(ECHO) as shoald:
            workers = shoald.workers("echo", "echo")
            self.assertEqual(len(workers), 2, shoald.stderr)
            self.assertEqual(sorted(worker.pid for worker in workers), children(shoald.pid),
                             "the children of shoald are not the workers that it logged")
            line = shoald.wait_log(r" ready pipelines=1 pid=(\d+)")
            self.assertEqual(int(line[1]), shoald.pid)
            self.assertTrue(shoald.socket.exists() and shoald.counters.exists())
            self.assertEqual(shoald.terminate(), 0, shoald.stderr)
            shoald.check_nothing_left()
            self.assertIn("stopped exit_code=0", shoald.lines[-1])

    def test_sigint(self):
        with Shoald(ECHO) as shoald:
            shoald.signal(signal.SIGINT)
            self.assertEqual(shoald.wait_exit(), 0, shoald.stderr)
            shoald.check_nothing_left()

    def test_sigterm_while_starting(self):
        slow = node(pipeline("p", stage("libpuppet.so", params={"open": "hang"}), slots=16),
                    message_mib=1)
        shoald = Shoald(slow).start()
        try:
            wait_until(lambda: children(shoald.pid), lambda: f"a worker:\n{shoald.stderr}")
            worker, = children(shoald.pid)
            self.assertEqual(shoald.terminate(), 0, shoald.stderr)
            self.assertFalse(is_alive(worker), "the worker that never became ready is still there")
            shoald.check_nothing_left()
            shoald.check_log()
        finally:
            shoald.discard()

    def test_second_sigint_stops_at_once(self):
        config = node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=4),
                      message_mib=1, drain_timeout_ms=3600 * 1000)
        with Shoald(config) as shoald, Client(shoald.target) as client:
            held = client.tell("hold a")
            wait_until((shoald.folder / "a.held").exists, "the request to be running")
            shoald.signal(signal.SIGINT)
            shoald.wait_log("draining why=SIGINT")
            self.assertFalse(held.done(), "the first SIGINT has not waited for what is in flight")
            shoald.signal(signal.SIGINT)
            self.assertEqual(shoald.wait_exit(), 130, shoald.stderr)
            code, text = failure(held)
            self.assertEqual(code.name, "UNAVAILABLE", text)
            shoald.check_nothing_left()

    def test_no_region_is_left(self):
        with Shoald(ECHO) as shoald:
            mapped = regions(shoald.pid)
            self.assertEqual(len(mapped), 1)
            self.assertEqual(who_maps(mapped), {shoald.pid, *children(shoald.pid)},
                             "the region is not mapped by exactly shoald and its workers")
            self.assertEqual(shoald.terminate(), 0)
            self.assertFalse(who_maps(mapped), "somebody still maps the region")

    def test_start_again_in_the_same_place(self):
        with Shoald(ECHO) as shoald:
            for _ in range(3):
                self.assertEqual(shoald.terminate(), 0, shoald.stderr)
                shoald.check_nothing_left()
                shoald.start().wait_ready()
                with Client(shoald.target) as client:
                    self.assertTrue(client.call("ServerReady").ready)


if __name__ == "__main__":
    shoal_fixture.main()
