# SPDX-License-Identifier: Apache-2.0
"""Calls that a mesh passes on to external runtimes although Shoal does not know what they are: methods of Shoal's own
services that it does not have, and streams of which nothing but the metadata has come. Real daemons, runtimes in
Python (shoal_runtime.py); each call is made to the node that has the model and to one that does not.

What is proved: the runtime of the model that the metadata name answers `ModelConfig`, `ModelStatistics` and the like;
what Shoal has stays Shoal's, and what manages runtimes is nobody's; a runtime may speak first.
ctest: timeout=180
"""

import unittest

import grpc

from shoal_client import Client, failure
from shoal_fixture import WAIT_SECONDS, main
from shoal_meshes import Etcd, mesh_node
from shoal_pupil import key, said
from shoal_registry import LOADED, Registrar
from shoal_runtime import Runtime
from test_69_mesh_runtimes import Pair, call, start_call

Code = grpc.StatusCode
SERVICE = "/inference.GRPCInferenceService/"
LACKING = (SERVICE + "ModelConfig", SERVICE + "ModelStatistics", "/mmesh.Other/Method", "/grpc.health.v1.Health/List")
OF_RUNTIMES = "/mmesh.ModelRuntime/"


class Loaded(Pair):
    """One model, loaded by one of the two runtimes."""

    def setUp(self):
        super().setUp()
        first = self.registrars["node-a"]
        first.register("m")
        first.ensure("m", sync=True)
        self.at, = {copy.location for copy in first.wait_status("m", LOADED).modelCopyInfos}
        self.other, = set(self.nodes) - {self.at}
        self.runtime = self.runtimes[self.at]
        self.ways = [self.registrars[self.at], self.registrars[self.other]]
        for registrar in self.ways:  # the other has heard of the copy
            self.assertEqual(call(registrar, "m"), b"answer:hello")


class Methods(Loaded):
    def test_runtime_answers_methods_that_shoal_lacks(self):
        for registrar in self.ways:
            for method in LACKING:
                with self.subTest(method):
                    self.assertEqual(call(registrar, "m", method=method), b"answer:hello")
                    self.assertEqual(failure(start_call(registrar, "nobody", method=method)),
                                     (Code.NOT_FOUND, "model not found"))
                    bare = registrar.channel.unary_unary(method).future(b"", timeout=WAIT_SECONDS)
                    self.assertEqual(failure(bare), (Code.UNIMPLEMENTED, f"no such method: {method}"))
        for method in LACKING:
            self.assertEqual(self.runtime.count(method[1:]), len(self.ways))

    def test_methods_of_shoal_stay_its_own(self):
        for name, registrar in self.registrars.items():
            with Client(self.nodes[name].target) as client:
                self.assertTrue(client.call("ServerLive").live)
            for method in (SERVICE + "ServerLive", SERVICE + "ServerMetadata", "/grpc.health.v1.Health/Check"):
                registrar.channel.unary_unary(method)(b"", timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))
                self.assertEqual(self.runtime.count(method[1:]), 0)
            for method in ("loadModel", "unloadModel", "runtimeStatus", "new"):
                before = self.runtime.count(method)
                self.assertEqual(failure(start_call(registrar, "m", method=OF_RUNTIMES + method))[0],
                                 Code.UNIMPLEMENTED)
                self.assertEqual(self.runtime.count(method), before)


class Pipelines(unittest.TestCase):
    """A pipeline's model and a runtime's, in one mesh."""

    def test_pipeline_has_no_other_methods(self):
        etcd = self.enterContext(Etcd())
        runtime = self.enterContext(Runtime())
        nodes = {name: self.enterContext(mesh_node(etcd, name, models={"types": ["pupil"]},
                                                   mesh={"address": "127.0.0.1", **mesh}))
                 for name, mesh in (("node-a", {"runtime": runtime.address, "runtime_types": ["kind"]}),
                                    ("node-b", {}))}
        for name in nodes:
            registrar = self.enterContext(Registrar(nodes[name]))
            registrar.register(f"mine-{name}", key=key())
            registrar.register(f"theirs-{name}", kind="kind")
            self.assertEqual(said(registrar.infer(f"mine-{name}")), f"mine-{name}")
            for method in LACKING:
                self.assertEqual(failure(start_call(registrar, f"mine-{name}", method=method)),
                                 (Code.UNIMPLEMENTED, f"no such method: {method}"))
                self.assertEqual(call(registrar, f"theirs-{name}", method=method), b"answer:hello")


if __name__ == "__main__":
    main()
