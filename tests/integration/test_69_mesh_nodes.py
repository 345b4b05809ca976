# SPDX-License-Identifier: Apache-2.0
"""A mesh of three nodes: real daemons with the pupil's models, and a real etcd, on loopback
(shoal_meshes.py).

Proves: any node answers for any model, by itself or through another, and in the same words
when it cannot; what a caller does (its deadline, its going) reaches the node that serves; that a
node may be killed, or told to stop, and etcd may be away, while callers go on, and no call fails;
that a vmodel is moved under its callers; that a node that cannot load what others have is not
ready. ctest: timeout=600
"""

import json
import os
import subprocess
import threading
import unittest

import grpc

from shoal_client import Client, failure
from shoal_ctl import environment, shoalctl
from shoal_fixture import BIN, SOURCE, WAIT_SECONDS, free_port, main, wait_until
from shoal_meshes import Etcd, Nodes, mesh_node
from shoal_metrics import fetch
from shoal_pupil import Rig, key, said
from shoal_registry import DEFINED, LOADED, LOADING_FAILED, Registrar

Code = grpc.StatusCode
NAMES = ["node-a", "node-b", "node-c"]


class Traffic:
    """While the block runs: callers at some nodes, each for its own model, in turn. Keeps what went
    wrong, and counts what went well."""

    def __init__(self, nodes, calls):
        self.calls = calls
        self.failed, self.answered = [], 0
        self.ends = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(node, i), daemon=True)
                        for i, node in enumerate(nodes)]

    def run(self, node, first):
        with Registrar(node) as registrar:
            turn = first
            while not self.ends.is_set():
                keys, wanted = self.calls[turn % len(self.calls)]
                turn += 1
                call = registrar.start_infer(**keys)
                wrong = None
                if call.code() != Code.OK:
                    wrong = f"{keys}: {call.code()}: {call.details()}"
                elif said(call.result()) not in wanted:
                    wrong = f"{keys}: answered by {said(call.result())}"
                with self.lock:
                    if wrong is None:
                        self.answered += 1
                    else:
                        self.failed.append(wrong)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def go_on(self, calls=200):
        """Waits until so many more were answered."""
        until = self.answered + calls
        wait_until(lambda: self.answered >= until or self.failed, "calls to be answered")


class MeshOfThree(Rig, unittest.TestCase):
    def setUp(self):
        self.etcd = Etcd().__enter__()
        self.addCleanup(self.etcd.__exit__, None, None, None)

    def start(self, **keys):
        nodes = Nodes(self.etcd, NAMES, **keys)
        nodes.__enter__()
        self.addCleanup(self.leave, nodes)
        self.nodes = nodes
        return nodes

    def leave(self, nodes):
        failed = self._outcome is not None and not self._outcome.success
        nodes.__exit__(AssertionError if failed else None, None, None)

    def where(self, model):
        status = self.nodes.at("node-a").status(model)
        return [copy.location for copy in status.modelCopyInfos if copy.copyStatus == LOADED]

    def loaded_at(self, node, prefix="m"):
        """A model that is loaded at that node alone: one of many is."""
        registrar = self.nodes.at(node)
        for i in range(100):
            name = f"{prefix}-{node}-{i}"
            registrar.register(name)
            self.assertEqual(said(registrar.infer(name)), name)
            if wait_until(lambda: self.where(name), f"{name} to be loaded") == [node]:
                return name
        raise AssertionError(f"nothing is placed at {node}")

    # ---- calls ----

    def test_any_node_answers(self):
        nodes = self.start()
        models = [f"m{i}" for i in range(9)]
        for model in models:
            nodes.at("node-a").register(model)
        for i, model in enumerate(models):
            self.assertEqual(said(nodes.at(NAMES[i % 3]).infer(model)), model)
        for name in NAMES:
            for model in models:
                self.assertEqual(said(nodes.at(name).infer(model)), model)
        wait_until(lambda: all(self.where(model) for model in models),
                   lambda: [self.where(model) for model in models])

    def test_a_call_through_another_node(self):
        nodes = self.start()
        model = self.loaded_at("node-b")
        big = (("x", "UINT8", [700000], bytes(700000)),)
        self.assertEqual(said(nodes.at("node-a").infer(model, inputs=big)), model)
        self.assertTrue(nodes.at("node-a").start_ready(model).result().ready)
        for node in ("node-a", "node-b"):
            found, words = failure(nodes.at(node).start_infer(
                model, inputs=(("x", "NOTHING", [1], b"\7"),)))
            self.assertEqual(found, Code.INVALID_ARGUMENT)
            self.assertIn("NOTHING", words)
            found, words = failure(nodes.at(node).start_infer("nobody"))
            self.assertEqual((found, words), (Code.NOT_FOUND, "model not found"))

    def test_a_load_fails_elsewhere(self):
        nodes = self.start()
        nodes.at("node-a").register("m", key=key(fail="it is no good"))
        for name in NAMES: # why it fails stands in the record, which reaches each a moment later
            def look():
                found, words = failure(nodes.at(name).start_infer("m"))
                self.assertEqual(found, Code.INTERNAL, words)
                return "it is no good" in words
            wait_until(look, f"{name} to say why")

    def test_callers_who_do_not_wait(self):
        nodes = self.start()
        model = self.loaded_at("node-b")
        nodes.at("node-a").register("slow", key=key(load="slow"))
        late = nodes.at("node-a").start_infer("slow", timeout=0.5)
        gone = nodes.at("node-b").start_infer("slow")
        wait_until(lambda: any((node.folder / "slow.held").exists() for node in nodes.nodes.values()),
                   "somebody to load")
        self.assertEqual(late.code(), Code.DEADLINE_EXCEEDED)
        gone.cancel()
        for node in nodes.nodes.values(): # the others, too: it moves there when they drain
            (node.folder / "slow.go").touch()
        for name in NAMES:
            self.assertEqual(said(nodes.at(name).infer("slow")), "slow")
            self.assertEqual(said(nodes.at(name).infer(model)), model)

    def test_a_method_that_only_another_node_has(self):
        """One node's pipeline is bound to a method, and has the label that its type needs."""
        method = "/test.Pupil/Learn"
        rules = json.dumps({"learns": {"required": ["learns"]}})
        nodes = self.start(mesh={"type_constraints": rules}, drain_timeout_ms=1000,
                           each={"node-b": {"pipeline": {"method": method},
                                            "mesh": {"type_constraints": rules,
                                                     "labels": ["learns"]}}})
        nodes.at("node-a").register("m", kind="learns")

        def learn(node, path, message=b"anything", **metadata):
            stub = nodes.at(node).channel.unary_unary(path)
            return stub.future(message, timeout=60, metadata=list(metadata.items()))

        def learned(node):
            call = learn(node, method, **{"mm-model-id": "m"})
            if call.code() == Code.OK:
                return call.result() == b"m"
            self.assertIn("meet the label requirements", call.details())  # node-b is unseen there
            return False
        for node in ("node-a", "node-b", "node-c"):
            wait_until(lambda node=node: learned(node), f"{node} to see node-b")
        wait_until(lambda: self.where("m") == ["node-b"], lambda: self.where("m"))
        self.assertEqual(failure(learn("node-a", method)),
                         (Code.INVALID_ARGUMENT, "must include mm-model-id header"))
        self.assertEqual(failure(learn("node-a", method, **{"mm-model-id": "nobody"})),
                         (Code.NOT_FOUND, "model not found"))
        for path in ("/mmesh.ModelRuntime/loadModel", "/mmesh.ModelMesh/nothing"):
            self.assertEqual(failure(learn("node-a", path, **{"mm-model-id": "m"}))[0],
                             Code.UNIMPLEMENTED)
        stream = nodes.at("node-a").channel.stream_unary(method)
        for metadata, text in (
                ((), "must include mm-model-id header"),
                ((("mm-model-id", "m"),), "a pipeline takes one message for a call, and this call has "
                                          "ended without any: send one")):
            self.assertEqual(failure(stream.future(iter(()), timeout=60, metadata=metadata)),
                             (Code.INVALID_ARGUMENT, text))
        self.one_message_each_way(method)
        nodes.at("node-a").register("elsewhere", kind="learns-not")
        found, words = failure(learn("node-a", "/test.Pupil/Else", **{"mm-model-id": "elsewhere"}))
        self.assertEqual(found, Code.INVALID_ARGUMENT, words)
        self.assertIn("is called by", words)

    def one_message_each_way(self, method):
        """A pipeline has no second message: it comes here from another node, while the model is
        loaded."""
        for name in ("node-a", "node-c"):
            cue = f"load-{name}"
            self.nodes.at("node-a").register(cue, kind="learns", key=key(load=cue))
            channel = self.nodes.at(name).channel
            stream = channel.stream_stream(method)(
                iter((b"one", b"two")), timeout=60, metadata=(("mm-model-id", cue),))
            wait_until((self.nodes["node-b"].folder / f"{cue}.held").exists, f"{cue} to be held")
            whole = channel.unary_unary(method)
            self.assertEqual(whole(b"x", timeout=60, metadata=(("mm-model-id", "m"),)), b"m")
            (self.nodes["node-b"].folder / f"{cue}.go").touch()
            with self.assertRaises(grpc.RpcError):
                next(stream)
            self.assertEqual((stream.code(), stream.details()),
                             (Code.INVALID_ARGUMENT,
                              "a pipeline takes one message for a call, and this call has more"))

    # ---- nodes come and go ----

    def traffic(self, models, nodes=("node-a", "node-b"), callers=4):
        called = [self.nodes[name] for name in nodes for _ in range(callers // len(nodes))]
        return Traffic(called, [({"name": model}, {model}) for model in models])

    def many(self, count=24):
        models = [f"m{i}" for i in range(count)]
        for i, model in enumerate(models):
            self.nodes.at(NAMES[i % 3]).register(model)
            self.assertEqual(said(self.nodes.at(NAMES[i % 3]).infer(model)), model)
        return models

    def test_a_node_is_killed(self):
        nodes = self.start()
        models = self.many()
        wait_until(lambda: any(self.where(model) == ["node-c"] for model in models),
                   "a model at node-c alone")
        with self.traffic(models) as traffic:
            traffic.go_on()
            nodes["node-c"].kill()
            traffic.go_on(400)
            self.etcd.expire("node-c")
            traffic.go_on()
            wait_until(lambda: all(self.where(model) and "node-c" not in self.where(model)
                                   for model in models) or traffic.failed,
                       lambda: [self.where(model) for model in models])
        self.assertEqual(traffic.failed, [])

    def test_nodes_are_drained(self):
        """One by shoalctl, one by the hook of a container that was ModelMesh's; SIGTERM is
        elsewhere."""
        nodes = self.start()
        models = self.many()
        rows = wait_until(lambda: self.nodes_seen("node-a", 3), "all nodes to be seen")
        self.assertEqual(sorted(rows), NAMES)
        self.assertEqual([row["leads"] for row in rows.values()].count(True), 1)
        self.assertEqual([name for name, row in rows.items() if row["self"]], ["node-a"])
        self.assertTrue(all(row["address"] and row["loaders"] for row in rows.values()), rows)
        wait_until(lambda: any(self.where(model) == ["node-c"] for model in models),
                   "a model at node-c alone")
        with self.traffic(models, ("node-a",)) as traffic:
            traffic.go_on()
            had = self.moving_from("node-c")
            done = shoalctl("mesh", "drain", "--json", "--counters", nodes["node-c"].counters)
            self.assertIsNotNone(nodes["node-c"].process.poll())
            nodes["node-c"].check_end()
            self.check_moves(done.json_lines, had)
            wait_until(lambda: self.nodes_seen("node-a", 2), "node-c to be gone")
            traffic.go_on(400)
            env = environment(SHOAL_COUNTERS=str(nodes["node-b"].counters),
                              PATH=f"{BIN}:{os.environ['PATH']}")
            stopped = subprocess.run([SOURCE / "src" / "ctl" / "stop.sh", "wait"], env=env,
                                     capture_output=True, text=True, timeout=2 * WAIT_SECONDS)
            self.assertEqual(stopped.returncode, 0, stopped.stdout + stopped.stderr)
            self.assertIsNotNone(nodes["node-b"].process.poll())
            nodes["node-b"].check_end()
            traffic.go_on(400)
        self.assertEqual(traffic.failed, [])
        for name in ("node-b", "node-c"):
            nodes[name].stderr.index("mesh_drained")

    def nodes_seen(self, by, count, nodes=None):
        """Those that a node knows of, if they are so many and it knows the leader."""
        rows = shoalctl("mesh", "nodes", "--json", "--counters",
                        (nodes or self.nodes)[by].counters).json_lines
        return ({row["id"]: row for row in rows}
                if len(rows) == count and any(row["leads"] for row in rows) else None)

    def moving_from(self, name):
        """Models that a node has now; nothing comes there by itself."""
        rows = shoalctl("mesh", "models", "--node", name, "--json", "--counters",
                        self.nodes["node-a"].counters).json_lines
        return {row["id"] for row in rows}

    def check_moves(self, rows, models):
        end = rows.pop()
        self.assertEqual((end["status"], end["text"]), ("OK", "drained"), end)
        self.assertEqual(end["moved"], sum(row["moved_to"] != "" for row in rows), rows)
        self.assertGreater(end["moved"], 0)
        self.assertTrue({row["model"] for row in rows} >= models, (rows, models))
        # All have been called within the hour, so none is unloaded before another node has it.
        self.assertTrue({row["moved_to"] for row in rows} <= {"node-a", "node-b"}, rows)
        self.assertEqual(end["let_go"], 0, rows)

    def test_a_node_joins(self):
        nodes = self.start()
        models = self.many()
        nodes["node-c"].terminate()
        with self.traffic(models) as traffic:
            traffic.go_on()
            nodes["node-c"].start().wait_ready()
            with Registrar(nodes["node-c"]) as registrar:
                for model in models:
                    self.assertEqual(said(registrar.infer(model)), model)
            traffic.go_on()
        self.assertEqual(traffic.failed, [])

    def test_new_nodes_that_cannot_load(self):
        """An orchestrator that replaces node-a by node-b is to stop, as their models are not there;
        that of node-c has been told to go on."""
        nodes = Nodes(self.etcd, ["node-a"])
        self.addCleanup(self.leave, nodes.__enter__())
        for i in range(6):
            nodes.at("node-a").register(f"m{i}")
            self.assertEqual(said(nodes.at("node-a").infer(f"m{i}")), f"m{i}") # it is worth moving
        ports = {"node-b": free_port(), "node-c": free_port()}
        for name, mesh in (("node-b", {}), ("node-c", {"clearance_ms": 0})):
            nodes.nodes[name] = mesh_node(self.etcd, name, probes=f"127.0.0.1:{ports[name]}", mesh=mesh)
            (nodes[name].folder / "models" / "model").unlink()
            nodes[name].start().wait_ready()
            self.assertEqual(fetch(ports[name], "/ready")[0], 200)
        wait_until(lambda: self.nodes_seen("node-a", 3, nodes), "node-a to see them")
        nodes["node-a"].drain()
        nodes["node-b"].wait_log("mesh_not_clear failures=3")
        wait_until(lambda: fetch(ports["node-b"], "/ready")[0] == 503, "node-b not to be ready")
        for name, ready in (("node-b", False), ("node-c", True)):
            with Client(nodes[name].target) as client:
                self.assertEqual(client.call("ServerReady").ready, ready, name)
        nodes["node-a"].wait_exit()
        with Registrar(nodes["node-c"]) as registrar:
            copies = [copy for i in range(6) for copy in registrar.status(f"m{i}").modelCopyInfos]
        self.assertGreaterEqual([(copy.location, copy.copyStatus) for copy in copies].count(
            ("node-c", LOADING_FAILED)), 3)
        self.assertEqual(fetch(ports["node-c"], "/ready")[0], 200)
        self.assertEqual(fetch(ports["node-b"], "/live")[0], 200)

    def test_etcd_is_away(self):
        nodes = self.start()
        models = self.many()
        with self.traffic(models, NAMES, 6) as traffic:
            traffic.go_on()
            self.etcd.stop()
            traffic.go_on(600)
            self.etcd.start()
            traffic.go_on()
        self.assertEqual(traffic.failed, [])
        name = "registered-afterwards"
        wait_until(lambda: nodes.at("node-a").start(
            "registerModel", modelId=name,
            modelInfo={"type": "pupil", "path": "model"}).code() == Code.OK, "the registry")
        self.assertEqual(said(nodes.at("node-b").infer(name)), name)

    def test_settings(self):
        """Settings in etcd under config/ take effect at once; unknown ones are logged once."""
        with mesh_node(self.etcd, "node-a") as one:
            one.wait_log("mesh_session_begun")
            self.etcd.put("/tas-runtime/test/config/log_each_invocation", "true")
            one.wait_log(r"mesh_setting_ignored name=log_each_invocation instead=\"`traces`")
            for value in ("1", "2"):
                self.etcd.put("/tas-runtime/test/config/somebodys", value)
            one.wait_log('mesh_setting_unknown name="somebodys"')
            self.etcd.put("/tas-runtime/test/config/logger_level", "ERROR")
            self.etcd.put("/tas-runtime/test/config/anybodys", "1")
            self.etcd.delete("/tas-runtime/test/config/logger_level")
            one.wait_log("mesh_log_level set=no")
            self.assertNotIn("anybodys", one.stderr)
            self.assertEqual(one.stderr.count("somebodys"), 1)
            self.etcd.put("/tas-runtime/test/config/disable", "true")
            one.wait_log("mesh_disabled")
            with self.subTest("another one does not start"):
                other = mesh_node(self.etcd, "node-b")
                self.addCleanup(other.discard)
                self.assertEqual(other.start().wait_exit(), 2)
                self.assertIn("config/disable in the mesh's registry", other.stderr)
                other.check_log()
            self.etcd.delete("/tas-runtime/test/config/disable")
            with mesh_node(self.etcd, "node-c"):
                pass

    def test_a_vmodel_moves_under_its_callers(self):
        nodes = self.start()
        manager = nodes.at("node-a")
        for i in range(6):
            manager.register(f"v{i}")
        manager.call("setVModel", vModelId="v", targetModelId="v0")
        calls = [({"metadata": [("mm-vmodel-id", "v")]}, {f"v{i}" for i in range(6)})]
        with Traffic([nodes[name] for name in NAMES], calls) as traffic:
            traffic.go_on(50)
            for i in range(1, 6):
                status = manager.call("setVModel", vModelId="v", targetModelId=f"v{i}", sync=True)
                self.assertEqual((status.status, status.activeModelId), (DEFINED, f"v{i}"))
                traffic.go_on(50)
        self.assertEqual(traffic.failed, [])


if __name__ == "__main__":
    main()
