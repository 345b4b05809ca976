# SPDX-License-Identifier: Apache-2.0
"""shoalctl stat and top show what a node has done: the figures are those of a known load.

A known number of requests is sent, good and bad; the counters must say exactly that, for people and
as JSON, since the start and per interval, of a live node and of a dead one. top runs on a real
terminal (a pty): it fills its screen and no more, and puts everything back. ctest: timeout=180
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import shoal_fixture
from shoal_ctl import (NEGATIVE, OK, UNREACHABLE, counted_refusals, environment, refusals,
                       shoalctl)
from shoal_fixture import BIN, WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until

ECHO = node(pipeline("echo", stage("libecho.so", name="alone"),
                     stage("libecho.so", name="batch", workers=2, batch_size=8, batch_wait_ms=1),
                     slots=32),
            pipeline("other", stage("libecho.so"), slots=16))


def send(shoald, count, *arguments, **options):
    shoalctl("infer", "echo", "--target", shoald.target, "--input", "x=INT8[1]:1", "--repeat",
             count, *arguments, **options)


@contextlib.contextmanager
def calls(model, shoald):
    """Calls one after the other until the block is left."""
    with subprocess.Popen([BIN / "shoalctl", "infer", model, "--target", shoald.target, "--input",
                           "x=INT8[1]:1", "--repeat", "100000000"], stdout=subprocess.DEVNULL,
                          env=environment()) as caller:
        try:
            yield
        finally:
            caller.kill()


def in_ns(text):
    """A duration of a table."""
    number, unit = text.split()
    return float(number) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]


class TestStat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(ECHO))
        send(cls.shoald, 20)
        for _ in range(3):
            send(cls.shoald, 1, "--output", "none", code=NEGATIVE)
        cls.shoald.wait_all_returned("echo")

    def stat(self, *arguments, **options):
        return shoalctl("stat", "--counters", self.shoald.counters, *arguments, **options)

    def test_the_figures_of_a_known_load(self):
        stat = self.stat("--json").json
        self.assertEqual((stat["live"], stat["state"], stat["pid"]),
                         (True, "ready", self.shoald.pid))
        self.assertGreaterEqual(stat["calls"], 23)
        echo, other = stat["pipelines"]
        self.assertEqual((echo["name"], other["name"]), ("echo", "other"))
        self.assertEqual(other["requests"], 0)
        self.assertEqual(echo["requests"], 23)
        self.assertEqual(echo["replies_ok"], 20)
        self.assertEqual((echo["replies_failed"], echo["rejected_invalid"]), (3, 0))
        self.assertEqual(echo["slots_max"], 32)
        latency = echo["latency"]
        self.assertEqual(latency["count"], 23)
        self.assertLessEqual(latency["p50"], latency["p90"])
        self.assertLessEqual(latency["p90"], latency["p99"])
        self.assertGreater(latency["p50"], 0)
        alone, batch = echo["stages"]
        self.assertEqual((alone["name"], batch["name"]), ("alone", "batch"))
        self.assertEqual((alone["workers_live"], batch["workers_live"]), (1, 2))
        self.assertEqual((alone["workers_wanted"], batch["workers_wanted"]), (1, 2))
        self.assertEqual(alone["closed_single"], alone["items"])
        self.assertEqual(alone["batch_items"]["buckets"], [[1, alone["items"]]])
        for one in alone, batch:
            self.assertEqual(one["items"], 23)
            self.assertEqual(one["items"], one["items_ok"])
            self.assertEqual(one["wait"]["count"], one["items"])
            self.assertEqual(one["run"]["count"], one["batches"])
            self.assertEqual(one["batch_items"]["sum"], one["items"])
            for histogram in one["wait"], one["batch_items"]:
                self.assertEqual(sum(count for _, count in histogram["buckets"]),
                                 histogram["count"])
            self.assertEqual(one["batches"], sum(one[key] for key in one
                                                 if key.startswith("closed_")))
            for key in ("items", "batches", "sleeps"):
                self.assertEqual(one[key], sum(worker[key] for worker in one["workers"]))
            for worker in one["workers"]:
                self.assertLess(worker["heartbeat_age_ns"], 60e9)
        self.assertEqual(sorted(worker["pid"] for one in (alone, batch) for worker in one["workers"]),
                         sorted(one.pid for one in self.shoald.workers("echo")))

    def test_the_tables(self):
        out = self.stat().out
        self.assertRegex(out, rf"^node ready, pid {self.shoald.pid}, up ")
        self.assertRegex(out, r"(?m)^pipeline echo\n  requests 23  ok 20  ")
        stat = self.shoald.pipeline_stat("echo")
        self.assertEqual(refusals(out, "echo"), counted_refusals(stat))
        self.assertLess({"rejected_full", "rejected_predicted", "rejected_share"},
                        set(dict(refusals(out, "echo"))))
        latency, = re.findall(rf"(?m)^  in flight 0 of 32  blocks 0 of {stat['blocks_max']}"
                              r"  latency p50 ([\d.]+ \w+) p99 ([\d.]+ \w+)$", out)
        for shown, share in zip(latency, ("p50", "p99")):
            self.assertAlmostEqual(in_ns(shown) / stat["latency"][share], 1, delta=0.01)
        alone, batch = stat["stages"]
        self.assertRegex(out, r"(?m)^  stage +workers +depth +items .* restarts +heartbeat$")
        self.assertRegex(out, rf"(?m)^  batch +2/2 +0 +{batch['items']} +0 +0 ")
        self.assertRegex(out, r"(?m)^  stage +batches +mean +single +full +wait ")
        self.assertRegex(out, rf"(?m)^  alone +{alone['batches']} +1\.0 +{alone['batches']} +0 +0 ")
        closed = " +".join(str(batch[f"closed_{why}"])
                           for why in ("single", "full", "wait", "adaptive"))
        self.assertRegex(out, rf"(?m)^  batch +{batch['batches']} +[\d.]+ +{closed} ")

    def test_one_pipeline_alone(self):
        self.assertNotIn("pipeline echo", self.stat("--pipeline", "other").out)
        one, = self.stat("--pipeline", "other", "--json").json["pipelines"]
        self.assertEqual(one["name"], "other")
        done = self.stat("--pipeline", "nobody", "--json", code=NEGATIVE)
        self.assertIn("nobody", done.json["error"])

    def test_intervals(self):
        lines = self.stat("--interval", "0.05", "--count", "2", "--json").json_lines
        self.assertEqual(len(lines), 2)
        # a line that is late shortens the next interval: the moments are fixed
        self.assertGreater(sum(line["interval_ns"] for line in lines), 80e6)
        for line in lines:
            self.assertGreater(line["interval_ns"], 0)
            self.assertEqual(line["pipelines"][1]["requests"], 0)
            self.assertEqual(line["pipelines"][1]["stages"][0]["workers_live"], 1)  # a gauge stays
    def test_rates(self):
        """Each is its number by the interval."""
        def look():
            """Numbers and rates of an interval, by their names; None: nothing was called in it."""
            out = self.stat("--interval", "0.1", "--count", "1", "--pipeline", "echo").out
            found = {name: (int(number.replace(",", "")), float(rate)) for name, number, rate in
                     re.findall(r"  ([a-z ]+) ([\d,]+) \(([\d.]+)/s\)", out)}
            titles, row = [re.search(rf"(?m)^  {first} .*$", out)[0]
                           for first in ("stage", "alone")]
            self.assertRegex(titles, "^  stage +workers +depth +items +items/s ")
            items, rate = row.split()[3:5]
            found["items"] = int(items.replace(",", "")), float(rate)
            seconds = in_ns(re.search(r"(?m)^  in the last ([\d.]+ \w+):", out)[1]) / 1e9
            return (found, seconds) if {"calls", "requests", "ok"} <= set(found) else None
        with calls("echo", self.shoald):
            found, seconds = wait_until(look, "an interval with calls")
        for name, (number, rate) in found.items():
            self.assertAlmostEqual(rate, number / seconds, delta=0.01 * rate + 0.1, msg=name)


class TestIntervalsAndDeath(unittest.TestCase):
    def test_intervals_count_until_the_node_is_gone(self):
        shoald = Shoald(ECHO)
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        watching = subprocess.Popen(
            [BIN / "shoalctl", "stat", "--counters", shoald.counters, "--interval", "0.05",
             "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        self.assertIn(b"interval_ns", watching.stdout.readline())  # it has its first moment
        send(shoald, 50)
        shoald.wait_all_returned("echo")
        # what it has printed by now and what it prints until it has seen all
        seen = 0
        deadline = time.monotonic() + WAIT_SECONDS
        while seen < 50 and time.monotonic() < deadline:
            line = shoal_fixture.json.loads(watching.stdout.readline())
            seen += line["pipelines"][0]["replies_ok"]
        self.assertEqual(seen, 50)
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=WAIT_SECONDS)
        self.assertEqual((watching.returncode, err), (OK, b""))
        shoald.kill()
        dead = shoalctl("stat", "--counters", shoald.counters, "--json").json
        self.assertFalse(dead["live"])
        self.assertIn("dead_since_unix_ns", dead)
        self.assertEqual(dead["pipelines"][0]["replies_ok"], 50)
        self.assertIn("node dead, was ready", shoalctl("stat", "--counters", shoald.counters).out)

    def test_a_node_that_stops_ends_the_watch(self):
        with Shoald(ECHO) as shoald:
            watching = subprocess.Popen(
                [BIN / "shoalctl", "top", "--counters", shoald.counters, "--interval", "0.05"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            self.assertIn(b"node ready", watching.stdout.readline())  # no terminal: stat --interval
        _, err = watching.communicate(timeout=WAIT_SECONDS)
        self.assertEqual(watching.returncode, UNREACHABLE)
        self.assertIn(b"No such file", err)


class Screen:
    """shoalctl top on a terminal of its own."""

    def __init__(self, rows, columns, *arguments):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([BIN / "shoalctl", "top", "--interval", "0.05", *arguments],
                                        stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env=environment(), start_new_session=True)
        self.out = b""

    def read(self):
        while select.select([self.master], [], [], 0.01)[0]:
            self.out += os.read(self.master, 65536)
        return self.out.decode()

    def wait_for(self, pattern):
        wait_until(lambda: re.search(pattern, self.read(), re.DOTALL),
                   lambda: f"/{pattern}/ on the screen: {self.out!r}")

    def wait_end(self):
        def ended():
            self.read()
            return self.process.poll() is not None
        wait_until(ended, "the end of shoalctl top")
        self.read()
        after = termios.tcgetattr(self.slave)
        assert after == self.before, "the terminal was not put back"
        assert self.out.endswith(b"\033[?25h\033[?1049l"), f"the screen was not put back: {self.out}"
        return self.process.returncode

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class TestTop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(ECHO))

    def screen(self, rows=50, columns=140):
        screen = Screen(rows, columns, "--counters", str(self.shoald.counters))
        self.addCleanup(screen.close)
        return screen

    def test_q_ends_it_and_the_figures_move(self):
        screen = self.screen()
        screen.wait_for(r"\x1b\[\?1049h.*node ready, pid .*pipeline other")
        screen.wait_for(r"in the last")
        send(self.shoald, 3)
        screen.wait_for(r"requests [123] \([\d.]+/s\)")
        os.write(screen.master, b"xq")
        self.assertEqual(screen.wait_end(), OK)

    def test_ctrl_c_and_sigterm_end_it(self):
        for number in signal.SIGINT, signal.SIGTERM:
            screen = self.screen()
            screen.wait_for(r"in the last")
            screen.process.send_signal(number)
            self.assertEqual(screen.wait_end(), OK)

    def test_a_small_screen_is_not_overrun(self):
        """And rows that are cut end with a mark."""
        screen = self.screen(rows=6, columns=30)
        screen.wait_for(r"in the last.*\x1b\[J")
        os.write(screen.master, b"q")
        screen.wait_end()
        for page in screen.out.decode().split("\x1b[H")[1:]:
            lines = page.split("\x1b[J")[0].replace("\r", "").split("\n")
            self.assertLessEqual(len(lines), 6)
            lines = [line.replace("\x1b[K", "") for line in lines]
            for line in lines:
                self.assertLessEqual(len(line), 30)
            self.assertTrue([line for line in lines if len(line) == 30 and line.endswith(">")], lines)

    def test_80_by_24(self):
        """Rows of two pipelines under load are whole; what does not fit is marked, and scrolls."""
        for model in "echo", "other":
            self.enterContext(calls(model, self.shoald))
        screen = self.screen(rows=24, columns=80)

        def under_load():
            pages = re.findall(r"\x1b\[H(.*?)\x1b\[J", screen.read(), re.DOTALL)
            pages = [page.replace("\r", "").replace("\x1b[K", "") for page in pages]
            found = [page for page in pages if all(re.search(pattern, page) for pattern in (
                "in the last", r"pipeline echo\n  requests [\d,]+ \(",
                r"pipeline other\n  requests [\d,]+ \("))]
            return found if len(found) > 5 else None
        for page in wait_until(under_load, lambda: f"pages with rates: {screen.out!r}"):
            rows = page.split("\n")
            self.assertLessEqual(len(rows), 24)
            self.assertEqual([row for row in rows if len(row) > 80 or row.endswith(">")], [])
        screen = self.screen(rows=8, columns=80)
        screen.wait_for(r"-- lines 1 to 7 of \d+; arrows, space, b scroll --")
        for keys, first in (b"j", 2), (b"\x1b[B", 3), (b"k", 2), (b"\x1b[6~", 8), (b"b", 2):
            os.write(screen.master, keys)
            screen.wait_for(rf"-- lines {first} to {first + 6} of ")
            screen.out = b""
        os.write(screen.master, b"q")
        self.assertEqual(screen.wait_end(), OK)

    def test_without_a_node(self):
        screen = Screen(24, 80, "--counters", "/nowhere/counters")
        self.addCleanup(screen.close)
        wait_until(lambda: screen.process.poll() is not None, "the end of shoalctl top")
        self.assertEqual(screen.process.returncode, UNREACHABLE)
        self.assertNotIn("\x1b", screen.read())


if __name__ == "__main__":
    shoal_fixture.main()
