# SPDX-License-Identifier: Apache-2.0
"""Nodes of a mesh whose models are another process's, an external runtime: real daemons, and
runtimes in Python that note what they were asked (shoal_runtime.py), or another shoald.

Proves: registered models are loaded and called there, by any method that the runtime
permits, with its id where the runtime wants it; that streams of any kind go through, here and over
another node, with back-pressure, cancellation and a node that is killed in the middle; that the
node waits for a runtime that is not there, and goes on with one that comes back; that nobody's call
is lost when one of two runtimes ends; that what cannot be passed on is refused; that a call for
several models is one for each, all at once, and one answer; that the data-plane configuration
decides the model and the permitted methods. ctest: timeout=240
"""

import json
import os
import queue
import signal
import threading
import unittest

import grpc

from shoal_client import Client, failure
from shoal_fixture import (WAIT_SECONDS, Shoald, free_port, main, node, pipeline, run_shoald, stage,
                           wait_until)
from shoal_mesh import INFER, OIP
from shoal_ctl import shoalctl
from shoal_meshes import Etcd, mesh_node
from shoal_metrics import Scrape, metrics_port
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import LOADED, LOADING_FAILED, Registrar
from shoal_runtime import MIB, Refusal, Runtime, when_over

Code = grpc.StatusCode
ANY = "/x.Y/Z"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LARGE = 64 << 10
MANY = 1000  # of LARGE: more than what all windows on the way take


def node_of(runtime, name="node-1", **mesh):
    """A daemon without pipelines, that has not started."""
    return Shoald({"message_mib": 1, "metrics": "127.0.0.1:0", "mesh": {"instance": name, "runtime": runtime, **mesh}})


def start_call(registrar, model, message=b"hello", method=ANY, more=(), timeout=WAIT_SECONDS):
    return registrar.channel.unary_unary(method).future(
        message, timeout=timeout, metadata=(("mm-model-id", model), *more))


def call(registrar, model, **keys):
    return start_call(registrar, model, **keys).result()


def failure_in_time(registrar, model):
    """How a call ends that waits until its deadline: the node says so at the last tick before that,
    which may be too late for the caller to hear it."""
    for _ in range(5):
        code, text = failure(start_call(registrar, model, timeout=4))
        if code is not Code.DEADLINE_EXCEEDED:
            break
    return code, text


def hang_loads(runtime):
    """From now on, until the loading node gives up."""
    def say(_request, context):
        gone = threading.Event()
        when_over(context, gone.set)
        gone.wait(WAIT_SECONDS)
        raise Refusal(Code.CANCELLED)
    runtime.says["loadModel"] = say


class Talk:
    """The requests of a stream, as a test says them; None ends them."""

    def __init__(self):
        self.queue = queue.SimpleQueue()
        self.taken = 0

    def say(self, *messages):
        for message in messages:
            self.queue.put(message)

    def __iter__(self):
        return self

    def __next__(self):
        message = self.queue.get(timeout=WAIT_SECONDS)
        if message is None:
            raise StopIteration
        self.taken += 1
        return message


class OneNode(unittest.TestCase):
    def setUp(self):
        self.runtime = self.enterContext(Runtime())
        self.runtime.methods = {"x.Y/Z": [], INFER: [1], STREAM[1:]: [1]}
        self.shoald = self.enterContext(node_of(self.runtime.address))
        self.registrar = self.enterContext(Registrar(self.shoald))

    def hold(self):
        """From now on calls wait in the runtime until the caller gives up, or `cancelled` is
        set."""
        def say(_request, context):
            when_over(context, self.runtime.cancelled.set)
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

    def test_id_in_each_message(self):
        self.registrar.call("setVModel", vModelId="v", targetModelId="m",
                            modelInfo={"type": "t", "path": "p"})
        self.runtime.streams[STREAM[1:]] = lambda requests, _: requests
        requests = [OIP["ModelInferRequest"](model_name="v", raw_input_contents=[b"%d" % i])
                    for i in range(5)]
        stream = self.registrar.channel.stream_stream(
            STREAM, OIP["ModelInferRequest"].SerializeToString, OIP["ModelInferRequest"].FromString)
        answers = list(stream(iter(requests), timeout=WAIT_SECONDS, metadata=(("mm-vmodel-id", "v"),)))
        for request in requests:
            request.model_name = "m"
        self.assertEqual(answers, requests)
        scrape, labels = Scrape(metrics_port(self.shoald)), {"method": "ModelStreamInfer", "code": "OK"}
        came = 5 * len(OIP["ModelInferRequest"](model_name="v", raw_input_contents=[b"0"])
                       .SerializeToString())
        for name in ("request_size_bytes", "response_size_bytes"):  # all of its messages together
            self.assertEqual(scrape[f"modelmesh_{name}_sum", labels], came, name)
        raw = self.registrar.channel.stream_stream(STREAM)
        answers = raw(iter([requests[0].SerializeToString(), b"\xff"]), timeout=WAIT_SECONDS,
                      metadata=(("mm-model-id", "m"),))
        with self.assertRaises(grpc.RpcError):
            list(answers)
        self.assertIs(answers.code(), Code.INVALID_ARGUMENT)
        self.assertIn("no place for the model's id", answers.details())

    def test_a_stream_that_has_not_got_far_is_tried_again(self):
        """The runtime has forgotten the model; of the caller there is one message, and perhaps more
        to come."""
        self.registrar.register("m")
        self.assertEqual(call(self.registrar, "m"), b"answer:hello")
        self.runtime.streams[STREAM[1:]] = lambda requests, _: requests
        self.runtime.held.clear()
        talk = Talk()
        message = OIP["ModelInferRequest"](model_name="m").SerializeToString()
        stream = self.registrar.channel.stream_stream(STREAM)(
            talk, timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))
        for _ in range(3):
            talk.say(message)
            self.assertEqual(next(stream), message)
        talk.say(None)
        self.assertEqual(list(stream), [])
        self.assertEqual(self.runtime.count("loadModel"), 2)
        self.assertEqual(self.runtime.count(STREAM[1:]), 2)

    def test_refusals(self):
        self.registrar.register("m")
        for future, code, text in (
                (start_call(self.registrar, "m", method="/x.Y/Other"), Code.UNIMPLEMENTED,
                 "Method not found or not permitted: x.Y/Other"),
                (start_call(self.registrar, "m", more=[("x-many", str(i)) for i in range(65)]),
                 Code.INVALID_ARGUMENT,
                 "more than 64 entries of metadata: a mesh passes on no more")):
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

    def test_there_is_no_room(self):
        """Two models fill the runtime. A call for a third evicts the first at once, though it was
        loaded for somebody a moment ago; what is being loaded is not evicted."""
        sizes = {"large": 65 * MIB}
        for method in ("predictModelSize", "loadModel"):
            usual = getattr(self.runtime, method)

            def say(request, context, usual=usual):
                answer = usual(request, context)
                answer.sizeInBytes = sizes.get(request.modelId, 30 * MIB)
                return answer
            self.runtime.says[method] = say
        for model in ("a", "b", "c", "d", "large"):
            self.registrar.register(model)
        for model in ("a", "b", "c"):
            self.assertEqual(call(self.registrar, model), b"answer:hello")
        wait_until(lambda: self.runtime.count("unloadModel") == 1, "the eviction of the first")
        hang_loads(self.runtime)
        waiting = [start_call(self.registrar, model) for model in ("a", "d")]
        wait_until(lambda: self.runtime.count("loadModel") == 5, "two loads")
        code, text = failure_in_time(self.registrar, "b")
        self.assertEqual(code, Code.RESOURCE_EXHAUSTED, text)
        self.assertRegex(text, "^Cache churn threshold exceeded: ")
        code, text = failure(start_call(self.registrar, "large"))
        self.assertEqual(code, Code.INTERNAL, text)
        self.assertIn("larger than", text)
        for call_of_hanging in waiting:
            call_of_hanging.cancel()

    def test_a_load_takes_too_long(self):
        hanging = self.enterContext(Runtime(modelLoadingTimeoutMs=300))
        hang_loads(hanging)
        with node_of(hanging.address) as shoald, Registrar(shoald) as registrar:
            registrar.register("m")
            code, text = failure(start_call(registrar, "m"))
            self.assertEqual((code, text.partition(":")[0]), (Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"))

    def test_the_caller_goes(self):
        self.registrar.register("m")
        self.hold()
        future = start_call(self.registrar, "m")
        wait_until(lambda: self.runtime.count("x.Y/Z") == 1, "the call")
        future.cancel()
        self.assertTrue(self.runtime.cancelled.wait(WAIT_SECONDS))

    def test_the_node_drains(self):
        """The test waits for the runtime's state."""
        self.registrar.register("m")
        self.hold()
        future = start_call(self.registrar, "m")
        wait_until(lambda: self.runtime.count("x.Y/Z") == 1, "the call")
        self.shoald.drain()
        self.runtime.cancelled.set()
        self.assertEqual(future.result(), b"late")
        self.shoald.check_end()

    def is_ready(self):
        with Client(self.shoald.target) as client:
            return client.call("ServerReady").ready

    def test_the_runtime_restarts(self):
        self.registrar.register("m")
        self.assertEqual(call(self.registrar, "m"), b"answer:hello")
        self.runtime.stop()
        self.shoald.wait_log("external_lost")
        self.shoald.wait_log("external_not_ready")
        self.assertEqual(failure(start_call(self.registrar, "m")),
                         (Code.UNAVAILABLE, "the runtime of this node is not ready, and no other node "
                                            "can serve the model: try again"))
        wait_until(lambda: not self.is_ready(), "the node not to be ready")
        with Runtime(self.runtime.address) as second:
            self.shoald.wait_log("external_ready", count=2)
            wait_until(self.is_ready, "the node to be ready again")
            self.assertEqual(call(self.registrar, "m"), b"answer:hello")
            self.assertEqual([request.modelId for request in second.requests("loadModel")], ["m"])


class Several(unittest.TestCase):
    """One call for several models: the nodes called, the caller's answer, and the end of all
    parts."""

    @classmethod
    def setUpClass(cls):
        cls.runtime = cls.enterClassContext(Runtime())
        cls.runtime.methods = {"x.Y/Z": [], INFER: [1]}
        cls.shoald = cls.enterClassContext(node_of(cls.runtime.address))
        cls.registrar = cls.enterClassContext(Registrar(cls.shoald))
        for model in "abc":
            cls.registrar.register(model)
        for vmodel, model in (("v", "a"), ("w", "b")):
            cls.registrar.call("setVModel", vModelId=vmodel, targetModelId=model)

    def setUp(self):
        self.under_way = threading.Semaphore(0)
        self.over = threading.Semaphore(0)
        self.runtime.says.clear()

    def say(self, what):
        """The runtime's answer by model."""
        def answer(request, context):
            return what(dict(context.invocation_metadata())["mm-model-id"], request, context)
        self.runtime.says["x.Y/Z"] = answer

    def hold(self, context):
        """Until nobody waits any more."""
        ended = threading.Event()
        when_over(context, ended.set)
        self.under_way.release()
        if ended.wait(WAIT_SECONDS):
            self.over.release()
        return b"late"

    def wait(self, semaphore, count):
        for _ in range(count):
            self.assertTrue(semaphore.acquire(timeout=WAIT_SECONDS))

    def start(self, *ids, key="mm-model-id", more=(), timeout=WAIT_SECONDS):
        metadata = [(key, one) for one in ids]
        return self.registrar.channel.unary_unary(ANY).future(
            b"hello", timeout=timeout, metadata=(*metadata, *more))

    def test_all_at_once_in_the_order_of_the_ids(self):
        all_there = threading.Barrier(4, timeout=WAIT_SECONDS)

        def what(model, request, context):
            self.assertLess(0, context.time_remaining())
            self.assertLess(context.time_remaining(), 2 * WAIT_SECONDS)
            all_there.wait()
            if model == "c":
                self.wait(self.under_way, 3)  # the others answer before
            else:
                self.under_way.release()
            return f"{model}:{request.decode()};".encode()
        self.say(what)
        self.assertEqual(self.start("c", "a", "b", "a").result(),
                         b"c:hello;a:hello;b:hello;a:hello;")

    def test_each_with_its_id_in_the_message(self):
        message = OIP["ModelInferRequest"](model_name="not-this")
        message.raw_input_contents.append(b"7" * 100000)
        answer = self.registrar.channel.unary_unary(f"/{INFER}")(
            message.SerializeToString(), timeout=WAIT_SECONDS,
            metadata=[("mm-model-id", one) for one in "abc"])
        for part, model in zip(answer.split(b"answer:")[1:], "abc", strict=True):
            message.model_name = model
            self.assertEqual(OIP["ModelInferRequest"].FromString(part), message)

    def test_long_ids(self):
        """Longer than those that pipelines load."""
        model = "m" * 1024
        self.registrar.register(model)
        self.assertEqual(self.start("a", model).result(), 2 * b"answer:hello")
        message = OIP["ModelInferRequest"](model_name=model).SerializeToString()
        answer = self.registrar.channel.unary_unary(f"/{INFER}")(message, timeout=WAIT_SECONDS)
        self.assertEqual(answer, b"answer:" + message)

    def test_metadata_of_all(self):
        future = self.start("a", "b", "nobody")
        self.assertEqual(future.result(), 2 * b"answer:hello")
        for entries, entry in ((future.initial_metadata(), ("x-first", "one")),
                               (future.trailing_metadata(), ("x-last", "two"))):
            self.assertEqual([tuple(one) for one in entries].count(entry), 2)

    def test_unknown_models_are_left_out(self):
        self.assertEqual(self.start("nobody", "a", "none").result(), b"answer:hello")
        self.assertEqual(self.start("nobody", "a", more=[("mm-required", "any")]).result(),
                         b"answer:hello")
        for word in ("all", "ALL"):
            self.assertEqual(failure(self.start("a", "nobody", more=[("mm-required", word)])),
                             (Code.NOT_FOUND, "model not found"))
        self.assertEqual(self.start("a", "b", more=[("mm-required", "all")]).result(),
                         2 * b"answer:hello")
        self.assertEqual(failure(self.start("nobody", "none")),
                         (Code.NOT_FOUND, "none of the requested models were found"))
        self.assertEqual(failure(self.start("nobody", "none", key="mm-vmodel-id")),
                         (Code.NOT_FOUND, "none of the requested models were found"))

    def test_keys(self):
        self.say(lambda model, _request, _context: model.encode())
        for wanted, key, ids, more in (
                (b"ab", "mm-model-id-bin", (b"a", b"b"), ()),
                (b"ab", "mm-model-id", ("a", "b"), [("mm-model-id-bin", b"c")]),
                (b"ba", "mm-vmodel-id", ("w", "v"), ()),
                (b"ba", "mm-vmodel-id-bin", (b"w", b"v"), ()),
                (b"ac", "tas-model-id", ("a", "c"), ()),
                (b"a", "mm-model-id", ("a",), [("tas-model-id", "c")] * 2),
                (b"a" * 64, "mm-model-id", ("a",) * 64, ())):
            self.assertEqual(self.start(*ids, key=key, more=more).result(), wanted)

    def test_refusals(self):
        for ids, more, text in (
                (("a", ""), (), "provided model-id header must be non-empty"),
                (("a", "b"), [("mm-vmodel-id", "v")],
                 "must include only one of model id and vmodel id"),
                (("a",) * 65, (), "metadata mm-model-id comes more than 64 times: a call names no more models"),
                (("a", "b"), [("x-many", str(i)) for i in range(65)],
                 "more than 64 entries of metadata: a mesh passes on no more")):
            self.assertEqual(failure(self.start(*ids, more=more)), (Code.INVALID_ARGUMENT, text))

    def test_one_fails(self):
        """That is the answer, at once; the others need not go on."""
        def what(model, _request, context):
            if model != "b":
                return self.hold(context)
            self.wait(self.under_way, 2)
            raise Refusal(Code.FAILED_PRECONDITION, "no good")
        self.say(what)
        self.assertEqual(failure(self.start("a", "b", "c")),
                         (Code.FAILED_PRECONDITION, "x.Y/Z: FAILED_PRECONDITION: no good"))
        self.wait(self.over, 2)

    def test_the_caller_goes(self):
        self.say(lambda _model, _request, context: self.hold(context))
        future = self.start("a", "b", "c")
        self.wait(self.under_way, 3)
        future.cancel()
        self.wait(self.over, 3)

    def test_answers_that_are_too_much_together(self):
        self.say(lambda _model, _request, _context: b"." * 600000)
        self.assertEqual(len(self.start("a", "nobody").result()), 600000)
        self.assertEqual(failure(self.start("a", "b")),
                         (Code.RESOURCE_EXHAUSTED, "the answers of 2 models have more than 1048576 "
                                                   "bytes together (message_mib)"))


def varint_field(number, content):
    """A short string or message as a field of one."""
    return bytes([number << 3 | 2, len(content)]) + content


class Dataplane(unittest.TestCase):
    """Which methods callers may call, and where the id is that they mean."""

    rules = {"rpcConfigs": {"x.Y/Z": {"idExtractionPath": [1, 2]},
                            "x.Y/V": {"idExtractionPath": [3], "vModelId": True},
                            "x.Y/H": {}, "x.Y/N": {},
                            INFER: {"idExtractionPath": [1], "vModelId": True}}}

    def setUp(self):
        self.runtime = self.enterContext(Runtime())
        self.runtime.methods = {name: [] for name in ("x.Y/Z", "x.Y/V", "x.Y/H", "x.Y/O", INFER)}
        self.shoald = node_of(self.runtime.address, dataplane="dataplane.json",
                              type_constraints="types.json")
        (self.shoald.folder / "types.json").write_text("{}")
        self.file = self.shoald.folder / "dataplane.json"
        self.file.write_text(json.dumps(self.rules))
        self.enterContext(self.shoald)
        self.registrar = self.enterContext(Registrar(self.shoald))
        for model in "ab":
            self.registrar.register(model)
        self.registrar.call("setVModel", vModelId="v", targetModelId="b")

    def start(self, method, message, *metadata):
        return self.registrar.channel.unary_unary(f"/{method}").future(
            message, timeout=WAIT_SECONDS, metadata=metadata)

    def check(self, wanted, method, message, *metadata):
        """Which model the runtime is asked for."""
        self.assertEqual(self.start(method, message, *metadata).result(), b"answer:" + message)
        self.assertEqual(self.runtime.metadata[-1]["mm-model-id"], wanted)

    def check_refused(self, code, text, *call):
        self.assertEqual(failure(self.start(*call)), (code, text))

    def test_id_at_a_path(self):
        nested = varint_field(1, varint_field(2, b"a"))
        other = varint_field(2, b"b")
        self.check("a", "x.Y/Z", other + nested)
        self.check("a", "x.Y/Z", nested, ("mm-model-id", "b"))  # the request's comes first
        self.check("a", "x.Y/Z", nested, ("mm-vmodel-id", "v"), ("mm-model-id", "b"))
        self.check("b", "x.Y/Z", other, ("mm-model-id", "b"))
        self.check("b", "x.Y/Z", varint_field(1, other[:0]), ("mm-vmodel-id", "v"))
        self.check("b", "x.Y/V", varint_field(3, b"v"))
        self.check("b", "x.Y/V", b"", ("mm-model-id", "b"))
        self.check("a", "x.Y/H", b"any bytes", ("mm-model-id", "a"))
        self.check("b", INFER, OIP["ModelInferRequest"](model_name="v").SerializeToString())
        nobody = Code.INVALID_ARGUMENT, "must include mm-model-id header"
        for method in ("x.Y/Z", "x.Y/V", "x.Y/H", INFER):
            self.check_refused(*nobody, method, b"")
        self.check_refused(Code.NOT_FOUND, "model not found", "x.Y/Z",
                           varint_field(1, varint_field(2, b"v")))
        self.check_refused(Code.NOT_FOUND, "vmodel not found", "x.Y/V", varint_field(3, b"a"))
        self.check_refused(Code.INVALID_ARGUMENT, "looking for the model's id in the request: "
                           "malformed, or cut short", "x.Y/Z", b"\x0a\x7f", ("mm-model-id", "a"))

    def test_ids_as_long_as_can_be_registered(self):
        model, vmodel, beyond = "m" * 1024, "v" * 1024, "m" * 1025
        self.registrar.register(model)
        self.registrar.call("setVModel", vModelId=vmodel, targetModelId=model)
        for metadata in (("mm-model-id", model), ("mm-model-id-bin", model.encode()),
                         ("mm-vmodel-id", vmodel)):
            self.check(model, "x.Y/H", b"", metadata)
        self.check(model, INFER, OIP["ModelInferRequest"](model_name=vmodel).SerializeToString())
        self.check_refused(Code.INVALID_ARGUMENT, "mm-model-id: a model's id has at most 1024 bytes, "
                           "not 1025", "x.Y/H", b"", ("mm-model-id", beyond))
        self.check_refused(Code.INVALID_ARGUMENT, "looking for the model's id in the request: the "
                           "request: a model's id has at most 1024 bytes, not 1025", INFER,
                           OIP["ModelInferRequest"](model_name=beyond).SerializeToString())

    def test_permitted_methods(self):
        """The file and the runtime must both permit a method; the file is read again when it
        changes."""
        metadata = ("mm-model-id", "a")
        ready = "inference.GRPCInferenceService/ModelReady"
        for method in ("x.Y/N", "x.Y/O", ready):
            self.check_refused(Code.UNIMPLEMENTED, f"Method not found or not permitted: {method}",
                               method, b"", metadata)
        self.assertIsNotNone(self.start("inference.GRPCInferenceService/ServerLive", b"").result())
        self.file.write_text(json.dumps({**self.rules, "allowOtherRpcs": True}))
        self.shoald.wait_log("mesh_dataplane_read methods=5 others=permitted")
        self.check("a", "x.Y/O", b"", metadata)
        self.check("b", "x.Y/V", varint_field(3, b"v"))
        self.check_refused(Code.UNIMPLEMENTED, "Method not found or not permitted: x.Y/N", "x.Y/N",
                           b"", metadata)
        self.file.write_text('{"rpcConfigs": {"x.Y/Z": {"idExtractionPaths": [1]}}}')
        self.shoald.wait_log(r'mesh_dataplane_failed error="mesh: dataplane: /.*: rpcConfigs: .*'
                             'idExtractionPaths.* is not a member')
        self.check("a", "x.Y/O", b"", metadata)
        (self.shoald.folder / "types.json").write_text('{"pupil": {"required": ["none-has-it"]}}')
        self.shoald.wait_log("mesh_types_read types=1")
        self.registrar.register("c")
        self.check_refused(Code.INTERNAL, "There are no running instances that meet the label "
                           "requirements of type pupil: [none-has-it]", "x.Y/H", b"",
                           ("mm-model-id", "c"))
        self.file.unlink()
        self.shoald.wait_log("mesh_dataplane_failed .*No such file")
        self.check("a", "x.Y/O", b"", metadata)

    def test_a_mistake_at_the_start(self):
        config = {"mesh": {"runtime": self.runtime.address, "dataplane": '{"rpcConfigs": 1}'}}
        code, output = run_shoald(config)
        self.assertNotEqual(code, 0)
        self.assertIn("mesh: dataplane: rpcConfigs: expected an object, not a number", output)


class LateRuntime(unittest.TestCase):
    def test_not_there_at_the_start(self):
        """The node is not ready before, even if its pipelines are."""
        address = f"127.0.0.1:{free_port()}"
        shoald = Shoald(node(pipeline("echo", stage("libecho.so")), message_mib=1,
                             mesh={"instance": "node-1", "runtime": address})).start()
        self.addCleanup(shoald.discard)
        shoald.wait_log(f'external_not_ready target="{address}"')
        with Registrar(shoald) as registrar, Runtime(address):
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
            with Shoald(config) as shoald, Registrar(shoald) as registrar:
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
                Registrar(shoald) as registrar:
            registrar.register("m", key=key())
            self.assertEqual(said(registrar.infer("m")), "m")
            runtime.kill()
            shoald.wait_log("external_lost")
            runtime.start().wait_ready()
            shoald.wait_log("external_ready", count=2)
            self.assertEqual(said(registrar.infer("m")), "m")


class Pair(unittest.TestCase):
    """Two nodes of one mesh, each with a runtime of its own."""

    status = {}  # what the runtimes say of themselves

    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.runtimes, self.nodes, self.registrars = {}, {}, {}
        for name in ("node-a", "node-b"):
            self.runtimes[name] = self.enterContext(Runtime(**self.status))
            self.nodes[name] = self.enterContext(node_of(
                self.runtimes[name].address, name, store=f"etcd:{self.etcd.url}", labels=[name],
                type_constraints=json.dumps({"only-b": {"required": ["node-b"]}}),
                peers=["127.0.0.1:0"], address="127.0.0.1"))
            self.registrars[name] = self.enterContext(Registrar(self.nodes[name]))
        for name in self.nodes:
            wait_until(lambda: self.with_room(name) == 2, f"{name} to see both")

    def with_room(self, name):
        rows = shoalctl("mesh", "nodes", "--json", "--counters", self.nodes[name].counters).json_lines
        return sum(row["capacity_bytes"] > 0 for row in rows)


class TwoNodes(Pair):
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
            first.register("n")
            for registrar in self.registrars.values(): # for both at once, wherever either is
                self.assertEqual(call(registrar, "m", more=(("mm-model-id", "n"),)),
                                 2 * b"answer:hello")


    def test_balancing_caller(self):
        """Of two copies a caller that says so is given the one of the node that it asks."""
        first = self.registrars["node-a"]
        first.register("m")
        self.assertEqual(call(first, "m"), b"answer:hello")
        at, = {copy.location for copy in first.wait_status("m", LOADED).modelCopyInfos}

        def refuse(_request, _context):
            raise Refusal(Code.UNAVAILABLE)
        self.runtimes[at].says["x.Y/Z"] = refuse
        self.assertEqual(call(self.registrars[at], "m"), b"answer:hello")  # by another copy
        del self.runtimes[at].says["x.Y/Z"]
        for name, registrar in self.registrars.items():
            wait_until(lambda: [copy.copyStatus for copy in registrar.status("m").modelCopyInfos] ==
                       2 * [LOADED], f"{name} to know of two copies")

            for more, share in ((("mm-balanced", "true"),), 10), ((("mm-balanced", "false"),), 5), ((), 5):
                with self.subTest(name, more=more):
                    self.assertEqual(self.share_of(name, more), share)

    def test_the_only_runtime_refuses(self):
        """Its refusal is the answer, through either node, of calls that have no deadline: each tries
        once more, a second later."""
        def refuse(_request, _context):
            raise Refusal(Code.UNAVAILABLE, "not now")
        self.runtimes["node-b"].says["x.Y/Z"] = refuse
        self.registrars["node-a"].register("m", kind="only-b")
        def check():
            for registrar in self.registrars.values():
                before = self.runtimes["node-b"].count("x.Y/Z")
                self.assertEqual(failure(start_call(registrar, "m", timeout=None)),
                                 (Code.INTERNAL, "ModelRuntime UNAVAILABLE: x.Y/Z: UNAVAILABLE: not now"))
                yield self.runtimes["node-b"].count("x.Y/Z") - before
        list(check())
        for registrar in self.registrars.values():
            registrar.wait_status("m", LOADED)
        self.assertEqual(list(check()), [2, 2])
        self.runtimes["node-b"].says.clear()
        for registrar in self.registrars.values():
            self.assertEqual(call(registrar, "m"), b"answer:hello")

    def test_the_other_node_makes_room(self):
        """One node fails the load, the other is full of models that nobody calls: registering with a
        wait has it loaded there, in place of one of these."""
        def fail(_request, _context):
            raise Refusal(Code.INTERNAL, "not here")

        def say(usual):
            def answer(request, context):
                said = usual(request, context)
                said.sizeInBytes = 30 * MIB
                return said
            return answer
        for runtime in self.runtimes.values():
            for method in ("predictModelSize", "loadModel"):
                runtime.says[method] = say(getattr(runtime, method))
        self.runtimes["node-a"].says["loadModel"] = fail
        first = self.registrars["node-a"]
        for model in ("idle-1", "idle-2"):
            first.register(model, kind="only-b")
            self.assertEqual(call(first, model), b"answer:hello")
        status = first.register("m", loadNow=True, sync=True)
        self.assertEqual(status.status, LOADED)
        self.assertEqual({copy.location: copy.copyStatus for copy in status.modelCopyInfos},
                         {"node-a": LOADING_FAILED, "node-b": LOADED})
        self.assertEqual(self.runtimes["node-b"].count("unloadModel"), 1)

    def share_of(self, name, more):
        """How many of ten calls at once a node has its own runtime answer."""
        go = threading.Event()
        self.addCleanup(go.set)

        def wait(_request, _context):
            go.wait(WAIT_SECONDS)
            return b"held"
        before = {other: runtime.count("x.Y/Z") for other, runtime in self.runtimes.items()}
        share = {}

        def look():
            share.update((other, runtime.count("x.Y/Z") - before[other])
                         for other, runtime in self.runtimes.items())
            return sum(share.values()) == 10
        for runtime in self.runtimes.values():
            runtime.says["x.Y/Z"] = wait
        calls = [start_call(self.registrars[name], "m", more=more) for _ in range(10)]
        wait_until(look, lambda: share)
        go.set()
        self.assertEqual([one.result() for one in calls], 10 * [b"held"])
        return share[name]


class SlowPair(Pair):
    status = {"modelLoadingTimeoutMs": 300}

    def test_a_load_takes_too_long(self):
        hang_loads(self.runtimes["node-b"])
        self.registrars["node-a"].register("m", kind="only-b")
        for name, registrar in self.registrars.items():
            def look():  # why it fails stands in the record, which reaches the other a moment later
                code, text = failure(start_call(registrar, "m"))
                return code is Code.DEADLINE_EXCEEDED and text.startswith("DEADLINE_EXCEEDED: ")
            wait_until(look, f"{name} to say that it was too late")
        self.assertEqual(self.runtimes["node-a"].count("loadModel"), 0)


class Both(unittest.TestCase):
    """Nodes with a pipeline for the pupil's models and a runtime for all others."""

    def start_both(self):
        self.etcd = self.enterContext(Etcd())
        self.runtimes, self.nodes, self.registrars = {}, {}, {}
        for name in ("node-a", "node-b"):
            self.runtimes[name] = self.enterContext(Runtime())
            self.nodes[name] = self.enterContext(mesh_node(
                self.etcd, name, models={"types": ["pupil"]},
                mesh={"runtime": self.runtimes[name].address, "runtime_types": ["kind"],
                      "address": "127.0.0.1"}))
            self.registrars[name] = self.enterContext(Registrar(self.nodes[name]))

    def lessons(self, model):
        """The actions of all nodes' pupils on it."""
        files = [node.folder / "lessons" for node in self.nodes.values()]
        lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
        return [line.split()[0] for line in lines if line.split()[1] == model]

    def at(self, model):
        """The only node that has it, when all agree, and the other."""
        def look():
            found = [{copy.location for copy in registrar.status(model).modelCopyInfos}
                     for registrar in self.registrars.values()]
            return found[0] if len(found[0]) == 1 and found[0] == found[1] else None
        at, = wait_until(look, f"one copy of {model}")
        other, = set(self.nodes) - {at}
        return at, other

    def call_all(self, *registrars):
        """The pupil's, and the runtime's, by the method that both have, and a vmodel."""
        for registrar in registrars or self.registrars.values():
            self.assertEqual(said(registrar.infer("mine")), "mine")
            self.assertEqual(call(registrar, "theirs"), b"answer:hello")
            message = OIP["ModelInferRequest"](model_name="theirs").SerializeToString()
            answer = registrar.channel.unary_unary(f"/{INFER}")(message, timeout=WAIT_SECONDS)
            self.assertEqual(answer, b"answer:" + message)

    def test_both(self):
        self.start_both()
        first = self.registrars["node-a"]
        first.register("mine", key=key())
        first.register("theirs", kind="kind")
        self.call_all()
        self.call_all()
        self.assertEqual(self.lessons("mine"), ["load"])
        self.assertEqual([request.modelId for runtime in self.runtimes.values()
                          for request in runtime.requests("loadModel")], ["theirs"])
        self.whose_it_is(first)
        with self.subTest("a vmodel goes over"):
            self.vmodel(first)
        at, other = self.at("theirs")
        with self.subTest("the runtime ends, and is back"):
            self.runtime_ends(at, other)
        with self.subTest("a drain"):
            self.drain()

    def test_each_without_the_other(self):
        """The pipeline serves before the runtime has come, and the runtime goes on without its
        worker."""
        address = f"127.0.0.1:{free_port()}"
        self.cancelled = threading.Event()
        shoald = prepare(pupil(models={"types": ["pupil"]}),
                         mesh={"instance": "node-1", "runtime": address}).start()
        self.addCleanup(shoald.discard)
        with Registrar(shoald) as registrar:
            shoald.wait_log("external_not_ready")
            wait_until(shoald.workers, "the pupil")
            registrar.register("mine", key=key())
            registrar.register("theirs", kind="kind")
            self.assertEqual(said(registrar.infer("mine")), "mine")
            self.assertEqual(failure(start_call(registrar, "theirs")),
                             (Code.UNAVAILABLE, "the runtime of this node is not ready, and no other "
                                                "node can serve the model: try again"))
            self.assertNotIn(" ready pipelines=", shoald.stderr)
            runtime = self.enterContext(Runtime(address))
            shoald.wait_ready()
            self.call_all(registrar)
            self.assertEqual(failure(start_call(registrar, "mine")),
                             (Code.INVALID_ARGUMENT, f'model "mine" is called by /{INFER}, not by {ANY}'))
            worker, = shoald.workers()
            os.kill(worker.pid, signal.SIGKILL)
            shoald.wait_successor(worker)
            wait_until(lambda: not registrar.start_infer("mine").exception(), "the pupil to be back")
            self.call_all(registrar)
            self.assertEqual(runtime.count("loadModel"), 1)
            runtime.says["x.Y/Z"] = lambda _, context: self.until_cancelled(context)
            future = start_call(registrar, "theirs", message=b"gone", timeout=4 * WAIT_SECONDS)
            wait_until(lambda: (ANY[1:], b"gone") in runtime.asked, "the call")
            future.cancel()
            self.assertTrue(self.cancelled.wait(WAIT_SECONDS))
            registrar.unregister("mine")
            registrar.unregister("theirs")
            wait_until(lambda: runtime.count("unloadModel") == 1, "unloadModel")
            self.assertEqual(runtime.requests("unloadModel")[0].modelId, "theirs")
        self.assertEqual(shoald.terminate(), 0, shoald.stderr)

    def until_cancelled(self, context):
        when_over(context, self.cancelled.set)
        self.cancelled.wait(2 * WAIT_SECONDS)  # longer than its caller waits
        return b"late"

    def whose_it_is(self, registrar):
        copies = shoalctl("mesh", "copies", "theirs", "--json", "--counters",
                          self.nodes[self.at("theirs")[0]].counters).json_lines
        self.assertEqual([row["by"] for row in copies if "by" in row and row["by"]], ["runtime"])
        copies = shoalctl("mesh", "copies", "mine", "--json", "--counters",
                          self.nodes[self.at("mine")[0]].counters).json_lines
        self.assertEqual([row["by"] for row in copies if "by" in row and row["by"]], ["pipelines"])
        registrar.register("nobodys", kind="other")
        status = registrar.ensure("nobodys", sync=True)
        self.assertEqual(status.status, LOADING_FAILED)
        self.assertIn('models of type "other" are loaded by no runtime of this node', status.errors[0])

    def vmodel(self, registrar):
        registrar.call("setVModel", vModelId="v", targetModelId="mine")
        name = ("mm-vmodel-id", "v")
        for one in self.registrars.values():
            self.assertEqual(said(one.infer(metadata=(name,))), "mine")
        registrar.call("setVModel", vModelId="v", targetModelId="theirs", sync=True)
        for one in self.registrars.values():
            wait_until(lambda: one.call("getVModelStatus", vModelId="v").activeModelId == "theirs",
                       "the vmodel to be seen")
            answer = one.channel.unary_unary(ANY)(b"x", timeout=WAIT_SECONDS, metadata=(name,))
            self.assertEqual(answer, b"answer:x")
        registrar.call("deleteVModel", vModelId="v")

    def runtime_ends(self, at, other):
        self.runtimes[at].stop()
        self.nodes[at].wait_log("external_lost")
        self.call_all()
        self.assertEqual(self.at("theirs"), (other, at))
        self.assertEqual(self.lessons("mine"), ["load"])
        self.runtimes[at] = self.enterContext(Runtime(self.runtimes[at].address))
        self.nodes[at].wait_log("external_ready", count=2)
        self.call_all()

    def drain(self):
        at, other = self.at("theirs")
        first = self.registrars[at]
        first.register("more", key=key())
        first.ensure("more", sync=True)
        self.nodes[at].drain()
        self.nodes[at].check_end()
        self.call_all(self.registrars[other])
        self.assertEqual(said(self.registrars[other].infer("more")), "more")
        self.assertEqual(self.runtimes[other].held, {"theirs"})


def echo(requests, _context):
    for request in requests:
        yield b"answer:" + request


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


class Streams(Loaded):
    """Each is asked of the node that has the model, and of the other one."""

    def setUp(self):
        super().setUp()
        self.runtime.streams[STREAM[1:]] = echo

    def stream(self, registrar, requests, method=STREAM, model="m", more=()):
        return registrar.channel.stream_stream(method)(
            requests, timeout=WAIT_SECONDS, metadata=(("mm-model-id", model), *more))

    def check_end(self, stream, code, text=""):
        self.assertEqual((stream.code(), stream.details()), (code, text))

    def wait_still(self, count):
        """Until it has not changed while other calls came and went."""
        last = [None]

        def is_still():
            before, last[0] = last[0], count()
            for registrar in self.ways * 20:
                call(registrar, "m")
            return before == last[0]
        wait_until(is_still, lambda: f"a standstill, {count()}")

    def test_streams(self):
        for registrar in self.ways:
            with self.subTest("talk"):
                self.talk(registrar)
            with self.subTest("many"):
                self.many(registrar)
            with self.subTest("one way"):
                self.one_way(registrar)
            with self.subTest("failures"):
                self.failures(registrar)
            with self.subTest("cancelled"):
                self.cancelled(registrar)

    def talk(self, registrar):
        """Each message of any size is answered before the next is sent."""
        talk = Talk()
        stream = self.stream(registrar, talk, more=(("x-own", "mine"),))
        for size in (3, 0, 1, LARGE, 900_000, 262_144, 5):
            message = bytes([size % 251]) * size
            talk.say(message)
            self.assertEqual(next(stream), b"answer:" + message)
            self.assertIn(("x-first", "one"), stream.initial_metadata())
        talk.say(None)
        with self.assertRaises(StopIteration):
            next(stream)
        self.check_end(stream, Code.OK)
        self.assertIn(("x-last", "two"), stream.trailing_metadata())
        self.assertEqual(self.runtime.metadata[-1]["mm-model-id"], "m")
        self.assertEqual(self.runtime.metadata[-1]["x-own"], "mine")

    def many(self, registrar):
        """Small and large ones, in their order, as fast as they go."""
        messages = [b"%d" % i + bytes(i % 7 // 6 * 400_000) for i in range(300)]
        answers = list(self.stream(registrar, iter(messages)))
        self.assertEqual(answers, [b"answer:" + message for message in messages])

    def one_way(self, registrar):
        self.runtime.streams["s/Down"] = lambda requests, _: (b"%d" % i for i in range(int(next(requests))))
        self.runtime.streams["s/Up"] = lambda requests, _: iter((b"%d" % sum(map(int, requests)),))
        keys = {"timeout": WAIT_SECONDS, "metadata": (("mm-model-id", "m"),)}
        for count in (0, 1, 2, 500):
            down = registrar.channel.unary_stream("/s/Down")(b"%d" % count, **keys)
            self.assertEqual(list(down), [b"%d" % i for i in range(count)])
            up = registrar.channel.stream_unary("/s/Up")
            numbers = (b"%d" % i for i in range(count + 1))
            self.assertEqual(up(numbers, **keys), b"%d" % (count * (count + 1) // 2))
        self.nothing(registrar)

    def nothing(self, registrar):
        """A caller that ends without any message: what that means the runtime says."""
        self.assertEqual(list(self.stream(registrar, iter(()))), [])
        none = registrar.channel.stream_unary("/s/Up")
        self.assertEqual(none(iter(()), timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),)), b"0")
        with self.assertRaises(grpc.RpcError) as nobody:
            next(self.stream(registrar, iter(()), model="nobody"))
        self.assertIs(nobody.exception.code(), Code.NOT_FOUND)
        with self.assertRaises(grpc.RpcError) as several:
            next(self.stream(registrar, iter(()), more=(("mm-model-id", "n"),)))
        self.assertEqual((several.exception.code(), several.exception.details()),
                         (Code.INVALID_ARGUMENT,
                          "a call for several models has one message, and this one has none"))

    def failures(self, registrar):
        def fail(requests, context):
            yield from echo(requests, context)
            context.abort(Code.ABORTED, "enough")
        self.runtime.streams["s/Fail"] = fail
        for count in (1, 5):
            stream = self.stream(registrar, iter([b"x"] * count), "/s/Fail")
            self.assertEqual([next(stream) for _ in range(count)], [b"answer:x"] * count)
            with self.assertRaises(grpc.RpcError):
                next(stream)
            self.check_end(stream, Code.ABORTED, "s/Fail: ABORTED: enough")
            self.assertIn(("x-last", "two"), stream.trailing_metadata())
        talk = Talk()
        stream = self.stream(registrar, talk)
        talk.say(b"one")
        self.assertEqual(next(stream), b"answer:one")
        talk.say(bytes(2 << 20))  # more than a message may have
        with self.assertRaises(grpc.RpcError):
            next(stream)
        self.assertIs(stream.code(), Code.RESOURCE_EXHAUSTED)
        talk.say(None)
        with self.assertRaises(grpc.RpcError) as nobody:
            next(self.stream(registrar, iter([b"x", b"y"]), model="nobody"))
        self.assertIs(nobody.exception.code(), Code.NOT_FOUND)

    def cancelled(self, registrar):
        ended = threading.Event()  # of this stream: the end of others may be heard of later

        def note(requests, context):
            when_over(context, ended.set)
            yield from echo(requests, context)
        self.runtime.streams["s/Note"] = note
        talk = Talk()
        stream = self.stream(registrar, talk, "/s/Note")
        talk.say(b"one")
        self.assertEqual(next(stream), b"answer:one")
        self.assertFalse(ended.is_set())
        stream.cancel()
        self.assertTrue(ended.wait(WAIT_SECONDS))
        talk.say(None)

    def test_slow_reader_stops_the_writer(self):
        sent = []

        def pour(_requests, _context):
            for i in range(MANY):
                sent.append(i)
                yield b"%d " % i + bytes(LARGE)
        self.runtime.streams["s/Pour"] = pour
        for registrar in self.ways:
            sent.clear()
            stream = self.stream(registrar, iter([b"go"]), "/s/Pour")
            self.assertEqual(next(stream)[:2], b"0 ")
            self.wait_still(lambda: len(sent))
            self.assertLess(len(sent), MANY // 2)
            for i in range(1, MANY):
                self.assertEqual(int(next(stream).partition(b" ")[0]), i)
            self.assertEqual(list(stream), [])

    def test_a_runtime_that_does_not_read(self):
        go = queue.SimpleQueue()

        def soak(requests, _context):
            next(requests)
            go.get(timeout=WAIT_SECONDS)
            yield b"%d" % sum(len(request) for request in requests)
        self.runtime.streams["s/Soak"] = soak
        for registrar in self.ways:
            talk = Talk()
            talk.say(*[bytes(LARGE)] * (MANY + 1), None)
            stream = self.stream(registrar, talk, "/s/Soak")
            self.wait_still(lambda: talk.taken)
            self.assertLess(talk.taken, MANY // 2)
            go.put(None)
            self.assertEqual(list(stream), [b"%d" % (MANY * LARGE)])

    def test_the_node_that_serves_is_killed(self):
        talk = Talk()
        stream = self.stream(self.registrars[self.other], talk)
        talk.say(b"one")
        self.assertEqual(next(stream), b"answer:one")
        self.nodes[self.at].kill()
        with self.assertRaises(grpc.RpcError):
            next(stream)
        self.check_end(stream, Code.UNAVAILABLE,
                       "the stream was cut off: the serving node or runtime was lost")
        talk.say(None)
        self.runtimes[self.other].streams[STREAM[1:]] = echo

        def goes_elsewhere():  # at once, if the other's end is not two seconds ago
            again = self.stream(self.registrars[self.other], iter([b"x", b"y"]))
            try:
                return list(again) == [b"answer:x", b"answer:y"]
            except grpc.RpcError as error:
                self.assertIs(error.code(), Code.UNAVAILABLE)
                return False
        wait_until(goes_elsewhere, "a stream that is served")


if __name__ == "__main__":
    main()
