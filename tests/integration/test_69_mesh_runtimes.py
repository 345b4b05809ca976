# SPDX-License-Identifier: Apache-2.0
"""Nodes of a mesh whose models are another process's, an external runtime: real daemons, and runtimes in
Python that note what they were asked (shoal_runtime.py), or another shoald.

What is proved: what is registered is loaded there and called there, by any method that the runtime
permits, with its id where the runtime wants it; that the node waits for a runtime that is not there,
and goes on with one that comes back; that nobody's call is lost when one of two runtimes ends; that
what cannot be passed on is refused.
ctest: timeout=240
"""

import unittest

import grpc

from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, Shoald, free_port, main, node, pipeline, stage, wait_until
from shoal_mesh import INFER, OIP
from shoal_meshes import Etcd
from shoal_metrics import Scrape, metrics_port
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import LOADED, LOADING_FAILED, Registrar
from shoal_runtime import Refusal, Runtime

Code = grpc.StatusCode
ANY = "/x.Y/Z"


def node_of(runtime, name="node-1", **mesh):
    """A daemon without pipelines, that has not started."""
    return Shoald({"message_mib": 1, "metrics": "127.0.0.1:0", "mesh": {"instance": name, "runtime": runtime, **mesh}})


def start_call(registrar, model, message=b"hello", method=ANY, more=(), timeout=WAIT_SECONDS):
    return registrar.channel.unary_unary(method).future(
        message, timeout=timeout, metadata=(("mm-model-id", model), *more))


def call(registrar, model, **keys):
    return start_call(registrar, model, **keys).result()


class OneNode(unittest.TestCase):
    def setUp(self):
        self.runtime = self.enterContext(Runtime())
        self.runtime.methods = {"x.Y/Z": [], INFER: [1]}
        self.shoald = self.enterContext(node_of(self.runtime.address))
        self.registrar = self.enterContext(Registrar(self.shoald.target))

    def hold(self):
        """From now on calls wait in the runtime until the caller gives up, or `cancelled` is set."""
        def say(_request, context):
            context.add_callback(self.runtime.cancelled.set)
            self.runtime.cancelled.wait(WAIT_SECONDS)
            return b"late"
        self.runtime.says["x.Y/Z"] = say

    def test_a_models_life(self):
        self.registrar.register("m", kind="kind", path="a/path", key="{}")
        future = start_call(self.registrar, "m", more=(("x-own", "mine"),))
        self.assertEqual(future.result(), b"answer:hello")
        self.assertIn(("x-first", "one"), future.initial_metadata())
        self.assertIn(("x-last", "two"), future.trailing_metadata())
        metadata, = self.runtime.metadata
        self.assertEqual((metadata["mm-model-id"], metadata["x-own"]), ("m", "mine"))
        request, = self.runtime.requests("loadModel")
        self.assertEqual((request.modelId, request.modelType, request.modelPath, request.modelKey),
                         ("m", "kind", "a/path", "{}"))
        self.assertEqual(self.registrar.status("m").modelCopyInfos[0].location, "node-1")
        scrape, labels = Scrape(metrics_port(self.shoald)), {"method": "Z", "code": "OK"}
        for name, total in {"request_size_bytes": len("hello"), "response_size_bytes":
                            len("answer:hello"), "api_request_milliseconds": None,
                            "invoke_model_milliseconds": None}.items():
            self.assertEqual(scrape[f"modelmesh_{name}_count", labels], 1, name)
            found = scrape[f"modelmesh_{name}_sum", labels]
            self.assertEqual(found, found if total is None else total, name)
        self.registrar.unregister("m")
        wait_until(lambda: self.runtime.count("unloadModel") == 1, "unloadModel")

    def test_id_in_the_request(self):
        """The caller names a vmodel; the runtime finds the model."""
        self.registrar.call("setVModel", vModelId="v", targetModelId="m",
                            modelInfo={"type": "t", "path": "p"})
        message = OIP["ModelInferRequest"](model_name="v")
        message.inputs.add(name="x", datatype="UINT8", shape=[1])
        message.raw_input_contents.append(b"7")
        answer = self.registrar.channel.unary_unary(f"/{INFER}")(
            message.SerializeToString(), timeout=WAIT_SECONDS, metadata=(("mm-vmodel-id", "v"),))
        message.model_name = "m"
        self.assertEqual(OIP["ModelInferRequest"].FromString(answer.removeprefix(b"answer:")),
                         message)

    def test_what_is_refused(self):
        self.registrar.register("m")
        for future, code, text in (
                (start_call(self.registrar, "m", method="/x.Y/Other"), Code.UNIMPLEMENTED,
                 "Method not found or not permitted: x.Y/Other"),
                (start_call(self.registrar, "m", more=[("x-many", str(i)) for i in range(65)]),
                 Code.INVALID_ARGUMENT,
                 "more than 64 entries of metadata: a mesh does not pass on so many")):
            self.assertEqual(failure(future), (code, text))
        self.assertEqual(failure(start_call(self.registrar, "nobody"))[0], Code.NOT_FOUND)

    def test_a_load_fails(self):
        def say(_request, _context):
            raise Refusal(Code.RESOURCE_EXHAUSTED, "no room")
        self.runtime.says["loadModel"] = say
        self.registrar.register("m")
        status = self.registrar.ensure("m", sync=True)
        self.assertEqual(status.status, LOADING_FAILED)
        self.assertIn("RESOURCE_EXHAUSTED: no room", status.errors[0])
        self.assertEqual(failure(start_call(self.registrar, "m"))[0], Code.INTERNAL)

    def test_the_caller_goes(self):
        self.registrar.register("m")
        self.hold()
        future = start_call(self.registrar, "m")
        wait_until(lambda: self.runtime.count("x.Y/Z") == 1, "the call")
        future.cancel()
        self.assertTrue(self.runtime.cancelled.wait(WAIT_SECONDS))

    def test_the_node_drains(self):
        """What the runtime has is waited for."""
        self.registrar.register("m")
        self.hold()
        future = start_call(self.registrar, "m")
        wait_until(lambda: self.runtime.count("x.Y/Z") == 1, "the call")
        self.shoald.drain()
        self.runtime.cancelled.set()
        self.assertEqual(future.result(), b"late")
        self.shoald.check_end()

    def test_the_runtime_restarts(self):
        self.registrar.register("m")
        self.assertEqual(call(self.registrar, "m"), b"answer:hello")
        self.runtime.stop()
        self.shoald.wait_log("external_lost")
        self.shoald.wait_log("external_not_ready")
        self.assertEqual(failure(start_call(self.registrar, "m")),
                         (Code.UNAVAILABLE, "the runtime of this node is not ready, and no other node "
                                            "can serve the model: try again"))
        with Runtime(self.runtime.address) as second:
            self.shoald.wait_log("external_ready", count=2)
            self.assertEqual(call(self.registrar, "m"), b"answer:hello")
            self.assertEqual([request.modelId for request in second.requests("loadModel")], ["m"])


class LateRuntime(unittest.TestCase):
    def test_not_there_at_the_start(self):
        """The node is not ready before, whatever its pipelines are."""
        address = f"127.0.0.1:{free_port()}"
        shoald = Shoald(node(pipeline("echo", stage("libecho.so")), message_mib=1,
                             mesh={"instance": "node-1", "runtime": address})).start()
        self.addCleanup(shoald.discard)
        shoald.wait_log(f'external_not_ready target="{address}"')
        with Registrar(shoald.target) as registrar, Runtime(address):
            shoald.wait_ready()
            self.assertLess(shoald.stderr.index(" external_ready "),
                            shoald.stderr.index(" ready pipelines="))
            registrar.register("m")
            self.assertEqual(call(registrar, "m"), b"answer:hello")
        self.assertEqual(shoald.terminate(), 0)

    def test_not_a_runtime(self):
        with Runtime(serves=False) as runtime:
            shoald = node_of(runtime.address).start()
            self.addCleanup(shoald.discard)
            shoald.wait_log("external_failed .*UNIMPLEMENTED")
            self.assertEqual(shoald.terminate(), 0)


class BesidePipelines(unittest.TestCase):
    def test_each_by_its_name(self):
        with Runtime() as runtime:
            mesh = {"instance": "node-1", "runtime": runtime.address}
            config = node(pipeline("echo", stage("libecho.so")), message_mib=1, mesh=mesh)
            with Shoald(config) as shoald, Registrar(shoald.target) as registrar:
                registrar.register("m")
                message = OIP["ModelInferRequest"](model_name="m").SerializeToString()
                answer = registrar.channel.unary_unary(f"/{INFER}")(message, timeout=WAIT_SECONDS)
                self.assertEqual(answer, b"answer:" + message)
                self.assertEqual(registrar.infer("echo").model_name, "echo")
                self.assertEqual(runtime.count(INFER), 1)


class ShoalAsRuntime(unittest.TestCase):
    """One daemon is the mesh's node, the other its runtime."""

    def test_killed_and_back(self):
        runtime = prepare(pupil(), runtime=["unix:runtime.sock"])
        socket = f"unix:{runtime.folder}/runtime.sock"
        with runtime, node_of(socket, runtime_calls=runtime.target) as shoald, \
                Registrar(shoald.target) as registrar:
            registrar.register("m", key=key())
            self.assertEqual(said(registrar.infer("m")), "m")
            runtime.kill()
            shoald.wait_log("external_lost")
            runtime.start().wait_ready()
            shoald.wait_log("external_ready", count=2)
            self.assertEqual(said(registrar.infer("m")), "m")


class TwoNodes(unittest.TestCase):
    """Of one mesh, each with a runtime of its own."""

    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.runtimes, self.nodes, self.registrars = {}, {}, {}
        for name in ("node-a", "node-b"):
            self.runtimes[name] = self.enterContext(Runtime())
            self.nodes[name] = self.enterContext(node_of(
                self.runtimes[name].address, name, store=f"etcd:{self.etcd.url}",
                peers=["127.0.0.1:0"], address="127.0.0.1"))
            self.registrars[name] = self.enterContext(Registrar(self.nodes[name].target))

    def test_one_runtime_ends(self):
        first = self.registrars["node-a"]
        first.register("m")
        for registrar in self.registrars.values():
            self.assertEqual(call(registrar, "m"), b"answer:hello")
        at, = {copy.location for copy in first.wait_status("m", LOADED).modelCopyInfos}
        other, = set(self.nodes) - {at}
        self.assertEqual(self.runtimes[other].count("loadModel"), 0)
        self.assertEqual(self.runtimes[at].count("x.Y/Z"), 2)
        self.runtimes[at].stop()
        self.nodes[at].wait_log("external_lost")
        for registrar in self.registrars.values():
            self.assertEqual(call(registrar, "m"), b"answer:hello")
        self.assertEqual(self.runtimes[other].count("loadModel"), 1)
        with Runtime(self.runtimes[at].address):
            self.nodes[at].wait_log("external_ready", count=2)
            for registrar in self.registrars.values():
                self.assertEqual(call(registrar, "m"), b"answer:hello")


if __name__ == "__main__":
    main()
