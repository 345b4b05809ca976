# SPDX-License-Identifier: Apache-2.0
"""Calls that a mesh passes on to external runtimes although Shoal does not know what they are:
methods of Shoal's own services that it does not have, and streams of which nothing but the metadata
has come. Real daemons, runtimes in Python (shoal_runtime.py); each call is made to the node that
has the model and to one that does not.

Proves: the runtime of the model that the metadata name answers `ModelConfig`, `ModelStatistics` and
the like; what Shoal has stays Shoal's, and what manages runtimes is nobody's; a runtime may speak
first. ctest: timeout=180
"""

import json
import threading
import unittest

import grpc

from shoal_client import Client, failure
from shoal_fixture import WAIT_SECONDS, main, wait_until
from shoal_meshes import Etcd, mesh_node
from shoal_pupil import key, said
from shoal_registry import Registrar
from shoal_runtime import Refusal, Runtime, when_over
from test_69_mesh_runtimes import ANY, Loaded, Talk, call, echo, node_of, start_call

Code = grpc.StatusCode
SERVICE = "/inference.GRPCInferenceService/"
LACKING = (SERVICE + "ModelConfig", SERVICE + "ModelStatistics", "/grpc.health.v1.Health/List")
OF_RUNTIMES = "/mmesh.ModelRuntime/"


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

    def test_other_services_of_the_package_mmesh(self):
        method = "/mmesh.Other/Method"
        for registrar in self.ways:
            self.assertEqual(call(registrar, "m", method=method), b"answer:hello")
            bare = registrar.channel.unary_unary(method).future(b"", timeout=WAIT_SECONDS)
            self.assertEqual(failure(bare), (Code.INVALID_ARGUMENT, "must include mm-model-id header"))

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


class Streams(Loaded):
    def setUp(self):
        super().setUp()

        def welcome(requests, context):
            yield b"welcome"
            yield from echo(requests, context)
        self.runtime.streams.update({"s/Welcome": welcome, "s/Echo": echo})

    def open(self, registrar, method="/s/Echo", metadata=(("mm-model-id", "m"),)):
        """A stream of which the caller has said nothing."""
        talk = Talk()
        self.addCleanup(talk.say, None)
        return talk, registrar.channel.stream_stream(method)(talk, timeout=WAIT_SECONDS, metadata=metadata)

    def end(self, talk, stream):
        talk.say(None)
        self.assertEqual(list(stream), [])
        self.assertIs(stream.code(), Code.OK)
        self.assertIn(("x-last", "two"), stream.trailing_metadata())

    def test_runtime_speaks_first(self):
        for registrar in self.ways:
            talk, stream = self.open(registrar, "/s/Welcome")
            self.assertEqual(next(stream), b"welcome")
            self.assertIn(("x-first", "one"), stream.initial_metadata())
            for message in (b"one", b"", b"three"):
                talk.say(message)
                self.assertEqual(next(stream), b"answer:" + message)
            self.end(talk, stream)
            talk, stream = self.open(registrar, "/s/Welcome")
            self.assertEqual(next(stream), b"welcome")
            self.end(talk, stream)

    def test_caller_waits_for_initial_metadata(self):
        """Then its messages are of any size: the first counts towards no window, on none of the
        hops."""
        for registrar in self.ways:
            talk, stream = self.open(registrar)
            self.assertIn(("x-first", "one"), stream.initial_metadata())
            for size in (900_000, 3, 900_000, 0, 262_144, 900_000):
                talk.say(bytes(size))
                self.assertEqual(next(stream), b"answer:" + bytes(size))
            self.end(talk, stream)

    def test_model_is_loaded_for_metadata_alone(self):
        for name, registrar in self.registrars.items():
            registrar.register(f"new-{name}")
            for runtime in self.runtimes.values():
                runtime.streams["s/Welcome"] = self.runtime.streams["s/Welcome"]
            talk, stream = self.open(registrar, "/s/Welcome", (("mm-model-id", f"new-{name}"),))
            self.assertEqual(next(stream), b"welcome")
            self.end(talk, stream)

    def test_caller_is_refused_at_once_or_goes(self):
        gone = threading.Event()

        def silent(requests, context):
            when_over(context, gone.set)
            yield from echo(requests, context)
        self.runtime.streams["s/Silent"] = silent
        for registrar in self.ways:
            for metadata, code in (((), Code.INVALID_ARGUMENT), ((("mm-model-id", "nobody"),), Code.NOT_FOUND)):
                _, stream = self.open(registrar, metadata=metadata)
                with self.assertRaises(grpc.RpcError):
                    next(stream)
                self.assertIs(stream.code(), code)
            gone.clear()
            _, stream = self.open(registrar, "/s/Silent")
            self.assertIn(("x-first", "one"), stream.initial_metadata())
            stream.cancel()
            self.assertTrue(gone.wait(WAIT_SECONDS))
            talk, stream = self.open(registrar)
            self.assertIn(("x-first", "one"), stream.initial_metadata())
            talk.say(bytes(2 << 20))  # more than a message may have
            with self.assertRaises(grpc.RpcError):
                next(stream)
            self.assertIs(stream.code(), Code.RESOURCE_EXHAUSTED)

    def test_message_that_is_late_is_kept_for_another_try(self):
        """The runtime sees the call ahead of its message, and says that it has forgotten the
        model."""
        opened, answers = threading.Event(), []

        def watch(runtime):
            usual = runtime.service

            def service(details):
                if details.method == ANY:
                    opened.set()
                return usual(details)

            def forget_once(request, context):
                answers.append(request)
                if len(answers) == 1:
                    raise Refusal(Code.NOT_FOUND, "no such model")
                return runtime.infer(request, context)
            runtime.service = service
            runtime.says[ANY[1:]] = forget_once
        for runtime in self.runtimes.values():  # either may load it again
            watch(runtime)
        for registrar in self.ways:
            for message in (b"hello", b"", bytes(900_000)):
                opened.clear()
                answers.clear()
                talk = Talk()
                future = registrar.channel.stream_unary(ANY).future(
                    talk, timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))
                self.assertTrue(opened.wait(WAIT_SECONDS))
                talk.say(message, None)
                self.assertEqual(future.result(), b"answer:" + message)
                self.assertEqual(answers, [message, message])

    def test_several_models_wait_for_the_message(self):
        registrar = self.ways[1]
        registrar.register("n")
        talk = Talk()
        future = registrar.channel.stream_unary(ANY).future(
            talk, timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"), ("mm-model-id", "n")))
        self.assertEqual(call(registrar, "m"), b"answer:hello")
        talk.say(b"x", None)
        self.assertEqual(future.result(), 2 * b"answer:x")


class Paths(unittest.TestCase):
    """Where the data-plane configuration finds the id in the request, that comes before
    metadata."""

    def test_call_waits_for_the_message_that_names_the_model(self):
        runtime = self.enterContext(Runtime())
        shoald = node_of(runtime.address, dataplane="dataplane.json")
        (shoald.folder / "dataplane.json").write_text(json.dumps(
            {"rpcConfigs": {"s/Echo": {"idExtractionPath": [1]}, ANY[1:]: {}}}))
        self.enterContext(shoald)
        registrar = self.enterContext(Registrar(shoald))
        runtime.streams["s/Echo"] = echo
        for model in "ab":
            registrar.register(model)
        talk = Talk()
        stream = registrar.channel.stream_stream("/s/Echo")(talk, timeout=WAIT_SECONDS,
                                                            metadata=(("mm-model-id", "a"),))
        self.assertEqual(call(registrar, "a"), b"answer:hello")  # behind it
        self.assertEqual(runtime.count("s/Echo"), 0)
        talk.say(b"\x0a\x01b", None)
        self.assertEqual(list(stream), [b"answer:\x0a\x01b"])
        self.assertEqual(runtime.metadata[-1]["mm-model-id"], "b")


class Pipelines(unittest.TestCase):
    """A pipeline's model and a runtime's, in one mesh."""

    def test_pipeline_waits_for_the_message(self):
        """The method is another node's pipeline's, which has nothing to do before it has a
        message."""
        etcd = self.enterContext(Etcd())
        method = "/test.Pupil/Learn"
        rules = json.dumps({"learns": {"required": ["learns"]}})
        nodes = {name: self.enterContext(mesh_node(
            etcd, name, pipeline=bound, mesh={"address": "127.0.0.1", "type_constraints": rules, "labels": [label]}))
                 for name, bound, label in (("node-a", {}, "other"), ("node-b", {"method": method}, "learns"))}
        registrar = self.enterContext(Registrar(nodes["node-a"]))
        registrar.register("m", kind="learns")

        def is_learned():
            future = start_call(registrar, "m", method=method)
            return future.code() is Code.OK and future.result() == b"m"
        wait_until(is_learned, "node-b to be seen")
        named = {"timeout": WAIT_SECONDS, "metadata": (("mm-model-id", "m"),)}
        none = "a pipeline takes one message for a call, and this call has ended without any: send one"
        for messages, code, text in (((b"late", None), Code.OK, ""), ((None,), Code.INVALID_ARGUMENT, none)):
            talk = Talk()
            future = registrar.channel.stream_unary(method).future(talk, **named)
            for _ in range(3):  # on the same way to node-b, behind it
                self.assertEqual(call(registrar, "m", method=method), b"m")
            self.assertFalse(future.done())
            talk.say(*messages)
            self.assertEqual((future.code(), future.details()), (code, text))
        talk = Talk()
        future = registrar.channel.stream_unary(method).future(talk, **named)
        self.assertEqual(call(registrar, "m", method=method), b"m")
        future.cancel()
        talk.say(None)
        nodes["node-b"].drain()  # nothing of the call is left there
        nodes["node-b"].check_end()

    def test_pipeline_has_no_other_methods(self):
        etcd = self.enterContext(Etcd())
        runtime = self.enterContext(Runtime())
        # a node with a single pipeline loads all types in it, unless it may not
        rules = json.dumps({"kind": {"required": ["runtime"]}})
        nodes = {name: self.enterContext(mesh_node(
            etcd, name, models={"types": ["pupil"]},
            mesh={"address": "127.0.0.1", "type_constraints": rules, **mesh}))
                 for name, mesh in (("node-a", {"runtime": runtime.address, "runtime_types": ["kind"],
                                                "labels": ["runtime"]}),
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
