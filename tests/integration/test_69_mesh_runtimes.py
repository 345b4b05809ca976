# SPDX-License-Identifier: Apache-2.0
"""Nodes of a mesh whose models are another process's, an external runtime: real daemons, and runtimes in
Python that note what they were asked (shoal_runtime.py), or another shoald.

What is proved: what is registered is loaded there and called there, by any method that the runtime
permits, with its id where the runtime wants it; that streams of any kind go through, here and over
another node, with back-pressure, cancellation and a node that is killed in the middle; that the node
waits for a runtime that is not there, and goes on with one that comes back; that nobody's call is
lost when one of two runtimes ends; that what cannot be passed on is refused.
ctest: timeout=240
"""

import queue
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, Shoald, free_port, main, node, pipeline, stage, wait_until
from shoal_mesh import INFER, OIP
from shoal_meshes import Etcd
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import LOADED, LOADING_FAILED, Registrar
from shoal_runtime import Refusal, Runtime

Code = grpc.StatusCode
ANY = "/x.Y/Z"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LARGE = 64 << 10
MANY = 1000  # of LARGE: more than what all windows on the way take


def node_of(runtime, name="node-1", **mesh):
    """A daemon without pipelines, that has not started."""
    return Shoald({"message_mib": 1, "mesh": {"instance": name, "runtime": runtime, **mesh}})


def start_call(registrar, model, message=b"hello", method=ANY, more=(), timeout=WAIT_SECONDS):
    return registrar.channel.unary_unary(method).future(
        message, timeout=timeout, metadata=(("mm-model-id", model), *more))


def call(registrar, model, **keys):
    return start_call(registrar, model, **keys).result()


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
        raw = self.registrar.channel.stream_stream(STREAM)
        answers = raw(iter([requests[0].SerializeToString(), b"\xff"]), timeout=WAIT_SECONDS,
                      metadata=(("mm-model-id", "m"),))
        with self.assertRaises(grpc.RpcError):
            list(answers)
        self.assertIs(answers.code(), Code.INVALID_ARGUMENT)
        self.assertIn("no place for the model's id", answers.details())

    def test_a_stream_that_has_not_got_far_is_tried_again(self):
        """The runtime has forgotten the model; of the caller there is one message, and perhaps more to come."""
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


class Pair(unittest.TestCase):
    """Two nodes of one mesh, each with a runtime of its own."""

    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.runtimes, self.nodes, self.registrars = {}, {}, {}
        for name in ("node-a", "node-b"):
            self.runtimes[name] = self.enterContext(Runtime())
            self.nodes[name] = self.enterContext(node_of(
                self.runtimes[name].address, name, store=f"etcd:{self.etcd.url}",
                peers=["127.0.0.1:0"], address="127.0.0.1"))
            self.registrars[name] = self.enterContext(Registrar(self.nodes[name].target))


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


def echo(requests, _context):
    for request in requests:
        yield b"answer:" + request


class Streams(Pair):
    """Each is asked of the node that has the model, and of the other one."""

    def setUp(self):
        super().setUp()
        first = self.registrars["node-a"]
        first.register("m")
        first.ensure("m", sync=True)
        self.at, = {copy.location for copy in first.wait_status("m", LOADED).modelCopyInfos}
        self.other, = set(self.nodes) - {self.at}
        self.runtime = self.runtimes[self.at]
        self.runtime.streams[STREAM[1:]] = echo
        self.ways = [self.registrars[self.at], self.registrars[self.other]]
        for registrar in self.ways:  # the other has heard of the copy
            self.assertEqual(call(registrar, "m"), b"answer:hello")

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
        """Each message is answered before the next is said, whatever its size."""
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
        self.runtime.cancelled.clear()
        talk = Talk()
        stream = self.stream(registrar, talk)
        talk.say(b"one")
        self.assertEqual(next(stream), b"answer:one")
        self.assertFalse(self.runtime.cancelled.is_set())
        stream.cancel()
        self.assertTrue(self.runtime.cancelled.wait(WAIT_SECONDS))
        talk.say(None)

    def test_who_does_not_read_stops_who_writes(self):
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
                       "the stream was cut off: the node or the runtime that had it was lost")
        talk.say(None)
        self.runtimes[self.other].streams[STREAM[1:]] = echo
        self.assertEqual(call(self.registrars[self.other], "m"), b"answer:hello")  # loaded there
        again = self.stream(self.registrars[self.other], iter([b"x", b"y"]))
        self.assertEqual(list(again), [b"answer:x", b"answer:y"])


if __name__ == "__main__":
    main()
