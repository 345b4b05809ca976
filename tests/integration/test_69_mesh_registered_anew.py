# SPDX-License-Identifier: Apache-2.0
"""A model whose record is deleted and written again with another path, while calls of the former one
are under way.

Proves: after the new registration was acknowledged, no answer comes from the former content, though
a call is still in the former copy. ctest: timeout=120
"""

import os
import unittest

from shoal_fixture import Shoald, main, node, pipeline, stage, wait_until
from shoal_registry import Registrar

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


if __name__ == "__main__":
    main()
