# SPDX-License-Identifier: Apache-2.0
"""Models that are registered when a node starts (`mesh: register`): real daemons with the pupil's
models, and a real etcd, on loopback (shoal_meshes.py).

Proves: a ready node has all listed models, at the first call; a node that
starts again, or beside another one, changes nothing; what may pass is waited for, not ready; what
will not pass ends the node and says what it was; after any end in the middle the next start does
the rest. ctest: timeout=300
"""

import base64
import json
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import free_port, main, wait_until
from shoal_meshes import Etcd, Nodes, mesh_node
from shoal_metrics import fetch
from shoal_pupil import Rig, key, prepare, pupil, said
from shoal_registry import DEFINED, LOADED, LOADING, NOT_FOUND, NOT_LOADED, Registrar

Code = grpc.StatusCode


def entry(model, path="model", kind="pupil", of_key="", **more):
    info = {"type": kind, "path": path, "key": of_key}
    return {"modelId": model, "modelInfo": info, **more}


def node_with_list(etcd, listed, name="node-a", mesh=None, **keys):
    """Not started, and left to the test; its list is in a file."""
    node = mesh_node(etcd, name, mesh={"register": "listed.json", **(mesh or {})}, **keys)
    (node.folder / "listed.json").write_text(json.dumps(listed))
    return node


class RegisterTest(Rig, unittest.TestCase):
    def end(self, node):
        node.check_still_runs()
        self.assertEqual(node.terminate(), 0, node.stderr)
        node.check_nothing_left()
        node.check_log()


class TestRegister(RegisterTest):
    def setUp(self):
        self.etcd = Etcd()
        self.addCleanup(self.etcd.__exit__)

    def node(self, *args, **keys):
        node = node_with_list(self.etcd, *args, **keys)
        self.addCleanup(node.discard)
        return node

    def check_ends(self, node, *texts):
        """It does not start, and says why."""
        self.assertEqual(node.start().wait_exit(), 2, node.stderr)
        for text in texts:
            self.assertIn(text, node.stderr)
        self.assertNotIn("ready pipelines=", node.stderr)
        node.check_nothing_left()
        node.check_log()

    def revisions(self, table="registry"):
        """{id: (created, written last)}"""
        prefix = f"/tas-runtime/test/{table}/"
        found = self.etcd.ask("/v3/kv/range", key=prefix, range_end=prefix[:-1] + "0").get("kvs", [])
        return {base64.b64decode(one["key"]).decode().removeprefix(prefix):
                (one["create_revision"], one["mod_revision"]) for one in found}

    # ---- what it does ----

    def test_ready_means_registered(self):
        self.etcd.start()
        listed = [entry("plain"), entry("loaded", ensureLoaded=True),
                  entry("target", vModelId="v", ensureLoaded=True, somethingElse=[1]),
                  entry("kept", "folder", vModelId="w", retainAfterTransition=True)]
        node = self.node(listed, mesh={"vmodel_owner": "me"})
        node.start().wait_ready()
        with Registrar(node) as registrar:
            self.assertEqual([registrar.status(name).status
                              for name in ("plain", "loaded", "target", "kept")],
                             [NOT_LOADED, LOADED, LOADED, NOT_LOADED])
            self.assertEqual(said(registrar.infer("plain")), "plain")
            self.assertEqual(said(registrar.infer(metadata=[("mm-vmodel-id", "v")])), "target")
            for vmodel, target in (("v", "target"), ("w", "kept")):
                status = registrar.call("getVModelStatus", vModelId=vmodel)
                self.assertEqual((status.status, status.activeModelId, status.owner),
                                 (DEFINED, target, "me"))
        node.wait_log(r"mesh_registered entries=4 vmodels=2 loaded=2 ms=\d+")
        before = self.revisions(), self.revisions("vmodels")
        self.end(node)

        with self.subTest("another start finds it as it is"):
            node.start().wait_ready()
            after = self.revisions(), self.revisions("vmodels")
            self.assertEqual(after[1], before[1])
            self.assertEqual({name: created for name, (created, _) in after[0].items()},
                             {name: created for name, (created, _) in before[0].items()})
            with Registrar(node) as registrar:
                with self.subTest("a released target is unregistered unless it is retained"):
                    registrar.register("other")
                    for vmodel in ("v", "w"):
                        registrar.call("setVModel", vModelId=vmodel, targetModelId="other", force=True)
                    self.assertEqual([registrar.status(name).status for name in ("target", "kept")],
                                     [NOT_FOUND, NOT_LOADED])
                registrar.unregister("plain")
            self.end(node)

        with self.subTest("and brings back what has gone"):
            node.start().wait_ready()
            with Registrar(node) as registrar:
                self.assertEqual(said(registrar.infer("plain")), "plain")
                self.assertEqual(said(registrar.infer(metadata=[("mm-vmodel-id", "v")])), "target")
            self.end(node)

    def test_many_by_two_nodes_at_once(self):
        self.etcd.start()
        listed = [entry(f"m{i}", vModelId=f"v{i}", ensureLoaded=i < 40) for i in range(200)]
        listed += [entry(f"n{i}", ensureLoaded=i < 40) for i in range(200)]
        nodes = Nodes(self.etcd, ["node-a", "node-b"], mesh={"register": json.dumps(listed)})
        with nodes:
            for name in ("node-a", "node-b"):
                nodes[name].wait_log("mesh_registered entries=400 vmodels=200 loaded=80")
                for i in range(40):
                    self.assertEqual(nodes.at(name).status(f"m{i}").status, LOADED)
                    self.assertEqual(nodes.at(name).status(f"n{i}").status, LOADED)
                for i in (0, 40, 199):
                    self.assertEqual(said(nodes.at(name).infer(f"n{i}")), f"n{i}")
                    self.assertEqual(
                        said(nodes.at(name).infer(metadata=[("mm-vmodel-id", f"v{i}")])), f"m{i}")
            self.assertEqual((len(self.revisions()), len(self.revisions("vmodels"))), (400, 200))

    def test_from_the_environment(self):
        """As that container's deployment says it; without etcd, and with a store that stays."""
        listed = entry("m", ensureLoaded=True)
        shoald = prepare(pupil(), mesh={"instance": "one", "store": "file:registry"})
        self.addCleanup(shoald.discard)
        (shoald.folder / "listed").write_text(json.dumps([listed, entry("n")]))
        for name, value in (("MM_AUTO_REGISTER_MODELS", json.dumps([listed])),
                            ("MM_AUTO_REGISTER_MODEL", " " + json.dumps(listed)),
                            ("MM_AUTO_REGISTER_MODELS_PATH", str(shoald.folder / "listed")),
                            ("MM_AUTO_REGISTER_MODEL_PATH", str(shoald.folder / "listed"))):
            with self.subTest(name):
                shoald.env[name] = value
                shoald.start().wait_ready()
                with Registrar(shoald) as registrar:
                    self.assertEqual(registrar.status("m").status, LOADED)
                self.end(shoald)
                del shoald.env[name]
        with Registrar(shoald.start().wait_ready()) as registrar: # of itself it knows them, too
            self.assertEqual([registrar.status(name).status for name in ("m", "n")], [NOT_LOADED] * 2)
        self.assertNotIn("mesh_registered", shoald.stderr)
        self.end(shoald)

    # ---- what it waits for ----

    def check_not_ready(self, node, port):
        self.assertEqual(fetch(port, "/ready")[0], 503)
        self.assertNotIn("ready pipelines=", node.stderr)

    def test_etcd_is_not_there_yet(self):
        port = free_port()
        node = self.node([entry("m", ensureLoaded=True)], probes=f"127.0.0.1:{port}")
        node.start().wait_log("mesh_store_trouble")
        node.wait_log("worker_ready")
        self.check_not_ready(node, port)
        self.end(node)
        node.start().wait_log("mesh_store_trouble")
        self.etcd.start()
        node.wait_ready()
        wait_until(lambda: fetch(port, "/ready")[0] == 200, "the probe to see it")
        with Registrar(node) as registrar:
            self.assertEqual(said(registrar.infer("m")), "m")
        self.assertNotIn("mesh_register_waits", node.stderr) # nothing is tried before
        self.end(node)

    def test_a_load_is_waited_for(self):
        self.etcd.start()
        port = free_port()
        listed = [entry("slow", of_key=key(load="slow"), ensureLoaded=True), entry("m")]
        node = self.shoald = self.node(listed, probes=f"127.0.0.1:{port}")
        for how in ("killed", "stopped"):
            with self.subTest(f"{how} meanwhile"):
                node.start()
                self.wait_held("slow")
                with Registrar(node) as registrar:
                    self.assertEqual([registrar.status(name).status for name in ("slow", "m")],
                                     [LOADING, NOT_LOADED])
                self.check_not_ready(node, port)
                if how == "killed":
                    node.kill()
                else:
                    node.drain()
                    self.give("slow")
                    node.check_end()
                    (node.folder / "slow.go").unlink()
                (node.folder / "slow.held").unlink()
        node.start()
        self.wait_held("slow")
        self.check_not_ready(node, port)
        self.give("slow")
        node.wait_ready()
        with Registrar(node) as registrar:
            self.assertEqual(registrar.status("slow").status, LOADED)
        self.end(node)

    def test_nobody_may_load_it_yet(self):
        self.etcd.start()
        port = free_port()
        rules = json.dumps({"special": {"required": ["special"]}})
        node = self.node([entry("m"), entry("s", kind="special", ensureLoaded=True)],
                         mesh={"type_constraints": rules}, probes=f"127.0.0.1:{port}")
        node.start().wait_log('mesh_register_waits model="s" .*meet the label requirements')
        self.check_not_ready(node, port)
        other = self.node([], "node-b", mesh={"type_constraints": rules, "labels": ["special"]})
        other.start().wait_ready()
        node.wait_ready()
        with Registrar(node) as registrar:
            self.assertEqual([copy.location for copy in registrar.status("s").modelCopyInfos], ["node-b"])
        self.end(node)
        self.end(other)

    # ---- what ends it ----

    def test_it_cannot_be_registered(self):
        self.etcd.start()
        good = self.node([])
        good.start().wait_ready()
        with Registrar(good) as registrar:
            registrar.register("taken", path="folder")
            registrar.register("theirs")
            registrar.call("setVModel", vModelId="v", targetModelId="theirs", owner="they")
            for wrong, *texts in (
                    (entry("taken"), 'entry 3: "taken": ALREADY_EXISTS: Model already exists with '
                     "different attribute values", "unregister that one, or list"),
                    (entry("mine", vModelId="v"), 'entry 3: "mine" as "v": ALREADY_EXISTS: vmodel v '
                     'already exists with different owner \\"they\\"', "list another vModelId"),
                    (entry("bad", of_key=key(fail="it is no good"), ensureLoaded=True),
                     'entry 3: "bad": it has `ensureLoaded`, and its load failed: ', "it is no good")):
                with self.subTest(wrong["modelId"]):
                    node = self.node([entry("fine"), entry("fine too"), wrong], "node-b",
                                     mesh={"vmodel_owner": "me"})
                    self.check_ends(node, "start_failed error=", "shoald: mesh: register: ",
                                    *(text.replace('\\"', '"') for text in texts))
                    wait_until(lambda: "node-b" not in self.revisions("instances"),
                               "node-b to be gone")
            self.assertEqual(said(registrar.infer("fine")), "fine") # what was done by then stays
        self.end(good)

    def test_the_list_makes_no_sense(self):
        for text, said_of_it in (
                ("[{}]", "listed.json: entry 1: modelId: must be given, and not empty"),
                ('[{"modelId": "m"', "listed.json: not JSON: "),
                (None, "listed.json: it cannot be opened: No such file")):
            node = self.node([])
            path = node.folder / "listed.json"
            path.write_text(text) if text else path.unlink()
            self.check_ends(node, said_of_it)


class EtcdGone(Rig):
    """A node that has begun to register when etcd goes. It waits for 30 s before it says so: that
    begins before the tests of this file, and is judged after them."""

    def __init__(self):
        self.etcd = Etcd()
        unittest.addModuleCleanup(self.etcd.__exit__)
        self.etcd.start()
        self.shoald = node_with_list(self.etcd,
                                     [entry("slow", of_key=key(load="slow"), ensureLoaded=True)],
                                     models={"load_timeout_ms": 600000})
        unittest.addModuleCleanup(self.shoald.discard)
        self.shoald.start()
        self.wait_held("slow")
        self.etcd.stop()


etcd_gone = None


def setUpModule():
    global etcd_gone
    etcd_gone = EtcdGone()


class TestEtcdGoes(RegisterTest):
    def test_etcd_goes_meanwhile(self):
        node = etcd_gone.shoald
        node.wait_log('mesh_register_waits model="slow" error="this node cannot read or write the registry')
        etcd_gone.etcd.start()
        node.wait_log("mesh_session_begun", count=2)
        self.assertNotIn("ready pipelines=", node.stderr)
        etcd_gone.give("slow")
        node.wait_ready()
        self.end(node)


if __name__ == "__main__":
    main()
