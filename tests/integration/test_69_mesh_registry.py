# SPDX-License-Identifier: Apache-2.0
"""Faults of the registry, or of a node's place in it: real daemons, and a real etcd, on
loopback (shoal_meshes.py).

Proves: a record that cannot be read is named at once to its callers, and numbers of
any length survive a rewrite; an etcd without space is named at once to callers that need a write,
also by a node that starts then, seen by the operator, and no hindrance once it has space again;
orders beyond the writes that may wait for etcd are refused at once, and those that wait are carried
out; a node that ends takes its keys with it; no node publishes an address of the caller's own machine.
ctest: timeout=300
"""

import json
import signal
import statistics
import time
import unittest
import urllib.error

import grpc

from shoal_client import failure
from shoal_ctl import shoalctl
from shoal_fixture import Shoald, main, wait_until
from shoal_meshes import Etcd, Nodes, mesh_node
from shoal_pupil import MIB, Rig, key, said
from shoal_registry import LOADED, Registrar
from shoal_runtime import Runtime

Code = grpc.StatusCode
PREFIX = "/tas-runtime/test/"
KIB = 1 << 10
ELSEWHERE = "http://192.0.2.1:2379"  # an address that stands for none


def model_of(of_key, **more):
    return json.dumps({"type": "pupil", "encKey": of_key, "mPath": "model", **more},
                      separators=(",", ":"))


class TestRecords(Rig, unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())

    def start(self):
        nodes = self.enterContext(Nodes(self.etcd, ["node-a"]))
        self.shoald, self.registrar = nodes["node-a"], nodes.at("node-a")

    def check_refused(self, method, **fields):
        with self.subTest(method):
            code, text = failure(self.registrar.start(method, **fields))
            self.assertEqual(code, Code.INTERNAL, text)
            self.assertIn(f"{PREFIX}registry/bad: ", text)
            self.assertIn("not JSON", text)

    def check_all_refused(self):
        info = {"type": "pupil", "path": "model"}
        self.check_refused("registerModel", modelId="bad", modelInfo=info)
        self.check_refused("unregisterModel", modelId="bad")
        self.check_refused("ensureLoaded", modelId="bad", sync=True)
        self.check_refused("setVModel", vModelId="new", targetModelId="bad", modelInfo=info)

    def test_one_that_never_was_json(self):
        self.etcd.put(f"{PREFIX}registry/bad", "{not json")
        self.etcd.put(f"{PREFIX}vmodels/v", "[]")
        self.start()
        self.check_all_refused()
        self.check_refused("getModelStatus", modelId="bad")
        code, text = failure(self.registrar.start("deleteVModel", vModelId="v"))
        self.assertEqual((code, text.split(": ")[0]), (Code.INTERNAL, f"{PREFIX}vmodels/v"))
        code, text = failure(self.registrar.start_infer("bad"))
        self.assertEqual((code, text.split(": ")[0]), (Code.INTERNAL, f"{PREFIX}registry/bad"))
        with self.subTest("somebody writes it well"):
            self.etcd.put(f"{PREFIX}registry/bad", model_of(key()))
            wait_until(lambda: self.registrar.start_infer("bad").code() is Code.OK, "it to be known")
            self.registrar.unregister("bad")

    def test_one_that_was(self):
        self.start()
        self.registrar.register("bad")
        self.registrar.register("good")
        self.registrar.call("setVModel", vModelId="v", targetModelId="bad")
        self.etcd.put(f"{PREFIX}registry/bad", "{not json")
        self.check_all_refused()
        code, text = failure(self.registrar.start_infer("bad"))
        self.assertEqual((code, text.split(": ")[0]), (Code.INTERNAL, f"{PREFIX}registry/bad"))
        self.check_refused("deleteVModel", vModelId="v")
        self.check_refused("setVModel", vModelId="v", targetModelId="good", force=True)
        self.etcd.delete(f"{PREFIX}registry/bad")
        self.registrar.call("deleteVModel", vModelId="v")

    def test_numbers_of_any_length(self):
        numbers = '"a":18446744073709551616,"b":[-9223372036854775809,1e999]'
        self.etcd.put(f"{PREFIX}registry/large", f"{model_of(key())[:-1]},{numbers}}}")
        self.start()
        self.assertEqual(said(self.registrar.infer("large")), "large")
        self.registrar.wait_status("large", LOADED)
        now = self.etcd.get(f"{PREFIX}registry/large")
        self.assertIn('"loaded":{"node-a":', now)
        self.assertIn(numbers, now)


class Space(Rig):
    """An etcd that can be filled, and freed again."""

    def setUp(self):
        self.etcd = self.enterContext(Etcd(options=["--quota-backend-bytes", str(4096 * KIB)]))
        self.took_s = []

    def fill(self):
        """Until etcd takes no more."""
        for number in range(1000):
            try:
                self.etcd.put(f"/filler/{number}", "x" * 64 * KIB)
            except urllib.error.HTTPError as error:
                self.assertIn("database space exceeded", error.read().decode())
                return
        self.fail("the quota does not hold")

    def free(self):
        range_end = "/filler0"
        revision = self.etcd.ask("/v3/kv/deleterange", key="/filler/", range_end=range_end)
        self.etcd.ask("/v3/kv/compaction", revision=int(revision["header"]["revision"]),
                      physical=True)
        self.etcd.ask("/v3/maintenance/defragment")
        for alarm in self.etcd.ask("/v3/maintenance/alarm", action=0).get("alarms", []):
            self.etcd.ask("/v3/maintenance/alarm", action=2, memberID=int(alarm["memberID"]),
                          alarm=1)

    def check_refused(self, future, what):
        with self.subTest(what):
            began = time.monotonic()
            code, text = failure(future)
            self.took_s.append(time.monotonic() - began)
            self.assertEqual(code, Code.UNAVAILABLE, text)
            self.assertRegex(text, "^the registry takes no writes: .*database space exceeded")

    def check_at_once(self):
        """Not each: the machine may stall for a moment."""
        self.assertLess(statistics.median(self.took_s), 1, self.took_s)


class TestSpace(Space, unittest.TestCase):
    def setUp(self):
        super().setUp()
        rules = json.dumps({"only-b": {"required": ["node-b"]}})
        # two models fit into a node, so none is loaded in advance (G3) before etcd is full
        self.nodes = self.enterContext(Nodes(
            self.etcd, ["node-a", "node-b"], mesh={"type_constraints": rules},
            models={"memory_mib": 8, "default_size_mib": 4},
            each={"node-b": {"mesh": {"type_constraints": rules, "labels": ["node-b"]}}}))

    def check_seen(self, name, full):
        node = self.nodes[name]
        wait_until(lambda: node.stat()["mesh_store_full"] == full, f"{name} to count it")
        at = ("--counters", node.counters)
        self.assertEqual("etcd refuses writes" in shoalctl("status", *at).out, full)
        self.assertEqual(json.loads(shoalctl("status", "--json", *at).out)["node"]["registry_full"],
                         full)
        rows = {row["id"]: row["store_full"]
                for row in shoalctl("mesh", "nodes", "--json", *at).json_lines}
        self.assertEqual(rows, {"node-a": False, "node-b": False, name: full})
        self.assertEqual("etcd-full" in shoalctl("mesh", "nodes", *at).out, full)

    def test_no_space(self):
        first = self.nodes.at("node-a")
        for model in ("hot", "cold", "colder"):
            first.register(model, key=key(bytes=4 * MIB))
        first.register("there", kind="only-b", key=key(bytes=4 * MIB))
        for name in ("node-a", "node-b"):
            self.assertEqual(said(self.nodes.at(name).infer("hot")), "hot")
        self.fill()
        for name in ("node-a", "node-b"):
            registrar = self.nodes.at(name)
            for model in ("there", "cold", "colder", "cold"):
                self.check_refused(registrar.start_infer(model), f"{name}: a miss of {model}")
            info = {"type": "pupil", "path": "model"}
            self.check_refused(registrar.start("registerModel", modelId="new", modelInfo=info),
                               f"{name}: a registration")
            self.check_refused(registrar.start("ensureLoaded", modelId="cold", sync=True),
                               f"{name}: a load")
            self.check_refused(registrar.start("setVModel", vModelId="v", targetModelId="hot"),
                               f"{name}: a vmodel")
            self.assertEqual(said(registrar.infer("hot")), "hot")
            registrar.status("cold")
            self.check_seen(name, True)
            self.assertGreater(self.nodes[name].stat()["mesh_writes_full"], 0)
        self.check_at_once()
        self.free()
        for name in ("node-a", "node-b"):
            registrar = self.nodes.at(name)
            for model in ("there", "cold", "colder"):
                wait_until(lambda: registrar.start_infer(model).code() is Code.OK,
                           f"{name} to serve {model} again")
            registrar.register(f"new-{name}")
            self.check_seen(name, False)


class TestSpaceAtTheStart(Space, unittest.TestCase):
    """A node without a lease sends no write that etcd could refuse: it reports the refusal of the
    lease."""

    def test_no_lease(self):
        self.etcd.put(f"{PREFIX}registry/there", model_of(key()))
        self.fill()
        first = self.enterContext(mesh_node(self.etcd, "node-a"))
        first.wait_log("mesh_store_trouble error=.*database space exceeded")
        registrar = self.enterContext(Registrar(first))
        info = {"type": "pupil", "path": "model"}
        for method, fields in (("registerModel", {"modelId": "new", "modelInfo": info}),
                               ("unregisterModel", {"modelId": "there"}),
                               ("ensureLoaded", {"modelId": "there", "sync": True}),
                               ("setVModel", {"vModelId": "v", "targetModelId": "there"})):
            self.check_refused(registrar.start(method, **fields), method)
        self.check_refused(registrar.start_infer("there"), "a call")
        self.check_at_once()
        registrar.status("there")
        listed = json.dumps([{"modelId": "listed", "modelInfo": info}])
        second = mesh_node(self.etcd, "node-b", mesh={"register": listed})
        self.addCleanup(second.discard)
        second.start().wait_log("mesh_register_waits .*database space exceeded")
        self.free()
        first.wait_log("mesh_session_begun")
        self.assertEqual(said(registrar.infer("there")), "there")
        registrar.register("new")
        second.wait_ready()
        self.assertEqual(second.terminate(), 0, second.stderr)


class TestBusy(Rig, unittest.TestCase):
    def test_more_writes_than_may_wait(self):
        etcd = self.enterContext(Etcd())
        nodes = self.enterContext(Nodes(etcd, ["node-a"], mesh={"store_waiting_max": 1}))
        node, registrar = nodes["node-a"], nodes.at("node-a")
        self.addCleanup(etcd.process.send_signal, signal.SIGCONT)
        etcd.process.send_signal(signal.SIGSTOP)
        orders = [registrar.start("registerModel", modelId=f"m{i}", modelInfo={"type": "pupil", "path": "model"})
                  for i in range(16)]  # two are sent, one waits
        wait_until(lambda: sum(order.done() for order in orders) >= 13, "the others to be refused")
        wait_until(lambda: node.stat()["mesh_store_waiting"] == 1, "one to wait")
        wait_until(lambda: node.stat()["mesh_writes_busy"] >= 13, "the refusals to be counted")
        etcd.process.send_signal(signal.SIGCONT)
        ends = [order.code() for order in orders]
        refused = [failure(order) for order, code in zip(orders, ends) if code is not Code.OK]
        self.assertEqual(set(refused), {(Code.RESOURCE_EXHAUSTED,
                                         "the registry is busy: too many writes are waiting for etcd")})
        self.assertIn(Code.OK, ends)
        wait_until(lambda: node.stat()["mesh_store_waiting"] == 0, "none to wait")
        registered = {f"m{i}" for i, code in enumerate(ends) if code is Code.OK}
        self.assertEqual(set(etcd.keys(f"{PREFIX}registry/")), registered)


class TestLimits(Rig, unittest.TestCase):
    def test_an_etcd_that_takes_little_at_once(self):
        etcd = self.enterContext(Etcd(options=["--max-txn-ops=8"]))
        nodes = self.enterContext(Nodes(etcd, ["node-a"]))
        node, registrar = nodes["node-a"], nodes.at("node-a")
        self.addCleanup(etcd.process.send_signal, signal.SIGCONT)
        wait_until(lambda: node.stat()["mesh_batch_max"] == 128, "the usual limit")
        etcd.process.send_signal(signal.SIGSTOP)  # so that they go together
        orders = [registrar.start("registerModel", modelId=f"m{i}", modelInfo={"type": "pupil", "path": "model"})
                  for i in range(32)]
        wait_until(lambda: node.stat()["mesh_store_waiting"] >= 20, "many to wait")
        etcd.process.send_signal(signal.SIGCONT)
        self.assertEqual({order.code() for order in orders}, {Code.OK})
        node.wait_log(r'mesh_store_batches operations=64 error=".*too many operations')
        wait_until(lambda: node.stat()["mesh_batch_max"] < 128, "the limit to be told")


class TestEnd(Rig, unittest.TestCase):
    def test_a_node_without_pipelines_takes_its_keys_with_it(self):
        etcd = self.enterContext(Etcd())
        runtime = self.enterContext(Runtime())
        shoald = Shoald({"mesh": {"instance": "node-a", "runtime": runtime.address,
                                  "store": f"etcd:{etcd.url}", "service": "test",
                                  "peers": ["127.0.0.1:0"]}})
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        wait_until(lambda: etcd.keys(f"{PREFIX}instances/") == ["node-a"], "its record")
        wait_until(lambda: etcd.keys(f"{PREFIX}leaderLatch/") == ["_node-a"], "its latch")
        self.assertEqual(shoald.terminate(), 0, shoald.stderr)
        self.assertEqual(etcd.keys(f"{PREFIX}instances/"), [])
        self.assertEqual(etcd.keys(f"{PREFIX}leaderLatch/"), [])
        shoald.check_nothing_left()


class TestAddress(Rig, unittest.TestCase):
    """etcd is on another machine, and is not asked."""

    class Elsewhere:
        url = ELSEWHERE

    def test_loopback_is_not_told_to_other_machines(self):
        shoald = mesh_node(self.Elsewhere, "node-a")
        self.addCleanup(shoald.discard)
        self.assertEqual(shoald.start().wait_exit(), 2, shoald.stderr)
        for text in ("would publish the address 127.0.0.1", ELSEWHERE, "set `address` to"):
            self.assertIn(text, shoald.stderr)
        shoald.check_nothing_left()

    def test_explicit_address_is_taken(self):
        shoald = mesh_node(self.Elsewhere, "node-a", mesh={"address": "127.0.0.1"})
        self.addCleanup(shoald.discard)
        shoald.start().wait_log(r'mesh_open .* address="127\.0\.0\.1:\d+"')
        self.assertEqual(shoald.terminate(), 0, shoald.stderr)


if __name__ == "__main__":
    main()
