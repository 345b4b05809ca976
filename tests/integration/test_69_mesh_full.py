# SPDX-License-Identifier: Apache-2.0
"""A full pipeline of a mesh's node: a call that finds no slot where it came in is served by another
node with a copy, which is loaded if there is none; it is refused, in the pipeline's words, when all
are full. Real daemons and a real etcd; calls that hold slots last until they are cancelled (the
modelet `shelf`).
ctest: timeout=180
"""

import struct
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import main, pipeline, stage, wait_until
from shoal_meshes import Etcd
from shoal_pupil import models, prepare
from shoal_registry import LOADED, Registrar

Code = grpc.StatusCode
ECHO, WAIT = 0, 10  # tests/modelets/probe.h
SLOTS = 2


def probe(command):
    return [("probe", "INT64", [3], struct.pack("<3q", command, 0, 0))]


class TestFull(unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.nodes, self.registrars = {}, {}
        for name in ("node-a", "node-b"):
            shoald = prepare(pipeline("shelf", stage("libshelf.so", workers=SLOTS + 1), slots=SLOTS,
                                      models=models()),
                             mesh={"store": f"etcd:{self.etcd.url}", "service": "test",
                                   "instance": name, "peers": ["127.0.0.1:0"]})
            self.nodes[name] = self.enterContext(shoald)
            shoald.wait_log("mesh_session_begun")
            self.registrars[name] = self.enterContext(Registrar(shoald))
        for shoald in self.nodes.values():
            wait_until(lambda node=shoald: node.stat()["mesh_instances"] == 2, "the nodes to see each other")
        self.registrars["node-a"].register("m1")
        self.registrars["node-a"].ensure("m1", sync=True)
        self.at, = self.where()
        self.other, = set(self.nodes) - {self.at}
        self.held = []
        self.addCleanup(lambda: [call.cancel() for call in self.held])

    def where(self):
        status = self.registrars["node-a"].wait_status("m1", LOADED)
        return {copy.location for copy in status.modelCopyInfos if copy.copyStatus == LOADED}

    def ask(self, name, command=ECHO):
        return self.registrars[name].start_infer("m1", inputs=probe(command))

    def answered_by(self, name):
        return self.nodes[name].pipeline_stat("shelf")["replies_ok"]

    def fill(self, name):
        """By calls that came in there: each has its slot when the next one is made."""
        for _ in range(SLOTS):
            before = self.nodes[name].pipeline_stat("shelf")["requests"]
            self.held.append(self.ask(name, WAIT))
            wait_until(lambda n=before: self.nodes[name].pipeline_stat("shelf")["requests"] > n,
                       "a call in its slot")

    def test_goes_to_another_copy(self):
        self.fill(self.at)
        self.assertEqual(self.ask(self.at).code(), Code.OK)  # another copy was loaded for it
        wait_until(lambda: self.where() == set(self.nodes), "a copy on each node")
        self.assertEqual(self.answered_by(self.other), 1)
        self.assertEqual(self.ask(self.at).code(), Code.OK)
        self.assertEqual(self.answered_by(self.other), 2)
        self.fill(self.other)
        for name in self.nodes:
            code, text = failure(self.ask(name))
            self.assertEqual(code, Code.RESOURCE_EXHAUSTED)
            self.assertIn("is full: all 2 slots are in flight", text)
        self.held[0].cancel()
        wait_until(lambda: self.ask(self.other).code() == Code.OK, "a free slot to be found from the other node")


if __name__ == "__main__":
    main()
