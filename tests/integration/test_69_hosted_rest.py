# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that rest: `scaleToZero` of model-serving-config, with real processes (shoal_container.py).

Proves: a runtime that no model needs loses its processes and all that they started; a model of its types
brings it back, and calls wait for it within their deadlines; a call whose deadline ends first is told so;
a manifest that changes meanwhile costs no start.
ctest: timeout=240
"""

import json

import grpc

from shoal_contract import LOADED
from shoal_fixture import main, wait_until
from shoal_hosting import Resting, scale, service


class TestOneNode(Resting):
    def test_two_callers_bring_it_back(self):
        self.begin()
        self.wait_rest()
        self.assertEqual(self.rests(), (1, 0))
        self.assertIn("mt:sort", wait_until(self.resting_nodes, "the label"))
        self.assertRegex(self.ctl("get", "servingruntimes").out, r"(?m)^ +sorter +sort +server +0/0 +0 ")
        self.ctl("wait", "--for=condition=Ready", "servingruntime/sorter")
        self.registrar.register("m", kind="mt:sort")
        calls = [self.call_model("m") for _ in range(2)]
        told = [json.loads(call.result()) for call in calls]
        self.assertEqual(told[0]["pid"], told[1]["pid"])
        self.wait_state("sorter", "Ready")
        wait_until(lambda: not self.resting_nodes(), "the label to go")
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

    def test_a_changed_manifest_leaves_it_at_rest(self):
        """It is not started for that, and its labels are those of the new manifest."""
        self.begin()
        self.wait_rest()
        self.apply(self.manifest(formats=("sort", "more")))
        wait_until(lambda: "mt:more" in self.resting_nodes(), "the new label, at rest")
        self.assertIn("mt:sort", self.resting_nodes())
        self.assertEqual(self.rests(), (1, 0))
        self.open.unlink()
        self.registrar.register("m", kind="mt:more")
        waiting = self.call_model("m")
        wait_until(lambda: self.rests() == (1, 1), "it to wake")
        self.apply(self.manifest(formats=("sort", "more", "last")))  # while it wakes
        wait_until(lambda: "mt:last" in self.resting_nodes(), "the last label")
        self.assertIn("mt:more", self.resting_nodes())
        self.open.touch()
        self.assertTrue(json.loads(waiting.result())["pid"])

    def resting_nodes(self):
        told = self.ctl("mesh", "nodes", "--json").out
        return told if "state:resting" in told else ""

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
        self.assertTrue(self.resting_nodes())
        waiting = self.call_model("m")
        self.open.touch()
        self.assertTrue(json.loads(waiting.result())["pid"])


if __name__ == "__main__":
    main()
