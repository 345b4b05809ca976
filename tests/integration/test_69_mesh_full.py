# SPDX-License-Identifier: Apache-2.0
"""A full pipeline of a mesh's node: a call that finds no slot where it came in is served by another
node with a copy, which is loaded if there is none; it is refused, in the pipeline's words, when all
are full. And pipelines whose memory is full: other nodes see the room of each pipeline. Real daemons
and a real etcd; calls that hold slots last until they are cancelled (the modelet `shelf`).
ctest: timeout=180
"""

import json
import struct
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import main, pipeline, stage, wait_until
from shoal_meshes import Etcd
from shoal_pupil import MIB, models, prepare, pupil, said
from shoal_registry import LOADED, NOT_LOADED, Registrar

Code = grpc.StatusCode
ECHO, WAIT = 0, 10  # tests/modelets/probe.h
SLOTS = 2


def probe(command):
    return [("probe", "INT64", [3], struct.pack("<3q", command, 0, 0))]


class Nodes(unittest.TestCase):
    """Of the pipelines that a test gives to each."""

    def start(self, **pipelines):
        self.etcd = self.enterContext(Etcd())
        self.nodes, self.registrars = {}, {}
        for name, given in (("node-a", pipelines["a"]), ("node-b", pipelines["b"])):
            shoald = prepare(*given, mesh={"store": f"etcd:{self.etcd.url}", "service": "test",
                                           "instance": name, "peers": ["127.0.0.1:0"]})
            self.nodes[name] = self.enterContext(shoald)
            shoald.wait_log("mesh_session_begun")
            self.registrars[name] = self.enterContext(Registrar(shoald))
        for shoald in self.nodes.values():
            wait_until(lambda node=shoald: node.stat()["mesh_instances"] == 2, "the nodes to see each other")


class TestPools(Nodes):
    """All nodes together have room; which pipeline has it decides."""

    def test_room_of_a_pipeline(self):
        def two(small, large):
            return [pupil("one", models={"types": ["one"], "memory_mib": small}),
                    pupil("two", models={"types": ["two"], "memory_mib": large})]

        def record():
            text = self.etcd.get("/tas-runtime/test/instances/node-a")
            return json.loads(text).get("pools") if text else None
        self.start(a=two(12, 400), b=two(60, 60))
        one, large = wait_until(lambda: record() if record() and record()[0].get("cap") else None,
                                "both pipelines in the record")
        self.assertEqual((one["types"], large["types"]), (["one"], ["two"]))
        self.assertEqual((one["cap"] < 12 * 128, large["cap"] > 350 * 128), (True, True))
        at_b = self.registrars["node-b"]
        for kind, place in (("one", "node-b"), ("two", "node-a")):
            for i in range(6):
                name = f"{kind}{i}"
                at_b.register(name, kind=kind, key=json.dumps({"bytes": 4 * MIB}))
                self.registrars["node-a"].wait_status(name, NOT_LOADED) # it has the record, too
                self.addCleanup(at_b.unregister, name) # a drain would wait for room at node-a
                self.assertEqual(said(at_b.infer(name)), name)
                self.assertEqual([copy.location for copy in at_b.status(name).modelCopyInfos],
                                 [place])


class TestFull(Nodes):
    def setUp(self):
        shelf = pipeline("shelf", stage("libshelf.so", workers=SLOTS + 1), slots=SLOTS,
                         models=models())
        self.start(a=[shelf], b=[shelf])
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
