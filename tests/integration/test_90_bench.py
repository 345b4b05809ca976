# SPDX-License-Identifier: Apache-2.0
"""The bench still measures: its programs, and tests/bench/run.py for a blink (shoal_bench.py) on one of
its cells; test_90_bench_cells.py has the others.

ctest: timeout=300
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import shoal_fixture
from shoal_bench import RELEASE, BenchTest
from shoal_fixture import BUILD, Shoald, node, pipeline, stage

PROGRAMS = ("grpc_load", "local_load", "echo_server", "ring_bench", "pipeline_bench", "xgboost_bench",
            "extproc_load", "model_backend", "stream_load")


@RELEASE
class TestPrograms(unittest.TestCase):
    def test_help(self):
        for name in PROGRAMS:
            done = subprocess.run([BUILD / "bench" / name, "--help"], capture_output=True,
                                  text=True, timeout=shoal_fixture.WAIT_SECONDS, check=False)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertIn(f"Usage: {name}", done.stdout)

    def test_wrong_use(self):
        for name in PROGRAMS:
            done = subprocess.run([BUILD / "bench" / name, "--no-such-option"], capture_output=True,
                                  text=True, timeout=shoal_fixture.WAIT_SECONDS, check=False)
            self.assertEqual(done.returncode, 2, f"{name}: {done.stdout}")
            self.assertIn(f"Usage: {name}", done.stderr)


@RELEASE
class TestLoad(unittest.TestCase):
    """grpc_load before the bare echo server."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shoal-test."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.target = f"unix:{self.folder}/echo.sock"
        self.server = subprocess.Popen(
            [BUILD / "bench" / "echo_server", "--arg", "grpc.enable_channelz=0", self.target],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.terminate)
        self.assertEqual(self.server.stdout.readline(), f"listening {self.target}\n")

    def load(self, message, tail, *arguments):
        for name, content in (("message", message), ("tail", tail)):
            (self.folder / name).write_bytes(content)
        command = [BUILD / "bench" / "grpc_load", "--json", "--target", self.target, "--message",
                   self.folder / "message", "--expect-tail", self.folder / "tail",
                   "--warmup", "20", *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              timeout=shoal_fixture.WAIT_SECONDS)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads(done.stdout)

    def test_messages_in_turn(self):
        code, line = self.load(b"oneAtwoBsixC", b"ABC", "--messages", 3, "--requests", 30)
        self.assertEqual((code, line["requests"], line["wrong"]), (0, 30, 0))

    def test_wrong_tails_are_seen(self):
        code, line = self.load(b"oneAtwoBsixC", b"ABB", "--messages", 3, "--requests", 30)
        self.assertEqual((code, line["requests"], line["wrong"]), (1, 30, 10))

    def test_answers_in_several_pieces(self):
        large = os.urandom(300000)
        self.assertEqual(self.load(large, large, "--requests", 5)[1]["wrong"], 0)
        self.assertEqual(self.load(large, large[-1000:], "--requests", 5)[1]["wrong"], 0)
        flipped = bytes([large[0] ^ 1]) + large[1:]
        self.assertEqual(self.load(large, flipped, "--requests", 5)[1]["wrong"], 5)
        flipped = large[:-1] + bytes([large[-1] ^ 1])
        self.assertEqual(self.load(large, flipped, "--requests", 5)[1]["wrong"], 5)

    def test_open_loop(self):
        code, line = self.load(b"message", b"age", "--rate", 2000, "--seconds", 0.5)
        self.assertEqual((code, line["wrong"], line["rate"]), (0, 0, 2000))
        # that many on average: chance alone stays within ten standard deviations
        self.assertTrue(680 < line["requests"] < 1320, line)
        shares = [share for share, _ in line["distribution"]]
        values = [us for _, us in line["distribution"]]
        self.assertEqual((shares[0], shares[-1], values), (0, 1, sorted(values)))

    def test_open_loop_counts_from_when_a_call_was_due(self):
        """Ten times more calls are due than can be sent, 16 at a time. Each one's latency holds the
        time it had to wait in the client; were it counted from sending, it would be a small part of
        that."""
        _, line = self.load(b"message", b"age", "--rate", 1000000, "--seconds", 0.02,
                            "--outstanding", 16)
        self.assertGreater(line["requests"], 18000)
        self.assertGreater(line["lag_p50_us"], 20000)
        for percentile in ("p50_us", "p99_us"):
            self.assertGreaterEqual(line[percentile], line[f"lag_{percentile}"])


@RELEASE
class TestLocalLoad(unittest.TestCase):
    """local_load before a node."""

    def load(self, shoald, pipeline, *arguments):
        command = [BUILD / "bench" / "local_load", "--json", "--pipeline", pipeline, "--socket",
                   f"{shoald.counters}.local", "--warmup", "20", *arguments]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              timeout=shoal_fixture.WAIT_SECONDS)

    def test_answers(self):
        local = {"local_clients": 1, "local_slots": 16}
        with Shoald(node(pipeline("echo", stage("libecho.so"), **local),
                         pipeline("scale", stage("libscale.so"), **local))) as shoald:
            for arguments in ((), ("--outstanding", 16), ("--bytes", 70000, "--outstanding", 4)):
                done = self.load(shoald, "echo", "--requests", 100, *arguments)
                self.assertEqual(done.returncode, 0, done.stderr)
                line = json.loads(done.stdout)
                self.assertEqual((line["requests"], line["failed"], line["wrong"]), (100, 0, 0))
                values = [us for _, us in line["distribution"]]
                self.assertEqual(values, sorted(values))
            done = self.load(shoald, "scale", "--requests", 30)
            self.assertEqual((done.returncode, json.loads(done.stdout)["wrong"]), (1, 30))
            done = self.load(shoald, "nobody", "--requests", 30)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("nobody", done.stderr)


class TestBench(BenchTest):
    def test_stages(self):
        self.check_goals(self.check_cell("stages", "free"), ("stage",))


if __name__ == "__main__":
    shoal_fixture.main()
