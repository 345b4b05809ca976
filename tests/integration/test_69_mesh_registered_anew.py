# SPDX-License-Identifier: Apache-2.0
"""A model whose record is deleted and written again with another path, while calls and loads of the
former one are under way.

Proves: after a node has acknowledged the new registration, none of its answers comes from the former
content: with a call still in the former copy, which a new call must not join; with a load of it
under way, here or at another node. ctest: timeout=120
"""

import json
import os
import threading
import unittest

from shoal_fixture import WAIT_SECONDS, Shoald, main, node, pipeline, stage, wait_until
from shoal_meshes import Etcd
from shoal_registry import Registrar
from shoal_runtime import Runtime

MODELET = """
import pathlib, shoal

class Model:
    def load(self, id, path):
        return int(pathlib.Path(path).read_text())

    def run(self, content, x: shoal.UINT8[1]) -> {"content": shoal.INT64[1]}:
        if x[0] == 1:
            pathlib.Path("GO").read_text()
        return {"content": [content]}
"""


def content(future):
    return int.from_bytes(future.result().raw_output_contents[0], "little")


class PathRuntime(Runtime):
    def __init__(self, go):
        self.go, self.paths = go, {}
        super().__init__()

    def loadModel(self, request, context):
        if request.modelPath == "1":
            self.go.wait(WAIT_SECONDS)
        self.paths[request.modelId] = request.modelPath
        return super().loadModel(request, context)

    def infer(self, request, context):
        super().infer(request, context)
        return self.paths[dict(context.invocation_metadata())["mm-model-id"]].encode()


class Pipeline(unittest.TestCase):
    def setUp(self):
        models = {"root": "models", "memory_mib": 64, "default_size_mib": 4, "watch": "no"}
        self.node = Shoald(node(pipeline("content", stage("./content.py", workers=2), slots=64, models=models),
                                mesh={"instance": "node-1"}))
        self.go = self.node.folder / "models" / "go"
        self.go.parent.mkdir()
        os.mkfifo(self.go)
        for path in ("1", "2"):
            (self.go.parent / path).write_text(path)
        (self.node.folder / "content.py").write_text(MODELET.replace("GO", str(self.go)))
        self.enterContext(self.node)
        self.registrar = self.enterContext(Registrar(self.node))

    def start(self, held=0):
        return self.registrar.start_infer("m", inputs=(("x", "UINT8", [1], bytes([held])),))

    def test_call_in_the_former_copy(self):
        self.registrar.register("m", path="1")
        held = self.start(held=1)
        wait_until(lambda: self.node.stat()["mesh_under_way"] == 1 and self.node.stat()["mesh_copies"] == 1, "the call")
        self.registrar.unregister("m")
        self.registrar.register("m", path="2")
        new = self.start()
        wait_until(lambda: new.done() or self.node.stat()["mesh_under_way"] == 2, "the call to wait or end")
        self.go.write_text("")
        self.assertEqual((content(held), content(new)), (1, 2))


class Runtimes(unittest.TestCase):
    """Two nodes with a runtime each, whose answer is the path of the model that it has loaded."""

    def setUp(self):
        self.go = threading.Event()
        self.addCleanup(self.go.set)
        etcd = self.enterContext(Etcd())
        self.runtimes, self.registrars, nodes = {}, {}, []
        for name in ("node-b", "node-a"):
            self.runtimes[name] = self.enterContext(PathRuntime(self.go))
            shoald = self.enterContext(Shoald({"message_mib": 1, "mesh": {
                "instance": name, "runtime": self.runtimes[name].address, "store": f"etcd:{etcd.url}",
                "peers": ["127.0.0.1:0"], "labels": [name],
                "type_constraints": json.dumps({"only-b": {"required": ["node-b"]}})}}))
            nodes.append(shoald)
            self.registrars[name] = self.enterContext(Registrar(shoald))
        for one in nodes:
            wait_until(lambda: one.stat()["mesh_instances"] == 2, "each node to see both")

    def start(self, name):
        return self.registrars[name].channel.unary_unary("/x.Y/Z").future(
            b"hello", timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))

    def check(self, kind, registers):
        """The load of the former model is under way when the new one is registered."""
        registrar = self.registrars[registers]
        registrar.register("m", path="1", kind=kind)
        former = [self.start(name) for name in self.registrars]
        wait_until(lambda: any(one.count("loadModel") for one in self.runtimes.values()), "a load")
        registrar.unregister("m")
        registrar.register("m", path="2", kind=kind)
        calls = [self.start(registers)]
        for name, one in self.registrars.items():  # each answers when it knows the new record
            one.register("m", path="2", kind=kind)
            calls.append(self.start(name))
        self.go.set()
        self.assertEqual([one.result() for one in calls], 3 * [b"2"])
        for one in former:  # they came before: any answer will do
            one.exception()

    def test_load_at_the_node_that_acknowledges(self):
        self.check("only-b", "node-b")

    def test_load_at_another_node(self):
        self.check("only-b", "node-a")

    def test_load_anywhere(self):
        self.check("any", "node-a")


if __name__ == "__main__":
    main()
