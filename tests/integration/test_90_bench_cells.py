# SPDX-License-Identifier: Apache-2.0
"""Every cell of the bench that test_90_bench.py leaves out runs, and reports all its figures.

They are no part of the suite: each starts servers and clients, dozens of times, which takes minutes;
most of them on CPUs of their own, where two that hand over to each other hardly go on if others run
there, too.

ctest: timeout=1200 presets=release serial soak because its programs keep pinned CPUs busy
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import shoal_fixture
from shoal_bench import BenchTest
from shoal_fixture import BUILD, SOURCE


class TestCells(BenchTest):
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

    @unittest.skipIf(shutil.which("callgrind_control") is None, "there is no valgrind")
    def test_instructions(self):
        roles = "client", "coordinator", "normalize", "classify", "label"
        modes = "off", "on", "adaptive"
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            path, other = pathlib.Path(folder, "counted.json"), pathlib.Path(folder, "other.json")
            other.write_text(json.dumps({mode: {role: {"Shoal": 1} for role in roles} for mode in modes}))
            run = [sys.executable, SOURCE / "tests" / "bench" / "instructions.py", "--build", BUILD]
            done = subprocess.run(list(map(str, [*run, "--requests", 200, "--json", path,
                                                 "--against", other])),
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            counted = json.loads(path.read_text())
        self.assertEqual(counted["options"], {"requests": 200, "outstanding": 128})
        self.assertEqual(done.stdout.count(", NOT met"), 2, done.stdout)
        for mode in modes:
            self.assertEqual(set(counted[mode]), set(roles))
            for role in roles:
                self.assertTrue(all(count > 100 for count in counted[mode][role].values()),
                                f"{mode}, {role}: {counted[mode][role]}")
        # one call of the library for many images, which is what batching is for
        self.assertLess(counted["on"]["classify"]["XGBoost"],
                        counted["off"]["classify"]["XGBoost"] / 2)

    def test_models(self):
        self.check_goals(self.check_cell("models", "free"), ("models",))

    def test_picker(self):
        self.check_goals(self.check_cell("picker", "pinned"), ("picker-1k", "picker-220k"))

    def test_mesh(self):
        self.check_goals(self.check_cell("mesh", "free"), ("mesh-local", "mesh-forwarded"))

    def test_register(self):
        self.check_goals(self.check_cell("register", "free"), ("register",))

    def test_http(self):
        if shutil.which("wrk") is None:
            self.skipTest("wrk is not installed")
        there = shutil.which("nginx", path="/usr/sbin:/usr/bin")
        report = self.check_cell("http", "pinned", absent=() if there else ("nginx",))
        if there:
            self.check_goals(report, ("http-cpu",))

    def test_gateway(self):
        for program in ("wrk", "nginx", "haproxy"):
            if shutil.which(program, path="/usr/sbin:/usr/bin") is None:
                self.skipTest(f"{program} is not installed")
        self.check_goals(self.check_cell("gateway", "pinned"),
                         ("gateway-1k", "gateway-220k", "gateway-lag", "gateway-stream", "gateway-memory",
                          "gateway-idle"))

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

    @unittest.skipUnless((BUILD / "lib/shoal/libpython_modelet.so").exists(), "not built")
    def test_python(self):
        self.check_goals(self.check_cell("python", "pinned"), ("python-rate", "python-run"))

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
