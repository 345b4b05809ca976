# SPDX-License-Identifier: Apache-2.0
"""The bench still measures: tests/bench/run.py, for a blink, on the real programs of a release build.

What it measures in so short a time is worth nothing and is not looked at. That each contender ran,
answered every request rightly and gave every figure is: run.py fails a round in which one answer was
wrong. Other builds are skipped: what sanitizers slow down is no yardstick. ctest: timeout=300
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import shoal_fixture
from shoal_fixture import BUILD, SOURCE

FIGURES = ("requests_per_s", "p50_us", "p99_us", "cpu_us_per_request")


def is_release():
    """By what the build folder says of itself."""
    cache = BUILD / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", text, re.M)
    sanitize = re.search(r"^SHOAL_SANITIZE:\w+=(.*)$", text, re.M)
    return kind is not None and kind[1] == "RelWithDebInfo" and not (sanitize and sanitize[1])


RELEASE = unittest.skipUnless(is_release(), f"{BUILD} is not a release build")
PROGRAMS = ("grpc_load", "echo_server", "ring_bench", "pipeline_bench")


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
@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "the bench wants two CPUs")
class TestBench(unittest.TestCase):
    def run_bench(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            path = pathlib.Path(folder, "report.json")
            command = [sys.executable, SOURCE / "tests" / "bench" / "run.py", "--build", BUILD]
            command += ["--rounds", "1", "--seconds", "0.05", "--json", path, *arguments]
            done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(path.read_text()), done.stdout

    def check_measured(self, figures, names, prefixes):
        for name in names:
            for prefix in prefixes:
                for outstanding in (1, 16, 128):
                    for figure in FIGURES:
                        key = f"{prefix}{outstanding} {figure}"
                        self.assertGreater(figures[name][key]["median"], 0, f"{name}: {key}")

    def test_echo(self):
        report, printed = self.run_bench("--only", "echo")
        self.assertEqual((report["skipped"], report["failed"]), ({}, {}), printed)
        self.check_measured(report["cells"]["echo"], ("bare", "shoal"), ("unix ", "tcp "))
        self.assertEqual(len(report["goals"]), 2, printed)

    def test_service(self):
        report, printed = self.run_bench("--only", "service")
        self.assertEqual((report["skipped"], report["failed"]), ({}, {}), printed)
        self.check_measured(report["cells"]["service"], ("python", "shoal", "shoal_grpc"), ("",))
        self.assertEqual(len(report["goals"]), 4, printed)


if __name__ == "__main__":
    shoal_fixture.main()
