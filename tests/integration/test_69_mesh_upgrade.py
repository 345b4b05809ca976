# SPDX-License-Identifier: Apache-2.0
"""One node of a mesh of two is upgraded while both are called: no call fails, and its models are
at the new instance or the other node when the old one has ended. Labels keep some of them from the
other node, so that they must move to the new instance.

ctest: timeout=240
"""

import json
import unittest

from shoal_callers import Callers
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import free_port, main, node, wait_until
from shoal_http2 import GOAWAY, Http2
from shoal_meshes import Etcd
from shoal_pupil import MIB, key, known, pupil, said
from shoal_registry import LOADED, Registrar
from shoal_runtime import Runtime
from shoal_upgrade import Upgradable, Upgrade

MODELS = [f"m{i}" for i in range(12)]
BOUND = MODELS[::3]  # to nodes with the label "a"
RULES = json.dumps({"bound": {"required": ["a"]}})
UPGRADES = 3
CROWD = [f"large{i}" for i in range(15)]  # two nodes have room for ten of them
LARGE = key(bytes=12 * MIB)
LIVE = "/inference.GRPCInferenceService/ServerLive"


class MeshNode(Upgradable):
    def __init__(self, etcd, name, **mesh):
        super().__init__(node(pupil(), drain_timeout_ms=20000, mesh={
            "store": f"etcd:{etcd.url}", "service": "test", "instance": name,
            "type_constraints": RULES, **mesh}))
        root = self.folder / "models"
        root.mkdir()
        (root / "model").write_text("a model")


def model_calls(target, models):
    def loop(stop):
        with Registrar(target) as registrar:
            while not stop.is_set():
                for model in models:
                    assert said(registrar.infer(model)) == model
                    yield
    return loop


class TestMesh(unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())

    def node(self, name, **mesh):
        shoald = MeshNode(self.etcd, name, **mesh)
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        return shoald

    def rows(self, shoald, *words):
        return shoalctl("mesh", *words, "--json", "--counters", shoald.counters).json_lines

    def copies(self, shoald):
        """Where each model is loaded."""
        return {model: {row["node"] for row in self.rows(shoald, "copies", model)[1:]
                        if row["state"] == "loaded"} for model in MODELS}

    def test_fails_no_call(self):
        port, other = free_port(), free_port()
        a = self.node("node-a", labels=["a"], peers=[f"127.0.0.1:{port}"],
                      upgrade_peers=[f"127.0.0.1:{other}"])
        b = self.node("node-b", peers=["127.0.0.1:0"])
        with Registrar(a) as registrar:
            for model in MODELS:
                registrar.register(model, kind="bound" if model in BOUND else "pupil")
                registrar.infer(model)
                registrar.wait_status(model, LOADED)
        instance, addresses = "node-a", []
        loops = [model_calls(shoald.target, MODELS[i::2]) for shoald in (a, b) for i in range(2)]
        with Callers(*loops) as callers:
            for _ in range(UPGRADES):
                callers.wait_progress()
                a.upgrade()
                before, instance = instance, f"node-a-{a.pid}"
                nodes = {row["id"]: row for row in self.rows(a, "nodes")}
                self.assertEqual(set(nodes), {instance, "node-b"})
                addresses.append(nodes[instance]["address"])
                for model, where in self.copies(b).items():
                    self.assertNotIn(before, where, model)
                    self.assertTrue(model not in BOUND or where == {instance}, (model, where))
            callers.wait_progress()
        self.assertEqual(callers.failed, [])
        self.assertEqual(a.ended, (0,) * UPGRADES, a.stderr)
        self.assertEqual(addresses, [f"127.0.0.1:{(other, port)[i % 2]}" for i in range(UPGRADES)])
        print(f"{UPGRADES} upgrades, {sum(callers.done)} calls, {len(callers.failed)} failed")
        for shoald in (a, b):
            self.assertEqual(shoald.terminate(), 0)
            shoald.check_nothing_left()
            shoald.check_log()

    def test_models_move_first(self):
        """Callers are asked to reconnect when the new instance has the model, which only it may take.
        Until then the old one serves it."""
        a = self.node("node-a", labels=["a"], peers=["127.0.0.1:0"])
        cue = [a.folder / f"cue.{end}" for end in ("held", "go")]
        cue[1].touch()
        with Registrar(a) as registrar, Http2(str(a.socket)) as caller:
            registrar.register("bound", kind="bound", key=key(load="cue"))
            self.assertEqual(known(registrar.infer("bound")), 1)
            caller.wait_end(caller.ask(LIVE))
            for file in cue:
                file.unlink()
            upgrade = Upgrade(a)
            wait_until(cue[0].exists, "the new instance to load the model")
            caller.wait_end(caller.ask(LIVE))
            self.assertNotIn(GOAWAY, caller.kinds)
            self.assertEqual(known(registrar.infer("bound")), 1)  # it has loaded it
            cue[1].touch()
            caller.answer_pings_until_closed()
            self.assertIn(GOAWAY, caller.kinds)
            caller.socket.close()
            upgrade.end()
            a.adopt(a.stat()["pid"])
            self.assertEqual(said(registrar.infer("bound")), "bound")
        self.assertEqual(a.ended, (0,), a.stderr)
        self.assertEqual(a.terminate(), 0)
        a.check_nothing_left()
        a.check_log()

    def test_models_that_do_not_all_fit(self):
        """Calls load and evict before, during and after the upgrade."""
        a, b = (self.node(name, peers=["127.0.0.1:0"]) for name in ("node-a", "node-b"))
        with Registrar(a) as registrar:
            for model in CROWD:
                registrar.register(model, key=LARGE)
        with Callers(*(model_calls(shoald.target, CROWD) for shoald in (a, b))) as callers:
            wait_until(lambda: callers.failed or a.stat()["mesh_evictions"] > 3, "evictions")
            a.upgrade()
            wait_until(lambda: callers.failed or a.stat()["mesh_evictions"] > 3, "more evictions")
        self.assertEqual(callers.failed, [])
        self.assertEqual(a.ended, (0,), a.stderr)
        with Registrar(b) as registrar:
            for model in CROWD:  # a drain of full nodes takes its grace
                registrar.unregister(model)
        for shoald in (a, b):
            self.assertEqual(shoald.terminate(), 0)

    def test_an_external_runtime_cannot_be_shared(self):
        runtime = self.enterContext(Runtime())
        shoald = Upgradable({"message_mib": 1, "mesh": {
            "instance": "node-a", "runtime": runtime.address, "store": f"etcd:{self.etcd.url}",
            "peers": ["127.0.0.1:0"]}})
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        self.assertIn("external runtime", Upgrade(shoald).end(NEGATIVE).err)


if __name__ == "__main__":
    main()
