# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that two nodes of a mesh run.

Proves: no call is lost when a runtime is killed under load, for another node serves; another node takes
over a replica when its node ends; as many nodes run one as the configuration says, or its manifest.
ctest: timeout=240
"""

import json
import os
import signal
import threading

from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, free_port, main, wait_until
from shoal_hosting import Case, container, host, processes, runtime, scale, service
from shoal_meshes import Etcd
from shoal_registry import Registrar


class TestTwoNodes(Case):
    def setUp(self):
        super().setUp()
        etcd = self.enterContext(Etcd())
        of_mesh = {"store": f"etcd:{etcd.url}", "service": "test", "peers": ["127.0.0.1:0"]}
        self.hosts = {name: host(name, node_labels=[f"is={name}"], **of_mesh) for name in ("node-a", "node-b")}
        self.registrars = {}
        for name, at in self.hosts.items():
            self.enterContext(at)
            at.wait_log("mesh_session_begun")
            self.registrars[name] = self.enterContext(Registrar(at))
        self.at = self.hosts["node-a"]

    def test_no_call_is_lost_when_a_runtime_is_killed_under_load(self):
        addresses = {name: f"127.0.0.1:{free_port()}" for name in self.hosts}
        for name, address in addresses.items():
            self.apply(runtime(f"on-{name}", address, container(f"serve={address}", env=[self.mark]),
                               nodeSelector={"is": name}))
        for name in addresses:
            self.wait_state(f"on-{name}", "Ready", node=name)
        self.apply(service("busy"))
        self.wait_ready("busy")
        first = json.loads(self.start_call("busy", self.registrars["node-b"]).result())["pid"]
        seen, failures, over = set(), [], threading.Event()

        def caller(registrar):
            while not over.is_set():
                future = self.start_call("busy", registrar)
                if future.exception() is not None:
                    failures.append(failure(future))
                    return
                seen.add(json.loads(future.result())["pid"])
        callers = [threading.Thread(target=caller, args=(registrar,)) for registrar in self.registrars.values()
                   for _ in range(3)]
        for one in callers:
            one.start()
        try:
            wait_until(lambda: first in seen, "calls")
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: failures or seen - {first}, "another runtime to answer")
            for name in addresses:
                self.wait_state(f"on-{name}", "Ready", node=name)
        finally:
            over.set()
            for one in callers:
                one.join(WAIT_SECONDS)
        self.assertEqual(failures, [])

    def test_one_replica_moves_when_its_node_ends(self):
        self.apply(runtime("single", self.address, container(f"serve={self.address}", env=[self.mark]), replicas=1),
                   service("life"))
        self.wait_ready("life")
        runs = wait_until(lambda: [name for name in self.hosts
                                   if self.nodes("single").get(name, {}).get("state") == "Ready"],
                          "the node that runs it to be told")
        self.assertEqual(len(runs), 1)
        other, = set(self.hosts) - set(runs)
        first = json.loads(self.start_call("life", self.registrars[other]).result())["pid"]
        self.assertEqual(self.hosts[runs[0]].terminate(), 0)
        self.at = self.hosts[other]
        self.wait_state("single", "Ready", node=other)
        self.assertNotEqual(json.loads(self.start_call("life", self.registrars[other]).result())["pid"], first)
        wait_until(lambda: list(self.nodes("single")) == [other], "the other's words to go")
        self.apply(runtime("single", self.address, container(f"serve={self.address}", env=[self.mark]), replicas=0))
        self.wait_gone()

    def test_the_replicas_are_those_of_the_configuration_unless_the_runtime_has_some(self):
        """The container does not serve: on one host, those of two nodes would need the same port. With
        `scaleToZero`, a node reports as Able that it may run one and has no replica to run."""
        def check(*states):
            wait_until(lambda: sorted(one["state"] for one in self.nodes("spare").values()) == list(states),
                       lambda: f"{states}, not {self.nodes('spare')}")
            count = 2 * states.count("Starting")  # with their keepers
            wait_until(lambda: len(processes(self.marker)) == count,
                       lambda: f"{count}, not {processes(self.marker)}")
        waits = container(env=[self.mark])
        self.apply(scale(WAIT_SECONDS, {"podsPerRuntime": 1}), runtime("spare", self.address, waits))
        check("Able", "Starting")
        self.apply(runtime("spare", self.address, waits, replicas=2))
        check("Starting", "Starting")
        self.apply(runtime("spare", self.address, waits))
        check("Able", "Starting")


if __name__ == "__main__":
    main()
