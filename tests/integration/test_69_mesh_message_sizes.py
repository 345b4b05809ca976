# SPDX-License-Identifier: Apache-2.0
"""Two nodes with different limits of a message (`message_mib`), each with a runtime.

Proves: a call whose request or answer is too large for one of them ends RESOURCE_EXHAUSTED, and its
runtime serves it once at most. ctest: timeout=120
"""

import json
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, Shoald, main, wait_until
from shoal_mesh import INFER
from shoal_meshes import Etcd
from shoal_registry import Registrar
from shoal_runtime import MIB, Runtime

ANY = "x.Y/Z"
LARGE = bytes(2 * MIB)


class MessageSizes(unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.runtimes, self.registrars, nodes = {}, {}, []
        for name, message_mib in (("small", 1), ("large", 4)):
            self.runtimes[name] = self.enterContext(Runtime(options=[("grpc.max_receive_message_length", -1)]))
            shoald = self.enterContext(Shoald({"message_mib": message_mib, "mesh": {
                "instance": name, "runtime": self.runtimes[name].address, "store": f"etcd:{self.etcd.url}",
                "peers": ["127.0.0.1:0"], "labels": [name],
                "type_constraints": json.dumps({"small": {"required": ["small"]},
                                                "large": {"required": ["large"]}})}}))
            nodes.append(shoald)
            self.registrars[name] = self.enterContext(Registrar(shoald))
        for one in nodes:
            wait_until(lambda: one.stat()["mesh_instances"] == 2, "each node to see both")

    def begin(self, entry, at):
        """Calls go through one node, of a model that only the other one may hold."""
        self.registrars[entry].register("m", kind=at)
        self.addCleanup(self.registrars[entry].unregister, "m")  # or drains would wait for it
        return self.registrars[entry], self.runtimes[at]

    def call(self, registrar, request):
        return registrar.channel.unary_unary(f"/{ANY}").future(
            request, timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))

    def check(self, future, why):
        code, text = failure(future)
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self.assertRegex(text, why)

    def test_request_is_too_large_for_the_node_that_serves(self):
        registrar, runtime = self.begin("large", "small")
        why = "message .*is larger than the serving node accepts"
        self.check(registrar.start_infer("m", inputs=(("x", "UINT8", [len(LARGE)], LARGE),)), why)
        self.check(self.call(registrar, LARGE), why)
        self.assertEqual((runtime.count(INFER), runtime.count(ANY)), (0, 0))

    def test_answer_is_too_large_for_the_node_that_is_called(self):
        registrar, runtime = self.begin("small", "large")
        why = "a message of the answer is larger than this node accepts"
        runtime.says[INFER] = runtime.says[ANY] = lambda _request, _context: LARGE
        self.check(registrar.start_infer("m"), why)
        self.check(self.call(registrar, b"hello"), why)
        self.assertEqual((runtime.count(INFER), runtime.count(ANY)), (1, 1))


if __name__ == "__main__":
    main()
