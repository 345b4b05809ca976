# SPDX-License-Identifier: Apache-2.0
"""The bench still measures: tests/bench/run.py, for a blink, on the real programs of a release build.

What it measures in so short a time is worth nothing and is not looked at. That each contender ran,
answered every request rightly and gave every figure is: run.py fails a round in which one answer was
wrong. The page is made of it, too. Other builds are skipped: what sanitizers slow down is no yardstick.
ctest: timeout=600
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import shoal_fixture
from shoal_fixture import BUILD, SOURCE, Shoald, node, pipeline, stage

sys.path.insert(0, str(SOURCE / "tests" / "bench"))

import groups  # pylint: disable=wrong-import-position

def is_release():
    """By what the build folder says of itself."""
    cache = BUILD / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", text, re.M)
    sanitize = re.search(r"^SHOAL_SANITIZE:\w+=(.*)$", text, re.M)
    return kind is not None and kind[1] == "RelWithDebInfo" and not (sanitize and sanitize[1])


RELEASE = unittest.skipUnless(is_release(), f"{BUILD} is not a release build")
PROGRAMS = ("grpc_load", "local_load", "echo_server", "ring_bench", "pipeline_bench", "xgboost_bench")


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
        _, line = self.load(b"message", b"age", "--rate", 1000000, "--seconds", 0.1,
                            "--outstanding", 16)
        self.assertGreater(line["requests"], 90000)
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


@RELEASE
@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "the bench wants two CPUs")
class TestBench(unittest.TestCase):
    """Every cell, with all its contenders and cases."""

    def run_bench(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            path = pathlib.Path(folder, "performance.json")
            run = [sys.executable, SOURCE / "tests" / "bench" / "run.py", "--build", BUILD]
            command = run + ["--rounds", "1", "--seconds", "0.03", "--json", path, *arguments]
            done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            report = json.loads(path.read_text())
            self.assertEqual(report["failed"], {}, done.stdout)
            subprocess.run(list(map(str, [*run, "--report", path])), check=True,
                           stdout=subprocess.DEVNULL)
            return report, pathlib.Path(folder, "performance.md").read_text()

    def check_cell(self, cell, placement, absent=()):
        report, text = self.run_bench("--only", cell, "--placement", placement)
        small = {part for part, why in report["skipped"].items() if "MiB of memory" in why}
        self.assertEqual(sorted(set(report["skipped"]) - small),
                         sorted(f"{cell}: {name}" for name in absent))
        for group in groups.GROUPS:
            if group.name.split()[0] != cell:
                continue
            self.assertIn(f"### {group.title}", text)
            for case in group.cases:
                for name in group.contenders(case):
                    if f"{group.name}: {name}" not in report["skipped"]:
                        self.check_case(report["cells"][placement][group.name], case, name, group)
        return report

    def check_case(self, cell, case, name, group):
        figures = cell[name].get(case.name)
        if case.fraction and figures is None:
            return  # beyond its capacity
        where = f"{group.name}, {name}, {case.name}: {figures}"
        shown = {figure for figure, _ in group.figures}
        self.assertTrue(set(figures) & shown, where)
        for figure in set(figures) & shown:
            self.assertEqual(len(figures[figure]), 1, where)
            # a server that nobody calls may well have done nothing for so short a time
            least = 0 if group.name == "idle" else sys.float_info.min
            self.assertGreaterEqual(figures[figure][0], least, f"{figure}: {where}")
        if case.fraction:
            self.assertGreater(len(figures["distribution"]), 5, where)

    def check_goals(self, report, names):
        judged = {goal["name"]: goal["placements"] for goal in report["goals"]}
        for name in names:
            self.assertIn(name, judged)

    def test_echo(self):
        report = self.check_cell("echo", "pinned")
        self.check_goals(report, ("echo-rate-100", "echo-rate-4k", "echo-lone-100", "echo-lone-4k"))
        if "echo 1 MiB: shoal_1" not in report["skipped"]:
            self.check_goals(report, ("echo-rate-1m-16", "echo-rate-1m-128"))

    def test_local(self):
        report = self.check_cell("local", "pinned")
        self.check_goals(report, ("local-lone", "local-grpc"))
        for figures in report["cells"]["pinned"]["local 100 B"].values():
            self.assertGreater(len(figures["1 outstanding"]["distribution"]), 5)

    def test_digits(self):
        help_text = subprocess.run([BUILD / "bin" / "shoald", "--help-config=markdown"],
                                   capture_output=True, text=True, check=True).stdout
        absent = () if "`batch_wait`" in help_text else ("adaptive",)
        report = self.check_cell("digits", "free", absent)
        self.check_goals(report, ("batching",) + (() if absent else ("adaptive", "adaptive-lone")))
        digits = report["cells"]["free"]["digits"]
        for name in ("off", "wait_0", "wait_2"):
            sizes = digits[name]["128 outstanding"]["batch_sizes"]
            largest = max(size for size, _ in sizes)
            self.assertTrue(largest == 1 if name == "off" else 1 < largest <= 64, sizes)

        for figure in ("coordinator_cpu_us", "classify_cpu_us", "others_cpu_us"):
            self.assertGreater(digits["wait_2"]["128 outstanding"][figure][0], 0)

    @unittest.skipIf(shutil.which("callgrind_control") is None, "there is no valgrind")
    def test_instructions(self):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            path = pathlib.Path(folder, "counted.json")
            run = [sys.executable, SOURCE / "tests" / "bench" / "instructions.py", "--build", BUILD]
            done = subprocess.run(list(map(str, [*run, "--requests", 200, "--json", path])),
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            counted = json.loads(path.read_text())
        roles = {"client", "coordinator", "normalize", "classify", "label"}
        for mode in ("off", "on", "adaptive"):
            self.assertEqual(set(counted[mode]), roles)
            for role in roles:
                self.assertTrue(all(count > 100 for count in counted[mode][role].values()),
                                f"{mode}, {role}: {counted[mode][role]}")
        # one call of the library for many images, which is what batching is for
        self.assertLess(counted["on"]["classify"]["XGBoost"],
                        counted["off"]["classify"]["XGBoost"] / 2)

    def test_models(self):
        self.check_goals(self.check_cell("models", "free"), ("models",))

    def test_mesh(self):
        self.check_goals(self.check_cell("mesh", "free"), ("mesh-local", "mesh-forwarded"))

    def test_stages(self):
        self.check_goals(self.check_cell("stages", "pinned"), ("stage",))

    def test_service(self):
        self.check_goals(self.check_cell("service", "pinned"), ("service-rate", "service-lone-grpc"))

    def test_ring_and_idle(self):
        self.check_goals(self.check_cell("ring", "pinned"), ("ring-stream", "ring-hop"))
        report = self.check_cell("idle", "pinned")
        self.check_goals(report, ("idle",))
        self.assertEqual(report["cells"]["pinned"]["idle"]["shoal_4"]["idle"]["processes"], [5])


if __name__ == "__main__":
    shoal_fixture.main()
