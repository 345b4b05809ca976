# SPDX-License-Identifier: Apache-2.0
"""Bounds of a model's copies by annotations of its InferenceService, on three real nodes.

Proves: a minimum is there without a call, is there again after a node with a copy was killed, and
holds for the model that a changed service moves to; a maximum holds while calls give a service
without one more copies; a change of either takes effect on the loaded model. ctest: timeout=180
"""

import json
import unittest

from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import main, wait_until
from shoal_meshes import Etcd, Nodes

NAMES = ["node-a", "node-b", "node-c"]


def service(name, path="model", **annotations):
    return {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": name, "annotations": {
                f"shoal.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}},
            "spec": {"predictor": {"model": {"modelFormat": {"name": "pupil"},
                                             "storage": {"path": path}}}}}


class TestCopies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = cls.enterClassContext(Etcd())
        cls.nodes = cls.enterClassContext(Nodes(cls.etcd, NAMES))
        cls.at = cls.nodes["node-a"]

    def ctl(self, *arguments, **options):
        return shoalctl(*arguments, "--counters", self.at.counters, **options)

    def apply(self, *manifests, **options):
        text = "\n---\n".join(json.dumps(one) for one in manifests)
        return self.ctl("apply", "-f", "-", stdin=text.encode(), **options)

    def model(self, vmodel):
        """The id of the vmodel's model once it serves; None: it has none."""
        rows = [json.loads(line) for line in self.ctl("mesh", "vmodels", "--json").out.splitlines()]
        return next((row["active"] for row in rows if row["id"] == vmodel), None)

    def holders(self, model):
        lines = self.ctl("mesh", "copies", model, "--json").out.splitlines()
        return {row["node"] for row in map(json.loads, lines[1:]) if row["state"] == "loaded"}

    def wait_holders(self, model, count, among=tuple(NAMES)):
        def look():
            holders = self.holders(model)
            return holders if len(holders) == count and holders <= set(among) else None
        return wait_until(look, lambda: f"{count} of {among} to have {model}, not "
                                        f"{self.holders(model)}")

    def test_minimum(self):
        """It kills a node: the other test has two."""
        self.apply(service("kept", min_copies="2", size_mib="6"))
        self.ctl("wait", "--for=condition=Ready", "isvc/kept")
        model = self.model("kept")
        held = self.wait_holders(model, 2)
        self.assertRegex(self.ctl("mesh", "models").out, rf"(?m){model} .* 2 \(2-\) ")
        self.assertIn("shoal.dev/min-copies:  2\n", self.ctl("describe", "isvc", "kept").out)
        record = json.loads(self.etcd.get(f"/tas-runtime/test/registry/{model}"))
        self.assertEqual((record["minCopies"], record["sizeUnits"]), (2, 768))

        self.apply(service("kept", min_copies="3"))
        self.wait_holders(model, 3)
        self.apply(service("kept", min_copies="1", max_copies="2"))
        self.wait_holders(model, 2)
        self.apply(service("kept", min_copies="2"))
        held = self.wait_holders(model, 2)
        self.assertEqual(self.model("kept"), model)

        killed = next(name for name in sorted(held) if name != "node-a")
        left = [name for name in NAMES if name != killed]
        self.nodes[killed].kill()
        self.etcd.expire(killed)
        self.wait_holders(model, 2, left)

        self.apply(service("kept", path="folder", min_copies="2"))
        wait_until(lambda: self.model("kept") != model, "the vmodel to move")
        self.wait_holders(self.model("kept"), 2, left)

    def test_maximum_under_load(self):
        told = self.apply(service("wrong", min_copies="3", max_copies="2"), code=NEGATIVE)
        self.assertRegex(told.err, r"stdin:\d+: metadata.annotations.shoal.dev/max-copies: must be at "
                                   r"least min-copies \(3\), not 2")

        self.etcd.put("/tas-runtime/test/config/scaleup_rpm_threshold", "10")
        self.apply(service("single", max_copies="1"), service("many"))
        for name in ("single", "many"):
            self.ctl("wait", "--for=condition=Ready", f"isvc/{name}")
        single, many = self.model("single"), self.model("many")
        node_of = {name: self.nodes.at(next(iter(self.wait_holders(name, 1))))
                   for name in (single, many)}

        def is_spread():
            for model, node in node_of.items():
                for _ in range(20):
                    node.infer(metadata=(("mm-model-id", model),))
            self.assertEqual(len(self.holders(single)), 1)
            return len(self.holders(many)) > 1
        wait_until(is_spread, "more copies of the model without a maximum")
        self.assertRegex(self.ctl("mesh", "models").out, rf"(?m){single} .* 1 \(-1\) ")


if __name__ == "__main__":
    main()
