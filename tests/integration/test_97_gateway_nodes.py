# SPDX-License-Identifier: Apache-2.0
"""Nodes of a mesh as the gateway's endpoints.

Proves, with a real etcd and nodes: nodes with the labels that the list names are endpoints, others
are not; one that leaves is removed at once, one that comes back is an endpoint again, and while etcd
is away they stay; without etcd the list is refused. ctest: timeout=120
"""

import json
import os
import subprocess
import tempfile
import unittest

from shoal_fixture import BIN, free_port, main, wait_until
from shoal_meshes import Etcd, mesh_node
from test_97_gateway import Gateway


class NodesTest(unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.port, self.metrics = free_port(), free_port()

    def node(self, name, *labels, **keys):
        node = self.enterContext(mesh_node(self.etcd, name, mesh={"labels": labels}, **keys))
        node.wait_log("mesh_session_begun")
        return node

    def serving(self):
        return self.node("node-a", "gpu", "big", http=f"127.0.0.1:{self.port}",
                         metrics=f"127.0.0.1:{self.metrics}")

    def list(self):
        """A node counts once, by the first entry that it matches."""
        return json.dumps({"endpoints": [{
            "name": name, "mesh": {"labels": [label]}, "port": str(self.port),
            "metricsPort": str(self.metrics)} for name, label in (("nodes", "gpu"), ("none", "tpu"), ("same", "big"))]})

    def names(self, gateway):
        """{endpoint: whether it is up}"""
        start = "endpoint_up{endpoint=\""
        return {name[len(start):-2]: value == 1 for name, value in gateway.figures().items()
                if name.startswith(start)}

    def wait_names(self, gateway, **wanted):
        def look():
            try:
                return self.names(gateway) == {f"nodes@{name.replace('_', '-')}": is_up
                                               for name, is_up in wanted.items()}
            except OSError:
                return False
        wait_until(look, gateway.read_log)

    def test_nodes_come_and_go(self):
        gateway = Gateway([], store=f"etcd:{self.etcd.url}", store_service="test", name="gw")
        self.addCleanup(gateway.close)
        gateway.write("servers.yaml", self.list())
        self.node("node-b", "cpu")
        node = self.serving()
        self.wait_names(gateway, node_a=True)
        self.assertEqual(gateway.call({"inputs": []}, path="/v2/models/none/infer")[0], 404)
        self.assertEqual(gateway.figures()["sent_total"], 1)
        self.assertEqual(node.terminate(), 0)
        self.assertEqual(self.etcd.keys("/tas-runtime/test/instances/"), ["node-b"])  # before its lease
        self.wait_names(gateway)
        self.assertIn("state=removed", gateway.read_log())
        self.serving()
        self.wait_names(gateway, node_a=True)
        self.etcd.stop()
        wait_until(lambda: "gateway_store_away" in gateway.read_log(), gateway.read_log)
        self.wait_names(gateway, node_a=True)
        self.etcd.start()

    def test_needs_the_store(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("servers.yaml", self.list()), ("gateway.yaml", "endpoints: servers.yaml")):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run([BIN / "shoal-gateway", "--check", folder + "/gateway.yaml"],
                                  capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("servers.yaml: nodes: mesh needs `store`", done.stderr)


if __name__ == "__main__":
    main()
