# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that nodes run, when their processes fail.

Proves: a container that crashes is started again after longer and longer pauses, and its last words are
told; one that ignores SIGTERM ends all the same; one that floods its log stops nobody; processes that
it leaves behind end with it, and all with shoald; of several containers the end of any ends the models;
no call is lost when a runtime is killed under load, for another node serves; another node takes over a
replica. ctest: timeout=240
"""

import json
import os
import signal
import threading

from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, free_port, main, read_proc, wait_until
from shoal_hosting import Case, container, host, processes, runtime, service
from shoal_meshes import Etcd
from shoal_registry import Registrar


class TestContainers(Case):
    def test_a_crash_loop_pauses_longer_and_says_why(self):
        self.start(restart_ms_max=300)
        self.apply(runtime("loop", self.address, container("crash")))
        self.wait_state("loop", "BackOff",
                        message='container "server" ended with exit code 3 after .* s: I cannot go on: no licence')
        self.at.wait_log(r"container_ended .* restart_in_ms=100")
        self.at.wait_log(r"container_ended .* restart_in_ms=200")
        self.at.wait_log(r"container_ended .* restart_in_ms=300", count=2)
        self.at.wait_log(r'container_said runtime=loop container=server .*text="I cannot go on: no licence"')
        self.ctl("delete", "servingruntime", "loop")
        wait_until(lambda: "runs:loop" not in self.ctl("mesh", "nodes", "--json").out, "the claim to end")

    def test_one_that_ignores_its_end_and_leaves_processes_behind(self):
        self.start(stop_timeout_ms=200)
        self.apply(runtime("stubborn", self.address, container("fork", "stubborn", env=[self.mark])))
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        self.ctl("delete", "servingruntime", "stubborn")
        self.at.wait_log(r'container_killed runtime=stubborn container=server why="it did not end')
        self.wait_gone()

    def test_all_end_with_a_main_process_that_is_killed(self):
        self.start()
        self.apply(runtime("forks", self.address, container("fork", env=[self.mark])))
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        before = set(processes(self.marker))
        keeper, = [pid for pid in before if "--keep" in read_proc(pid, "cmdline")]
        os.kill(keeper, signal.SIGKILL)  # of all of them the worst
        wait_until(lambda: not before & set(processes(self.marker)), lambda: f"{before} to end")
        self.wait_state("forks", "Starting", restarts="^1$")

    def test_a_flood_stops_nobody(self):
        self.start()
        self.apply(service("life"), runtime("flood", self.address,
                                            container("flood", f"serve={self.address}", env=[self.mark])))
        self.wait_ready("life")
        self.call("life")
        wait_until(lambda: self.at.stat()["mesh_runtime_lines_dropped"] > 1000, "lines to be dropped")
        self.at.wait_log("container_log_dropped runtime=flood container=server .*lines=")
        self.call("life")

    def test_several_containers(self):
        """One of them serves; the end of the other ends the models, too."""
        self.start()
        self.apply(service("life"), runtime(
            "pair", self.address, container(name="model-server", env=[self.mark]),
            container(f"serve={self.address}", name="adapter", env=[self.mark])))
        self.wait_ready("life")
        first = self.call("life")["pid"]
        other, = [pid for pid in processes(self.marker) if pid != first and
                  "--keep" not in read_proc(pid, "cmdline")]
        os.kill(other, signal.SIGKILL)
        self.wait_state("pair", "Ready", restarts="^1$", message='"model-server" was ended by signal 9')
        self.assertEqual(self.call("life")["pid"], first)
        wait_until(lambda: self.at.stat()["mesh_loads"] == 2, "the second load to be counted")

    def test_nothing_outlives_a_killed_shoald(self):
        at = host()
        self.addCleanup(at.discard)
        at.start().wait_ready()
        self.at = at
        self.apply(runtime("forks", self.address, container("fork", "stubborn", env=[self.mark])))
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        at.kill()
        self.wait_gone()


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
        runs = [name for name in self.hosts if self.nodes("single").get(name, {}).get("state") == "Ready"]
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


if __name__ == "__main__":
    main()
