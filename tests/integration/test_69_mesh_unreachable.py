# SPDX-License-Identifier: Apache-2.0
"""The output of `shoalctl mesh nodes` for nodes that cannot be reached, and of a node that cannot
reach etcd: real daemons and a real etcd on loopback (shoal_meshes.py), which are killed and
stopped.

Proves: a node that was killed, or hangs, is marked by the node that has noticed, while its
lease still lasts; the mark goes when it answers again, without a call; a node without etcd says
since when, and the leader is the same in the list as in the counters. ctest: timeout=300
"""

import json
import signal
import time
import unittest

from shoal_ctl import shoalctl
from shoal_fixture import main, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_pupil import Rig, said

NAMES = ["node-a", "node-b"]


class TestUnreachable(Rig, unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        rules = json.dumps({"only-b": {"required": ["node-b"]}})
        self.nodes = self.enterContext(Nodes(
            self.etcd, NAMES, mesh={"type_constraints": rules},
            each={"node-b": {"mesh": {"type_constraints": rules, "labels": ["node-b"]}}}))

    def list(self, name, *options):
        return shoalctl("mesh", "nodes", "--counters", self.nodes[name].counters, *options)

    def rows(self, name):
        return {row["id"]: row for row in self.list(name, "--json").json_lines}

    def since(self, name, asked, field):
        """Of a node's row in the list of the node that is asked; None: it has no row, as its key
        has gone."""
        return self.rows(asked).get(name, {}).get(field)

    def connect(self):
        """A call at node-a that node-b serves."""
        registrar = self.nodes.at("node-a")
        wait_until(lambda: "node-b" in self.rows("node-a"), "node-a to hear of node-b")
        registrar.register("m", kind="only-b")
        self.assertEqual(said(registrar.infer("m")), "m")
        self.assertEqual(self.rows("node-a")["node-b"]["unreachable_since_ms"], 0)
        self.assertNotIn("unreachable", self.list("node-a").out)

    def check_marked(self, before_ms):
        row = wait_until(lambda: [row for row in [self.rows("node-a").get("node-b")]
                                  if row is None or row["unreachable_since_ms"] > 0], "the mark")[0]
        self.assertIsNotNone(row, "its lease has ended before")
        self.assertGreaterEqual(row["unreachable_since_ms"], before_ms - 1)
        self.assertLessEqual(row["unreachable_since_ms"], time.time() * 1000 + 1)
        out = self.list("node-a").out
        self.assertRegex(out, r"(?m)^  node-b .* unreachable ")
        self.assertRegex(out, r"(?m)^node-b: unreachable from here since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(self.rows("node-a")["node-a"]["unreachable_since_ms"], 0)

    def test_killed(self):
        self.connect()
        before_ms = time.time() * 1000
        self.nodes["node-b"].kill()
        self.check_marked(before_ms)
        self.assertIn("node-b", self.etcd.keys("/tas-runtime/test/instances/"))
        self.nodes["node-b"].start().wait_ready()
        wait_until(lambda: self.since("node-b", "node-a", "unreachable_since_ms") == 0, "it to be back")

    def test_it_hangs(self):
        self.connect()
        process = self.nodes["node-b"].process
        before_ms = time.time() * 1000
        process.send_signal(signal.SIGSTOP)
        try:
            self.check_marked(before_ms)
        finally:
            process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.since("node-b", "node-a", "unreachable_since_ms") == 0,
                   "it to answer again, without a call")

    def leaders(self, name):
        """As its list says, and whether its counter says that it is the one."""
        rows = self.rows(name)
        return [row["id"] for row in rows.values() if row["leads"]], bool(self.nodes[name].stat()["mesh_leads"])

    def test_cut_off_from_etcd(self):
        self.connect()
        self.assertEqual(self.rows("node-a")["node-a"]["store_silent_since_ms"], 0)
        leader, = wait_until(lambda: self.leaders("node-a")[0], "a leader")
        for name in NAMES:
            wait_until(lambda: self.leaders(name) == ([leader], leader == name), lambda: self.leaders(name))
        before_ms = time.time() * 1000
        self.etcd.stop()
        for name in NAMES:
            wait_until(lambda: (self.since(name, name, "store_silent_since_ms") or 0) >= before_ms - 1,
                       f"{name} to notice")
            self.assertRegex(self.list(name).out, rf"(?m)^{name}: no answer from etcd since 20\d\d-\d\d-\d\dT")
        for name in NAMES:
            self.nodes[name].wait_log("mesh_session_lost")
            wait_until(lambda: self.leaders(name) == ([], False), lambda: (name, self.leaders(name)))
        self.etcd.start()
        for name in NAMES:
            wait_until(lambda: self.since(name, name, "store_silent_since_ms") == 0, f"{name} to hear of it")
        for name in NAMES:
            def look():
                ids, itself = self.leaders(name)
                return len(ids) == 1 and itself == (ids == [name])
            wait_until(look, lambda: (name, self.leaders(name)))


if __name__ == "__main__":
    main()
