# SPDX-License-Identifier: Apache-2.0
"""A node is told to end that alone may hold a model, by its labels: two real daemons over etcd,
with an external runtime each, and with pipelines, whose calls pass the mesh's core by.

Proves: both nodes go on answering calls for the model through the drain, to the end of its time,
and none fails before; calls under way then are answered; those that come later are UNAVAILABLE at
both nodes, and so they are when the node has gone. A drain without calls does not wait.
ctest: timeout=180
"""

import json
import threading
import time
import unittest

import grpc

from shoal_client import failure
from shoal_ctl import shoalctl
from shoal_fixture import WAIT_SECONDS, Shoald, main, wait_until
from shoal_meshes import Etcd, mesh_node
from shoal_registry import LOADED, Registrar
from shoal_runtime import Runtime

Code = grpc.StatusCode
NAMES = ("node-a", "node-b")
ANY = "/x.Y/Z"
DRAIN_MS = 4000
SERVES_MS = DRAIN_MS * 3 // 4  # the rest is for what is under way then
HOUR_MS = 3600 * 1000


class Callers:
    """While the block runs: some at each node, each until a call of its fails."""

    each = 3

    def __init__(self, registrars, start):
        self.start = start
        self.lock = threading.Lock()
        self.answered = dict.fromkeys(registrars, 0)
        self.failed = {name: [] for name in registrars}  # when the call ended, its code and text
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=item, daemon=True)
                        for item in registrars.items() for _ in range(self.each)]

    def run(self, name, registrar):
        while not self.ends.is_set():
            call = self.start(registrar)
            with self.lock:
                if call.code() is not Code.OK:
                    self.failed[name].append((time.monotonic(), call.code(), call.details()))
                    return
                self.answered[name] += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def go_on(self):
        former = dict(self.answered)
        wait_until(lambda: any(self.failed.values())
                   or all(self.answered[name] > former[name] + 20 for name in former),
                   "both nodes to answer")

    def wait_failed(self):
        wait_until(lambda: all(len(calls) == self.each for calls in self.failed.values()),
                   lambda: f"all to fail, not {self.failed}")


class Drains:
    """`node-a` alone may hold "m". The differences: the kind of node, and how "m" is called."""

    kind = "only-a"
    rules = {"type_constraints": json.dumps({kind: {"required": ["node-a"]}})}

    def start(self, drain_ms):
        self.etcd = self.enterContext(Etcd())
        self.nodes = {name: self.enterContext(self.node(name, drain_ms)) for name in NAMES}
        self.registrars = {name: self.enterContext(Registrar(node)) for name, node in self.nodes.items()}
        self.registrars["node-b"].register("m", kind=self.kind)
        for name in NAMES:
            wait_until(lambda: self.rows(name) == 2, f"{name} to see both")
            self.assertIs(self.call(self.registrars[name]).code(), Code.OK)
        status = self.registrars["node-b"].wait_status("m", LOADED)
        self.assertEqual([copy.location for copy in status.modelCopyInfos], ["node-a"])

    def rows(self, name):
        rows = shoalctl("mesh", "nodes", "--json", "--counters", self.nodes[name].counters).json_lines
        return sum(row["capacity_bytes"] > 0 for row in rows)

    def test_calls_go_on(self):
        self.start(DRAIN_MS)
        node = self.nodes["node-a"]
        with Callers(self.registrars, self.call) as callers:
            callers.go_on()
            told = time.monotonic()
            node.drain()
            callers.go_on()
            callers.wait_failed()
        for name, calls in callers.failed.items():
            for when, code, text in calls:
                self.assertGreaterEqual(when - told, SERVES_MS / 1000, (name, code, text))
                self.assertIs(code, Code.UNAVAILABLE, (name, text))
        self.assertEqual(node.wait_exit(), 0)
        node.check_end()
        for _ in range(3):
            code, text = failure(self.call(self.registrars["node-b"]))
            self.assertIs(code, Code.UNAVAILABLE, text)
            self.assertIn(f"the label requirements of type {self.kind}: [node-a]", text)

    def test_nobody_calls(self):
        self.start(HOUR_MS)
        node = self.nodes["node-a"]
        node.drain()
        self.assertEqual(node.wait_exit(), 0)
        node.check_end()
        node.stderr.index("mesh_drained")
        self.assertIs(failure(self.call(self.registrars["node-b"]))[0], Code.UNAVAILABLE)


class External(Drains, unittest.TestCase):
    def node(self, name, drain_ms):
        runtime = self.enterContext(Runtime())
        self.runtimes = {**getattr(self, "runtimes", {}), name: runtime}
        return Shoald({"message_mib": 1, "drain_timeout_ms": drain_ms, "mesh": {
            "instance": name, "runtime": runtime.address, "store": f"etcd:{self.etcd.url}", "labels": [name],
            "peers": ["127.0.0.1:0"], "address": "127.0.0.1", **self.rules}})

    @staticmethod
    def call(registrar):
        return registrar.channel.unary_unary(ANY).future(b"hello", timeout=WAIT_SECONDS,
                                                         metadata=(("mm-model-id", "m"),))

    def test_calls_under_way_at_the_end(self):
        """They are held in the runtime until the node takes no more."""
        self.start(6 * DRAIN_MS)
        go, runtime = threading.Event(), self.runtimes["node-a"]
        self.addCleanup(go.set)

        def hold(_request, _context):
            go.wait(WAIT_SECONDS)
            return b"held"
        runtime.says[ANY[1:]] = hold
        former = runtime.count(ANY[1:])
        held = [self.call(registrar) for registrar in self.registrars.values()]
        wait_until(lambda: runtime.count(ANY[1:]) == former + 2, "the calls")
        del runtime.says[ANY[1:]]
        self.nodes["node-a"].drain()

        def refused(name):
            code = self.call(self.registrars[name]).code()
            self.assertIn(code, (Code.OK, Code.UNAVAILABLE))
            return code is Code.UNAVAILABLE
        for name in NAMES:
            wait_until(lambda: refused(name), f"{name} to refuse calls")
        self.assertFalse(any(call.done() for call in held))
        go.set()
        self.assertEqual([call.result() for call in held], 2 * [b"held"])
        self.assertEqual(self.nodes["node-a"].wait_exit(), 0)
        self.nodes["node-a"].check_end()


class Pipelines(Drains, unittest.TestCase):
    def node(self, name, drain_ms):
        return mesh_node(self.etcd, name, drain_timeout_ms=drain_ms, mesh={"labels": [name], **self.rules})

    @staticmethod
    def call(registrar):
        return registrar.start_infer("m")


if __name__ == "__main__":
    main()
