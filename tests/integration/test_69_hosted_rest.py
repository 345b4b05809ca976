# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that rest: `scaleToZero` of model-serving-config, with real processes (shoal_container.py).

Proves: a runtime that no model needs loses its processes and all that they started; a model of its types
brings it back, and calls wait for it within their deadlines; a call whose deadline ends first is told so;
a node that is killed meanwhile leaves nothing behind, and its successor serves; a resting runtime makes way
for another that is needed. ctest: timeout=240
"""

import json

import grpc

from shoal_contract import LOADED
from shoal_fixture import WAIT_SECONDS, free_port, main, wait_until
from shoal_hosting import ANY, Case, container, processes, runtime, service
from shoal_registry import Registrar


def scale(grace, **more):
    text = json.dumps({"scaleToZero": {"gracePeriodSeconds": grace, **more}})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "model-serving-config"},
            "data": {"config.yaml": text}}


class Resting(Case):
    """One runtime of the type mt:sort, which is READY while the file `open` exists."""

    def begin(self, **keys):
        self.start(**keys)
        self.open = self.at.folder / "open"
        self.open.touch()
        self.apply(scale(0), self.manifest())

    def manifest(self, name="sorter", port=None, **more):
        address = f"127.0.0.1:{port or self.port}"
        server = container(f"serve={address}", f"open={self.open}", "fork", env=[self.mark])
        return runtime(name, address, server, **more)

    def wait_rest(self, name="sorter"):
        self.wait_state(name, "Idle")
        self.wait_gone()

    def call_model(self, model, timeout=WAIT_SECONDS):
        return self.registrar.channel.unary_unary(ANY).future(
            b"hello", timeout=timeout, metadata=(("mm-model-id", model),))

    def rests(self):
        stat = self.at.stat()
        return stat["mesh_runtime_rests"], stat["mesh_runtime_wakes"]


class TestOneNode(Resting):
    def test_two_callers_bring_it_back(self):
        self.begin()
        self.wait_rest()
        self.assertEqual(self.rests(), (1, 0))
        labels = self.ctl("mesh", "nodes", "--json").out
        self.assertIn("state:resting", labels)
        self.assertIn("mt:sort", labels)
        self.assertRegex(self.ctl("get", "servingruntimes").out, r"(?m)^ +sorter +sort +server +0/0 +0 ")
        self.ctl("wait", "--for=condition=Ready", "servingruntime/sorter")
        self.registrar.register("m", kind="mt:sort")
        calls = [self.call_model("m") for _ in range(2)]
        told = [json.loads(call.result()) for call in calls]
        self.assertEqual(told[0]["pid"], told[1]["pid"])
        self.wait_state("sorter", "Ready")
        wait_until(lambda: "state:resting" not in self.ctl("mesh", "nodes", "--json").out, "the label to go")
        self.assertEqual(self.rests(), (1, 1))
        self.registrar.unregister("m")
        self.wait_rest()
        self.assertEqual(self.rests(), (2, 1))

    def test_a_service_brings_it_back_and_is_loaded(self):
        self.begin()
        self.wait_rest()
        self.apply(service("life"))
        self.wait_ready("life")
        self.registrar.wait_status(self.model_of("life"), LOADED)
        self.call("life")
        self.apply(scale(0, enabled=False))
        self.ctl("delete", "isvc", "life")
        wait_until(lambda: "life" not in self.ctl("mesh", "models", "--json").out, "its model to go")
        self.wait_state("sorter", "Ready")
        self.apply(scale(0))
        self.wait_rest()
        self.apply(scale(0, enabled=False))
        self.wait_state("sorter", "Ready")

    def model_of(self, vmodel):
        return self.registrar.call("getVModelStatus", vModelId=vmodel, owner="isvc").activeModelId

    def test_a_deadline_before_it_is_ready(self):
        self.begin()
        self.wait_rest()
        self.open.unlink()
        self.registrar.register("m", kind="mt:sort")

        def refused():
            error = self.call_model("m", timeout=4).exception()
            self.assertIn(error.code(), (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))
            return error.code() == grpc.StatusCode.UNAVAILABLE and error.details()
        self.assertIn("no runtime that may load the model was ready in time", wait_until(refused, "a refusal"))
        self.wait_state("sorter", "Starting")
        self.assertIn("state:resting", self.ctl("mesh", "nodes", "--json").out)
        waiting = self.call_model("m")
        self.open.touch()
        self.assertTrue(json.loads(waiting.result())["pid"])

    def test_it_makes_way_for_another_that_is_needed(self):
        self.begin()
        self.wait_rest()
        self.apply(self.manifest("other", free_port(), formats=("other",)))
        self.wait_state("other", "Busy")
        self.registrar.register("o", kind="mt:other")
        self.wait_state("other", "Ready")
        self.assertTrue(self.call_model("o").result())
        self.wait_state("sorter", "Busy")


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
