# SPDX-License-Identifier: Apache-2.0
"""A node whose wall clock is off by an hour, or a day, in a mesh of three: real daemons and a real
etcd on loopback (shoal_meshes.py); clock_skew.c shifts the clock of one.

Proves: that node's stamps in records are in the others' time, its own start included; it loads and
evicts as the others do, and nobody's call fails; its log, its counters and the list of nodes name
the skew; a clock that is set while the node runs moves no stamp.
ctest: timeout=300
"""

import json
import os
import pathlib
import time
import unittest

from shoal_ctl import shoalctl
from shoal_fixture import main, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_pupil import MIB, key, said

NAMES = ["node-a", "node-b", "node-c"]
SKEWED = "node-c"
INSTANCES, MODELS = (f"/tas-runtime/test/{what}/" for what in ("instances", "registry"))
SHIM = pathlib.Path(os.environ["SHOAL_BUILD_DIR"]) / "tests" / "integration" / "clock_skew.so"
HOUR, DAY = 3600, 86400
NEAR_MS = 60000  # a test takes less, and no skew is as small
MODELS_EACH = 6  # that a node has room for, about


class SkewedNodes(Nodes):
    def __init__(self, etcd, skew_s):
        rules = json.dumps({f"only-{name}": {"required": [name]} for name in NAMES})
        super().__init__(etcd, NAMES, models={"memory_mib": 40, "default_size_mib": 4},
                         each={name: {"mesh": {"type_constraints": rules, "labels": [name]}} for name in NAMES})
        node = self.nodes[SKEWED]
        self.file = node.folder / "skew"
        node.env |= {"LD_PRELOAD": str(SHIM), "CLOCK_SKEW_FILE": str(self.file),
                     "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        self.set(skew_s)

    def set(self, skew_s):
        new = self.file.with_suffix(".new")
        new.write_text(str(skew_s))
        new.rename(self.file)


class TestClocks(unittest.TestCase):
    def mesh(self, skew_s):
        self.etcd = self.enterContext(Etcd())
        self.nodes = self.enterContext(SkewedNodes(self.etcd, skew_s))
        for node in self.nodes.nodes.values():
            wait_until(lambda node=node: node.stat()["mesh_clocks"] == 3, "three clocks")

    def check_named(self, skew_s):
        found = self.nodes[SKEWED].wait_log(r"mesh_clock_skewed skew_ms=(-?\d+) clocks=\d ")
        self.assertAlmostEqual(int(found[1]) / 1000, skew_s, delta=10)
        self.assertNotIn("mesh_clock_skewed", self.nodes["node-a"].stderr)
        off_ns = wait_until(lambda: self.nodes[SKEWED].stat()["mesh_clock_skew"], "the gauge")
        self.assertAlmostEqual(off_ns / 1e9, abs(skew_s), delta=10)
        for name in NAMES:
            listed = wait_until(lambda name=name: self.ahead(name)[SKEWED], f"{name} to know")
            self.assertAlmostEqual(float(listed), skew_s, delta=10)
            self.assertEqual([self.ahead(name)[right] for right in NAMES if right != SKEWED], ["", ""])
        self.assertIn("run chrony or ntpd there", self.list("node-a").out)

    def list(self, name, *options):
        return shoalctl("mesh", "nodes", "--counters", self.nodes[name].counters, *options)

    def ahead(self, name):
        return {row["id"]: row["clock_ahead_seconds"] for row in self.list(name, "--json").json_lines}

    def check_near(self, stamp_ms, what):
        self.assertLess(abs(stamp_ms - time.time() * 1000), NEAR_MS, what)

    def check_stamps(self, model):
        """The model is loaded at the node with the wrong clock alone."""
        now_ms = time.time() * 1000
        start_ms = wait_until(lambda: self.start_ms() if self.start_ms() < now_ms + NEAR_MS else None,
                              "a start that is not in the future")
        registrar = self.nodes.at("node-a")
        registrar.register(model, kind=f"only-{SKEWED}", loadNow=True, sync=True)
        self.assertEqual(said(registrar.infer(model)), model)
        record = json.loads(self.etcd.get(MODELS + model))
        self.check_near(record["instanceIds"][SKEWED], record)
        self.check_near(record["loaded"][SKEWED], record)
        self.assertLess(start_ms, record["instanceIds"][SKEWED] + 1)

    def start_ms(self):
        return json.loads(self.etcd.get(INSTANCES + SKEWED))["startTime"]

    def fill(self):
        """More models than there is room for, each called at each node in turn, twice over."""
        registrar = self.nodes.at("node-a")
        names = [f"m{i}" for i in range(3 * MODELS_EACH * 3 // 2)]
        for name in names:
            registrar.register(name, key=key(bytes=6 * MIB))
        for i, name in enumerate(2 * names):
            self.assertEqual(said(self.nodes.at(NAMES[i % 3]).infer(name)), name)
        return names

    def check_serves(self):
        names = self.fill()
        for name in NAMES:
            wait_until(lambda name=name: self.nodes[name].stat()["mesh_evictions"] >= 3,
                       f"{name} to have evicted")
        for name in [*names, "m"]: # a drain of full nodes takes its grace
            self.nodes.at("node-a").unregister(name)

    def test_an_hour_ahead(self):
        self.mesh(HOUR)
        self.check_named(HOUR)
        self.check_stamps("m")
        self.check_serves()

    def test_a_day_behind(self):
        self.mesh(-DAY)
        self.check_named(-DAY)
        self.check_stamps("m")
        self.check_serves()

    def test_set_while_it_runs(self):
        self.mesh(0)
        self.check_stamps("before")
        self.nodes.set(HOUR)
        self.check_stamps("at-once")
        self.check_named(HOUR)
        self.check_stamps("after")
        self.nodes.set(0)
        self.nodes[SKEWED].wait_log("mesh_clock_right")


main()
