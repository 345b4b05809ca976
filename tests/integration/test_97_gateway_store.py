# SPDX-License-Identifier: Apache-2.0
"""The gateway's resources in a mesh's etcd: applied with shoalctl to a node, watched by gateways.

Proves, with a real etcd, a node, two gateways and a simulated server: what is applied is routed by
both, and `get` and `describe` show what each makes of it; a bad document is refused with line and
field, and one that only gateways can judge leaves the old state in force; gateways serve on while
etcd is away, take a change when it is back, and one that starts meanwhile serves nobody until it
knows the resources; what is deleted is gone. ctest: timeout=180
"""

import json
import unittest

from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import main, wait_until
from shoal_meshes import Etcd, Nodes
from test_97_gateway import Gateway, Model
from test_97_gateway_resources import document, llm_route, pool, rewrite


class StoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = cls.enterClassContext(Etcd())
        cls.node = cls.enterClassContext(Nodes(cls.etcd, ["node-a"]))["node-a"]
        cls.model = Model("one")
        cls.addClassCleanup(cls.model.kill)

    def gateway(self, name):
        gateway = Gateway([self.model], store=f"etcd:{self.etcd.url}", store_service="test", name=name)
        self.addCleanup(gateway.close)
        return gateway

    def ctl(self, *words, **options):
        return shoalctl(*words, "--counters", self.node.counters, **options)

    def apply(self, *documents, **options):
        return self.ctl("apply", "-f", "-", stdin="\n---\n".join(documents).encode(), **options)

    def wait(self, name, wanted="condition=Ready"):
        self.ctl("wait", f"--for={wanted}", name)

    def conditions(self, kind, name):
        """{gateway: {type: reason}}"""
        told = self.ctl("get", kind, name, "-o", "json").json.get("status", {})
        return {one["gateway"]: {at["type"]: at["reason"] for at in one["conditions"]}
                for one in told["gateways"]}

    def wait_conditions(self, kind, name, **wanted):
        def are_told():
            told = self.conditions(kind, name)
            return told.get("gw-1") == told.get("gw-2") == wanted
        wait_until(are_told, lambda: self.conditions(kind, name))

    def wait_status(self, gateway, model, wanted):
        wait_until(lambda: gateway.chat(model)[0] == wanted,
                   lambda: (gateway.chat(model), gateway.read_log()))

    def test_from_apply_to_delete(self):
        gateways = [self.gateway("gw-1"), self.gateway("gw-2")]
        for gateway in gateways:
            gateway.wait_up(self.model)
        self.apply(pool("all"), llm_route("assistant", "red"))
        self.wait("llmroute/assistant")
        for gateway in gateways:
            self.wait_status(gateway, "blue", 404)
            self.assertEqual(gateway.chat("red")[0], 200)
        self.wait_conditions("llmroute", "assistant", Accepted="Accepted",
                             ResolvedRefs="ResolvedRefs")
        self.assertIn("2/2", self.ctl("get", "llmroutes").out)
        self.assertIn("gw-2", self.ctl("describe", "llmroute", "assistant").out)

        # named as a part of its reports' keys
        self.apply(document("InferenceObjective", "gateway", {"poolRef": {"name": "gone"}}))
        self.wait_conditions("inferenceobjective", "gateway", Accepted="Accepted",
                             ResolvedRefs="BackendNotFound")
        said = self.apply("kind: LLMRoute\nmetadata: {name: a}\nspec:\n  backendRef: []\n",
                          code=NEGATIVE)
        self.assertIn("stdin:4: spec.backendRef: is not a field of it", said.err)
        self.assertIn("+ spec.backendRefs[0]", self.ctl("diff", "-f", "-", code=NEGATIVE, stdin=llm_route(
            "assistant", "green").encode()).out)
        self.check_away(gateways)

        self.ctl("delete", "llmroute", "assistant")
        self.wait("llmroute/assistant", "delete")
        for gateway in gateways:
            self.wait_status(gateway, "blue", 200)
        self.check_refused_by_gateways(gateways)

    def test_a_name_of_two(self):
        for gateway in (self.gateway("twin"), self.gateway("twin")):
            gateway.wait_up(self.model)
        for name in ("first", "second"):
            self.apply(document("InferenceObjective", name, {"priority": 1}))
            self.wait(f"inferenceobjective/{name}")
        report = self.etcd.ask("/v3/kv/range",
                               key="/tas-runtime/test/manifests/InferenceObjective/first/gateway/twin")
        self.assertLess(int(report["kvs"][0]["version"]), 10)  # neither writes over the other's
        for name in ("first", "second"):
            self.ctl("delete", "inferenceobjective", name)
            self.wait(f"inferenceobjective/{name}", "delete")

    def check_away(self, gateways):
        self.etcd.stop()
        late = self.gateway("gw-3")
        for gateway in gateways:
            wait_until(lambda gateway=gateway: "gateway_store_away" in gateway.read_log(),
                       gateway.read_log)
            self.assertEqual((gateway.chat("red")[0], gateway.chat("blue")[0]), (200, 404))
        wait_until(lambda: "gateway_store_away" in late.read_log(), late.read_log)
        self.assertEqual(late.chat("red")[0], 503)
        self.etcd.start()
        self.wait_status(late, "red", 200)
        self.assertEqual(late.chat("blue")[0], 404)
        wait_until(self.applies_canary, late.read_log)  # the node comes back in its own time
        for gateway in gateways:
            wait_until(lambda gateway=gateway: json.loads(gateway.chat("red")[2])["model"] == "green",
                       gateway.read_log)

    def applies_canary(self):
        try:
            self.apply(rewrite("canary", "red", {"green": 1}))
        except AssertionError:
            return False
        return True

    def check_refused_by_gateways(self, gateways):
        """Each document is good; there are too many of them."""
        self.apply(*(pool(f"pool-{i:02}") for i in range(64)))
        self.wait_conditions("inferencepool", "pool-63", Accepted="Invalid")
        for gateway in gateways:
            self.assertEqual(gateway.chat("red")[0], 200)
        self.ctl("delete", "inferencepool", "pool-00")
        self.wait("inferencepool/pool-63")


if __name__ == "__main__":
    main()
