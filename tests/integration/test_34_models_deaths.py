# SPDX-License-Identifier: Apache-2.0
"""Models and workers that die: callers of loaded models do not notice.

Callers ask 20 models at once, over gRPC, and check each answer: it must be that model's, and none
may fail, while workers are killed, loads crash or hang, files vanish, and the pipeline is reloaded.
Models do what their key says (tests/modelets/shelf.h).
ctest: timeout=240 presets=dev
"""

import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import threading
import unittest

import shoal_fixture
from shoal_client import Client, outcome
from shoal_fixture import BIN, Shoald, node, pipeline, stage, wait_until
from shoal_loads import LOAD, UNLOAD, ask_node

MODELS = 20
WORDS, FACTS = struct.Struct("<3q"), struct.Struct("<10q")
FACT_MODEL = 8  # of the answer: probe.h
SLOW = 9


class Callers:
    """While the block runs: `threads` callers, each with `at_once` requests in flight."""

    def __init__(self, target, threads=2, at_once=4):
        self.target, self.at_once = target, at_once
        self.ends = threading.Event()
        self.asked = 0
        self.wrong = []
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True)
                        for n in range(threads)]

    def run(self, seed):
        draw = random.Random(seed)
        with Client(self.target) as client:
            while not self.ends.is_set():
                asked = []
                for _ in range(self.at_once):
                    model = draw.randrange(MODELS)
                    words = WORDS.pack(SLOW, draw.randrange(3), model)
                    asked.append((model, client.start_raw(f"m{model}",
                                                          ("probe", "INT64", [3], words))))
                for model, call in asked:
                    self.check(model, call)

    def check(self, model, call):
        code = outcome(call)
        self.asked += 1
        if code.name != "OK":
            self.wrong.append((model, code.name, call.details()))
        elif FACTS.unpack(call.result().raw_output_contents[0])[FACT_MODEL] != model:
            self.wrong.append((model, "the answer of another"))

    def wait(self, more):
        """Until so many more have been answered."""
        least = self.asked + more
        wait_until(lambda: self.asked >= least, f"{more} more answers")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()


class TestDeaths(unittest.TestCase):
    load_timeout_ms = 20000

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))
        root = self.folder / "models"
        root.mkdir()
        for n in range(MODELS + 5):
            (root / f"m{n}").write_text(f"{n}")
        self.root = root
        models = {"root": "models", "memory_mib": 64, "watch": "no",
                  "load_timeout_ms": self.load_timeout_ms}
        config = node(pipeline("shelf", stage("libshelf.so", workers=2), models=models, slots=64))
        # a worker that crashes is to die of the signal, and not to explain it
        quiet = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
        self.shoald = self.enterContext(Shoald(config, folder=self.folder, env=quiet))
        self.control = f"{self.shoald.counters}.control"
        for n in range(MODELS):
            ask_node(self.control, LOAD, f"m{n}", f"m{n}")

    def stat(self):
        return self.shoald.pipeline_stat("shelf")

    def all_well(self, callers):
        self.assertEqual(callers.wrong, [])
        self.assertGreater(callers.asked, 0)
        stat = self.shoald.wait_all_returned("shelf")
        self.assertEqual((stat["replies_failed"], stat["poison"], stat["region_resets"]), (0, 0, 0))
        return stat

    def refused(self, *arguments):
        """shoalctl's text for a load that fails."""
        done = subprocess.run(
            [BIN / "shoalctl", "model", "load", "--counters", self.shoald.counters, *arguments],
            capture_output=True, text=True, timeout=shoal_fixture.WAIT_SECONDS)
        self.assertNotEqual(done.returncode, 0)
        return done.stdout + done.stderr

    def test_kill_9(self):
        with Callers(self.shoald.target) as callers:
            for n in range(12):
                callers.wait(20)
                worker = next(w for w in self.shoald.workers() if w.index == n % 2)
                os.kill(worker.pid, signal.SIGKILL)
                self.shoald.wait_successor(worker)
            callers.wait(100)
        stat = self.all_well(callers)
        self.assertEqual(stat["models_loaded"], MODELS)
        self.assertEqual(stat["model_loads_failed"], 0)

    def test_loads_that_kill(self):
        with Callers(self.shoald.target) as callers:
            callers.wait(20)
            for key in ("crash", "exit"):
                self.assertIn("workers died while they loaded it",
                              self.refused(f"x-{key}", f"m{MODELS}", "--key", key))
                callers.wait(20)
            self.assertIn("told to fail x-fail",
                          self.refused("x-fail", f"m{MODELS}", "--key", "fail"))
            callers.wait(100)
        self.all_well(callers)
        self.assertEqual(self.shoald.stage_stat("shelf", "shelf")["restarts"], 4)

    def test_reload(self):
        with Callers(self.shoald.target) as callers:
            for _ in range(3):
                callers.wait(50)
                done = subprocess.run(
                    [BIN / "shoalctl", "reload", "--counters", self.shoald.counters, "shelf"],
                    capture_output=True, text=True, timeout=shoal_fixture.WAIT_SECONDS)
                self.assertEqual(done.returncode, 0, done.stderr)
            callers.wait(100)
            ask_node(self.control, LOAD, "late", f"m{MODELS}")
            ask_node(self.control, UNLOAD, "late")
        stat = self.all_well(callers)
        self.assertEqual((stat["models_loaded"], stat["model_returns"]), (MODELS, 0))


class TestHangs(TestDeaths):
    """A time-out that only a load that hangs exceeds, however busy the machine is."""

    load_timeout_ms = 5000
    test_kill_9 = test_loads_that_kill = test_reload = None

    def test_stuck(self):
        with Callers(self.shoald.target) as callers:
            callers.wait(20)
            self.assertIn("it was not loaded within load_timeout_ms (5000)",
                          self.refused("stuck", f"m{MODELS}", "--key", "stuck"))
            callers.wait(200)
        self.all_well(callers)
        found = self.shoald.stage_stat("shelf", "shelf")
        self.assertEqual((found["load_timeouts"], found["restarts"], found["quarantines"]),
                         (2, 2, 0))


if __name__ == "__main__":
    shoal_fixture.main()
