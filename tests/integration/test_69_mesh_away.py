# SPDX-License-Identifier: Apache-2.0
"""External runtimes whose adapter lives while their model server is dead: every call ends
UNAVAILABLE, or without any answer.

Proves, with real daemons and runtimes in Python (shoal_runtime.py): the node finds out, says so
once and is not ready; a lone node answers UNAVAILABLE with what the runtime said; nobody's call
fails where another node can serve it; the adapter's word that it is READY is not enough to end
that; calls go there again when the model server answers, and a trial that fails is not logged and
not repeated at once. test_external_circuit.c has the rule by which the node judges.
ctest: timeout=240
"""

import threading
import unittest

import grpc

from shoal_client import Client, failure
from shoal_ctl import shoalctl
from shoal_fixture import WAIT_SECONDS, Shoald, main, wait_until
from shoal_meshes import Etcd
from shoal_metrics import Scrape, metrics_port
from shoal_registry import Registrar
from shoal_runtime import Refusal, Runtime

Code = grpc.StatusCode
METHOD = "/x.Y/Z"
SERVER_READY = "inference.GRPCInferenceService/ServerReady"
AWAY = "external_away target="
AWAYS = "shoal_mesh_runtime_aways_total"


def dead(_request, _context):
    raise Refusal(Code.UNAVAILABLE, "no model server")


def node_of(runtime, name="node-1", **mesh):
    return Shoald({"message_mib": 1, "metrics": "127.0.0.1:0", "mesh": {"instance": name, "runtime": runtime, **mesh}})


def call(registrar, model, timeout=WAIT_SECONDS):
    return registrar.channel.unary_unary(METHOD).future(
        b"hello", timeout=timeout, metadata=(("mm-model-id", model),))


def is_ready(shoald):
    with Client(shoald.target) as client:
        return client.call("ServerReady").ready


class Rig(unittest.TestCase):
    def call_until_away(self, shoald, registrar):
        """Calls that end as they like, for two models."""
        def look():
            for model in ("m", "n"):
                call(registrar, model).exception()
            return AWAY in shoald.stderr
        wait_until(look, lambda: f"{AWAY}\n{shoald.stderr}")
        wait_until(lambda: not is_ready(shoald), "the node not to be ready")

    def check_back(self, shoald, registrar):
        wait_until(lambda: call(registrar, "m").exception() is None, lambda: f"an answer\n{shoald.stderr}")
        shoald.wait_log("external_back target=")
        wait_until(lambda: is_ready(shoald), "the node to be ready")
        self.assertEqual(shoald.stderr.count(AWAY), 1)
        wait_until(lambda: shoald.stat()["mesh_runtime_aways"] == 1, "the counter")
        self.assertEqual(Scrape(metrics_port(shoald))[AWAYS], 1)


class Hung:
    """A model server that hangs. Calls without an answer for half a minute have the node ask it, so they
    begin before the tests of this file, and are judged after them."""

    def __init__(self):
        self.runtime = unittest.enterModuleContext(Runtime())
        self.shoald = unittest.enterModuleContext(node_of(self.runtime.address))
        self.registrar = unittest.enterModuleContext(Registrar(self.shoald))
        for model in ("m", "n"):
            self.registrar.register(model)
            assert call(self.registrar, model).result() == b"answer:hello"
        self.runtime.says.update({METHOD[1:]: self.runtime.hang, SERVER_READY: self.runtime.hang})
        self.ends, self.codes = threading.Event(), set()
        self.thread = threading.Thread(target=self.call_on)
        self.thread.start()
        unittest.addModuleCleanup(self.stop)

    def call_on(self):
        while not self.ends.is_set() and AWAY not in self.shoald.stderr:
            for ended in [call(self.registrar, model, 0.5) for model in ("m", "n")]:
                self.codes.add(ended.exception().code())

    def stop(self):
        self.ends.set()
        self.thread.join()


hung = None


def setUpModule():
    global hung
    hung = Hung()


class Lone(Rig):
    """A node of its own."""

    def start(self, runtime, **mesh):
        shoald = self.enterContext(node_of(runtime, **mesh))
        registrar = self.enterContext(Registrar(shoald))
        for model in ("m", "n"):
            registrar.register(model)
            self.assertEqual(call(registrar, model).result(), b"answer:hello")
        return shoald, registrar

    def test_a_model_server_at_an_address_of_its_own(self):
        """The adapter says READY all along; the node asks the model server's address whether
        anybody is there."""
        adapter, server = self.enterContext(Runtime()), self.enterContext(Runtime())
        server.held = adapter.held
        shoald, registrar = self.start(adapter.address, runtime_calls=server.address)
        server.stop()
        self.call_until_away(shoald, registrar)
        code, text = failure(call(registrar, "m"))
        self.assertIs(code, Code.UNAVAILABLE)
        self.assertRegex(text, r"^the runtime of this node is not ready \(.*x\.Y/Z: UNAVAILABLE: .+\), and no other")
        starting = Runtime(server.address)  # it is there, and not ready yet
        starting.says[SERVER_READY] = lambda _request, _context: b""
        with starting:
            wait_until(lambda: starting.count(SERVER_READY) >= 2, "two probes")
        self.assertEqual(adapter.count("runtimeStatus"), 1)
        self.assertFalse(is_ready(shoald))
        self.assertIs(failure(call(registrar, "m"))[0], Code.UNAVAILABLE)
        with Runtime(server.address) as second:
            second.held = adapter.held
            second.says[SERVER_READY] = lambda _request, _context: b"\x08\x01"
            self.check_back(shoald, registrar)
            self.assertEqual(adapter.count("runtimeStatus"), 2)
            self.assertEqual(adapter.requests("loadModel")[-1].modelId, "m")

    def test_an_adapter_that_passes_calls_on(self):
        """It answers the probe itself, so only a call shows that the model server is dead or
        back."""
        runtime = self.enterContext(Runtime())
        shoald, registrar = self.start(runtime.address)
        runtime.says[METHOD[1:]] = dead
        self.call_until_away(shoald, registrar)
        self.assertIn("(x.Y/Z: UNAVAILABLE: no model server)", failure(call(registrar, "m"))[1])

        def look():  # two trials that fail, each by one call
            self.assertIs(call(registrar, "m").exception().code() in (Code.UNAVAILABLE, Code.INTERNAL), True)
            return runtime.count("runtimeStatus") == 3 and not is_ready(shoald)
        before = runtime.count(METHOD[1:])
        wait_until(look, "two trials")
        self.assertLessEqual(runtime.count(METHOD[1:]) - before, 3)
        del runtime.says[METHOD[1:]]
        self.check_back(shoald, registrar)


class Pair(Rig):
    def test_calls_go_to_the_other_node(self):
        etcd = self.enterContext(Etcd())
        runtimes, nodes, registrars = {}, {}, {}
        for name in ("node-a", "node-b"):
            runtimes[name] = self.enterContext(Runtime())
            nodes[name] = self.enterContext(node_of(
                runtimes[name].address, name, store=f"etcd:{etcd.url}", peers=["127.0.0.1:0"], address="127.0.0.1"))
            registrars[name] = self.enterContext(Registrar(nodes[name]))
        for name, shoald in nodes.items():
            wait_until(lambda: len([row for row in shoalctl("mesh", "nodes", "--json", "--counters", shoald.counters)
                                    .json_lines if row["capacity_bytes"] > 0]) == 2, f"{name} to see both")
        for model in ("m", "n"):
            registrars["node-a"].register(model)
            self.assertEqual(call(registrars["node-a"], model).result(), b"answer:hello")
        for runtime in runtimes.values():
            runtime.says[SERVER_READY] = lambda _request, _context: b""
        runtimes["node-a"].says.update({METHOD[1:]: dead, "loadModel": dead})
        asked = 0

        def look():
            nonlocal asked
            for model in ("m", "n", f"x{asked}"):
                if model.startswith("x"):
                    registrars["node-a"].register(model)
                self.assertEqual(call(registrars["node-a"], model).result(), b"answer:hello")
            asked += 1
            return AWAY in nodes["node-a"].stderr
        wait_until(look, lambda: nodes["node-a"].stderr)
        wait_until(lambda: not is_ready(nodes["node-a"]), "node-a not to be ready")
        self.assertTrue(is_ready(nodes["node-b"]))
        before = runtimes["node-a"].count(METHOD[1:])
        for registrar in registrars.values():
            for model in ("m", "n") * 20:
                self.assertEqual(call(registrar, model).result(), b"answer:hello")
        self.assertEqual(runtimes["node-a"].count(METHOD[1:]), before)


class Hangs(Rig):
    def test_a_model_server_that_hangs(self):
        """Its silence is what counts."""
        hung.shoald.wait_log(AWAY + r'.* error="calls for several models and ServerReady timed out"')
        hung.thread.join()
        self.assertLessEqual(hung.codes, {Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE})
        wait_until(lambda: not is_ready(hung.shoald), "the node not to be ready")
        hung.runtime.says.clear()
        self.check_back(hung.shoald, hung.registrar)


del Rig


if __name__ == "__main__":
    main()
