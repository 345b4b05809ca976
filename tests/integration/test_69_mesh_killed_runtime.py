# SPDX-License-Identifier: Apache-2.0
"""The only external runtime that may load a model is killed under load (kill -9), when its successor
listens already.

Proves: no call fails, neither through the node whose runtime it was nor through another one.
ctest: timeout=120
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import SOURCE, WAIT_SECONDS, Shoald, main, wait_until
from shoal_meshes import Etcd
from shoal_registry import Registrar
from shoal_runtime import Runtime

RUNTIME = SOURCE / "tests" / "integration" / "shoal_container.py"


def call(registrar):
    return registrar.channel.unary_unary("/x.Y/Z").future(
        b"hello", timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))


class KilledRuntime(unittest.TestCase):
    def setUp(self):
        self.socket = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "runtime"
        self.etcd = self.enterContext(Etcd())
        self.nodes = []

    def start_node(self, name, runtime):
        """A node; node-b alone may hold models of the type `only-b`."""
        node = self.enterContext(Shoald({"message_mib": 1, "mesh": {
            "instance": name, "runtime": runtime, "store": f"etcd:{self.etcd.url}", "labels": [name],
            "type_constraints": json.dumps({"only-b": {"required": ["node-b"]}}), "peers": ["127.0.0.1:0"]}}))
        self.nodes.append(node)
        return self.enterContext(Registrar(node))

    def start_runtime(self):
        """At the socket's path, in place of the one that may be there."""
        def number():
            return self.socket.stat().st_ino if self.socket.exists() else None
        before = number()
        process = subprocess.Popen([sys.executable, RUNTIME, f"serve=unix:{self.socket}"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: number() not in (before, None), "another socket")
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            grpc.channel_ready_future(channel).result(WAIT_SECONDS)
        return process

    def test_no_call_is_lost(self):
        runtime = self.start_runtime()
        registrars = (self.start_node("node-b", f"unix:{self.socket}"),
                      self.start_node("node-a", self.enterContext(Runtime()).address))
        for one in self.nodes:
            wait_until(lambda: one.stat()["mesh_instances"] == 2, "each node to see both")
        registrars[0].register("m", kind="only-b")
        seen, failures, over = set(), [], threading.Event()

        def caller(registrar):
            while not over.is_set() and not failures:
                future = call(registrar)
                if future.exception() is not None:
                    failures.append(failure(future))
                else:
                    seen.add((registrar, json.loads(future.result())["pid"]))

        def is_seen(process):
            return all((registrar, process.pid) in seen for registrar in registrars)
        callers = [threading.Thread(target=caller, args=(one,)) for one in registrars for _ in range(6)]
        for one in callers:
            one.start()
        try:
            wait_until(lambda: is_seen(runtime) or failures, "calls")
            successor = self.start_runtime()
            runtime.kill()
            wait_until(lambda: is_seen(successor) or failures, "its successor to answer")
        finally:
            over.set()
            for one in callers:
                one.join(WAIT_SECONDS)
        self.assertEqual(failures, [])


if __name__ == "__main__":
    main()
