# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that rest (test_69_hosted_rest.py) and nodes.

Proves: a resting runtime makes way for another that is needed, and one that does not become READY
again for others and for other nodes; a node that is killed meanwhile leaves nothing behind, and its
successor serves. ctest: timeout=240
"""

import time

import grpc

from shoal_fixture import free_port, main, wait_until
from shoal_hosting import PROGRAM, Resting, container, host, processes, runtime
from shoal_meshes import Etcd, mesh_node
from shoal_registry import Registrar

WAKE_MS = 8000  # a node looks every second


class TestOneNode(Resting):
    def test_it_makes_way_for_another_that_is_needed(self):
        self.begin()
        self.wait_rest()
        self.apply(self.manifest("tower", free_port(), formats=("tower",)))
        self.wait_state("tower", "Busy")
        self.registrar.register("o", kind="mt:tower")
        self.wait_state("tower", "Ready")
        self.assertTrue(self.call_model("o").result())
        self.wait_state("sorter", "Busy")


    def test_one_that_cannot_wake_makes_way(self):
        self.begin(wake_timeout_ms=WAKE_MS)
        self.wait_rest()
        self.open.unlink()
        self.registrar.register("m", kind="mt:sort")
        self.wait_state("sorter", "Starting")
        self.apply(self.tower())
        self.registrar.register("o", kind="mt:tower")
        self.wait_state("tower", "Ready")
        self.assertTrue(self.call_model("o").result())
        self.at.wait_log("runtime_ended runtime=sorter .*another one is needed")

    def tower(self):
        address = f"127.0.0.1:{free_port()}"
        return runtime("tower", address, container(f"serve={address}", env=[self.mark]), formats=("tower",))


class TestTwoNodes(Resting):
    def test_one_that_cannot_wake_gives_up_its_replica(self):
        """The runtime's file is missing at the node that has it; another node serves its model."""
        etcd = self.enterContext(Etcd())
        of_mesh = {"store": f"etcd:{etcd.url}", "service": "test", "peers": ["127.0.0.1:0"],
                   "wake_timeout_ms": WAKE_MS}
        self.begin(name="node-1", **of_mesh)
        self.apply(self.manifest(replicas=1))
        self.wait_rest()
        self.open.unlink()
        self.registrar.register("m", kind="mt:sort")
        self.wait_state("sorter", "Starting")
        self.enterContext(host("node-2", **of_mesh))
        self.at.wait_log("runtime_ended runtime=sorter .*another node may run it")
        wait_until(lambda: self.nodes("sorter").get("node-2", {}).get("state", "Able") != "Able",
                   "the other node to take it")
        self.open.touch()
        self.wait_state("sorter", "Ready", node="node-2")
        wait_until(lambda: self.call_model("m").exception() is None, "an answer")


    def test_one_that_cannot_wake_stays_if_no_other_node_can_run_it(self):
        """One has a replica, too, one lacks the image, and one runs no runtimes. Another one takes the
        replica."""
        etcd = self.enterContext(Etcd())
        of_mesh = {"store": f"etcd:{etcd.url}", "service": "test", "peers": ["127.0.0.1:0"],
                   "wake_timeout_ms": WAKE_MS}
        self.begin(name="node-1", **of_mesh)
        self.apply(self.manifest(replicas=2))
        self.wait_rest()
        self.open.unlink()
        self.enterContext(host("node-2", **of_mesh))
        wait_until(lambda: "state" in self.nodes("sorter").get("node-2", {}), "the other node to have it")
        self.enterContext(host("unable", images={"other": PROGRAM}, **of_mesh))
        self.wait_state("sorter", "Unable", node="unable")
        self.enterContext(mesh_node(etcd, "other")).wait_log("mesh_session_begun")
        self.registrar.register("m", kind="mt:sort")
        wait_until(lambda: self.rests() == (1, 1), "it to wake")
        late = time.monotonic() + WAKE_MS / 1000 + 3
        wait_until(lambda: time.monotonic() > late, "it to be late")
        self.assertNotIn("runtime_ended", self.at.stderr)
        self.enterContext(host("able", **of_mesh))
        self.at.wait_log("runtime_ended runtime=sorter .*another node may run it")

    def test_a_node_that_runs_no_runtimes_any_more_is_not_able(self):
        etcd = self.enterContext(Etcd())
        of_mesh = {"store": f"etcd:{etcd.url}", "service": "test", "peers": ["127.0.0.1:0"]}
        self.begin(**of_mesh)
        self.apply(self.manifest(replicas=1))
        with host("other", **of_mesh):
            self.wait_state("sorter", "Able", node="other")
        with mesh_node(etcd, "other"):
            wait_until(lambda: self.at.stat()["mesh_instances"] == 2, "it to be back")
            wait_until(lambda: "other" not in self.nodes("sorter"), "its former report to go")


class TestKilledNode(Resting):
    def again(self):
        """The node is killed, and started with the registry that it has left."""
        self.at.kill()
        self.wait_gone()
        self.at.start().wait_ready()
        self.registrar = self.enterContext(Registrar(self.at))

    def test_while_it_rests_and_while_it_wakes(self):
        self.begin(store="file:registry")
        self.wait_rest()
        self.again()
        wait_until(lambda: self.rests() == (1, 0), "the runtime to run and rest")
        self.wait_gone()
        self.open.unlink()
        self.registrar.register("m", kind="mt:sort")
        waiting = self.call_model("m")
        wait_until(lambda: processes(self.marker), "processes")
        self.again()
        self.assertEqual(waiting.exception().code(), grpc.StatusCode.UNAVAILABLE)
        self.open.touch()
        wait_until(lambda: self.call_model("m").exception() is None, "an answer")


if __name__ == "__main__":
    main()
