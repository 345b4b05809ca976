# SPDX-License-Identifier: Apache-2.0
"""External runtimes: a node of one (external_drive.c: real runner, core and store) drives a runtime
in Python that says what it is told, and Shoal's own. That it is asked for its status until it is
READY and not again, that loads, unloads, sizes and calls come to it as ModelMesh would send them,
that each of them ends once for any answer, and that its models count as lost when it ends.

ctest: timeout=240 presets=dev
"""

import itertools
import threading
import unittest

import grpc

import shoal_fixture
from shoal_fixture import WAIT_SECONDS, free_port, wait_until
from shoal_mesh import FAILING, INFER, MMESH, OIP
from shoal_pupil import known, prepare, pupil
from shoal_pupil import key as pupil_key
from shoal_runtime import MIB, READY, STARTING, Node, Refusal, Runtime

OK, NOT_FOUND, DEADLINE = 0, 6, 9  # enum mesh_end
LOADED, LOADING_FAILED = 3, 4  # enum mesh_model_state


class Start(unittest.TestCase):
    def test_asked_until_ready_and_not_again(self):
        with Runtime() as runtime:
            runtime.states = [STARTING, STARTING, READY]
            with Node(runtime.address) as node:
                node.wait_ready()
                self.assertEqual(node.look()[:3], (True, 1, "v1"))
                self.assertEqual(node.register("m"), 0)
                self.assertEqual(node.call("m")[0], OK)
                self.assertEqual(runtime.count("runtimeStatus"), 3)

    def test_nobody_there_yet(self):
        address = f"127.0.0.1:{free_port()}"
        with Node(address) as node:
            self.assertEqual(node.look()[0], False)
            with Runtime(address):
                node.wait_ready()

    def test_the_first_that_is_ready(self):
        with Runtime() as runtime, Node(f"127.0.0.1:{free_port()}", runtime.address) as node:
            node.wait_ready()

    def test_never_ready(self):
        with Node(f"127.0.0.1:{free_port()}", start_ms=200) as node:
            self.assertIn("not ready after", " ".join(node.line("failed")))
        with Runtime() as runtime:
            runtime.states = [STARTING]
            with Node(runtime.address, start_ms=200) as node:
                self.assertIn("it says STARTING", " ".join(node.line("failed")))

    def check_fails(self, text, serves=True, states=(READY,), **status):
        with Runtime(serves=serves, **status) as runtime:
            runtime.states = list(states)
            with Node(runtime.address) as node:
                self.assertIn(text, " ".join(node.line("failed")))
            self.assertLessEqual(runtime.count("runtimeStatus"), 1)

    def test_failing(self):
        self.check_fails("it says FAILING", states=[FAILING])

    def test_not_a_runtime(self):
        self.check_fails("UNIMPLEMENTED", serves=False)

    def test_senseless_figures(self):
        self.check_fails("capacityInBytes", capacityInBytes=MIB)
        self.check_fails("maxLoadingConcurrency", maxLoadingConcurrency=0)
        self.check_fails("modelLoadingTimeoutMs", modelLoadingTimeoutMs=3)
        self.check_fails("defaultModelSizeInBytes", defaultModelSizeInBytes=0)


class Rig(unittest.TestCase):
    def setUp(self):
        self.runtime = self.enterContext(Runtime())
        self.before()
        self.node = self.enterContext(Node(self.runtime.address))
        self.node.wait_ready()

    def before(self):
        pass

    def refuse(self, method, code, text="because"):
        def say(_request, _context):
            raise Refusal(code, text)
        self.runtime.says[method] = say

    def load(self, model):
        """Registers and loads it; whether its size was asked for before. On a busy machine the node
        may give that up before it comes to the runtime."""
        self.node.register(model, "kind", "a/path", "{}")
        self.assertEqual(self.node.ensure(model), (0, LOADED, 1, ""))
        return model in [request.modelId for request in self.runtime.requests("predictModelSize")]


class Loads(Rig):
    def test_requests_to_the_runtime(self):
        names = (f"m{i}" for i in itertools.count())
        free = []

        def is_predicted():
            model = next(names)
            free.append(self.node.look()[3])
            return model if self.load(model) else None
        model = wait_until(is_predicted, "a prediction to come to the runtime")
        for method in ("predictModelSize", "loadModel"):
            request, = [one for one in self.runtime.requests(method) if one.modelId == model]
            self.assertEqual((request.modelType, request.modelPath, request.modelKey),
                             ("kind", "a/path", "{}"))
        self.assertEqual(self.runtime.count("modelSize"), 0)
        self.assertEqual(free[-1] - self.node.look()[3], 2 * MIB)  # measured, not predicted
        self.node.unregister(model)
        wait_until(lambda: self.runtime.count("unloadModel") == 1, lambda: "unloadModel")
        wait_until(lambda: self.node.look()[3] == free[-1], lambda: f"{free[-1]} bytes to be free")

    def load_without_size(self):
        self.runtime.says["loadModel"] = lambda request, context: (
            self.runtime.held.add(request.modelId) or MMESH["LoadModelResponse"]())

    def test_size_is_asked_for(self):
        """The model serves until the answer comes, and counts as predicted: its size is not waited
        for."""
        self.load_without_size()
        told = threading.Event()
        self.addCleanup(told.set)

        def size(_request, _context):
            told.wait(WAIT_SECONDS)
            return MMESH["ModelSizeResponse"](sizeInBytes=5 * MIB)
        self.runtime.says["modelSize"] = size
        free = self.node.look()[3]
        self.node.register("m")
        self.assertEqual(self.node.call("m")[0], OK)
        self.assertEqual(self.node.ensure("m"), (0, LOADED, 1, ""))
        wait_until(lambda: self.runtime.count("modelSize") == 1, "modelSize")
        self.assertEqual(self.runtime.requests("modelSize")[0].modelId, "m")
        self.assertNotEqual(free - self.node.look()[3], 5 * MIB)
        told.set()
        wait_until(lambda: free - self.node.look()[3] == 5 * MIB, "the size to be known")
        self.assertEqual(self.node.call("m")[0], OK)
        self.assertEqual(self.runtime.count("loadModel"), 1)

    def test_no_size_is_told(self):
        """The runtime refuses, or hangs: what it has loaded serves."""
        self.load_without_size()
        self.refuse("modelSize", grpc.StatusCode.INTERNAL)
        self.node.register("refused")
        self.assertEqual(self.node.call("refused")[0], OK)
        wait_until(lambda: any('external_size_failed model="refused"' in line for line in self.node.log),
                   "the refusal to be logged")
        self.runtime.says["modelSize"] = self.runtime.hang
        self.node.register("hangs")
        self.assertEqual(self.node.call("hangs")[0], OK)
        wait_until(lambda: self.runtime.count("modelSize") == 2, "modelSize")
        for model in ("refused", "hangs"):
            self.assertEqual(self.node.call(model)[0], OK)
            self.assertEqual(self.node.ensure(model), (0, LOADED, 1, ""))
        self.node.unregister("hangs")
        wait_until(lambda: self.runtime.count("unloadModel") == 1, "unloadModel")
        self.runtime.cancelled.clear()
        self.node.register("hangs-still")
        self.assertEqual(self.node.call("hangs-still")[0], OK)
        wait_until(lambda: self.runtime.count("modelSize") == 3, "modelSize")  # the node ends meanwhile

    def test_predictions_are_optional(self):
        """A runtime that refuses one in time is asked for no more."""
        self.refuse("predictModelSize", grpc.StatusCode.UNIMPLEMENTED)
        names = (f"m{i}" for i in itertools.count())
        self.load(next(names))
        wait_until(lambda: (not any(self.load(next(names)) for _ in range(3))
                            and self.runtime.count("predictModelSize") > 0),
                   "loads without a prediction")

    def test_a_prediction_takes_too_long(self):
        self.runtime.says["predictModelSize"] = self.runtime.hang
        self.node.register("m")
        self.assertEqual(self.node.call("m")[0], OK)

    def test_load_fails(self):
        self.refuse("loadModel", grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")
        self.node.register("m")
        self.assertNotEqual(self.node.call("m")[0], OK)
        self.assertEqual(self.node.ensure("m")[1:], (LOADING_FAILED, 1, "RESOURCE_EXHAUSTED: no room"))
        self.assertEqual(self.runtime.count("loadModel"), 1)

    def test_load_is_not_attempted(self):
        """By these two codes the runtime says so: there is nothing to unload."""
        for model, code in (("a", grpc.StatusCode.FAILED_PRECONDITION),
                            ("b", grpc.StatusCode.INVALID_ARGUMENT), ("c", grpc.StatusCode.INTERNAL)):
            self.refuse("loadModel", code)
            self.node.register(model)
            self.assertEqual(self.node.ensure(model)[1:], (LOADING_FAILED, 1, f"{code.name}: because"))
        wait_until(lambda: self.runtime.count("unloadModel") > 0, lambda: "unloadModel")
        self.assertEqual([request.modelId for request in self.runtime.requests("unloadModel")], ["c"])

    def test_load_of_unknown_code(self):
        self.refuse("loadModel", grpc.StatusCode.UNKNOWN, "just the text")
        self.node.register("m")
        self.assertNotEqual(self.node.call("m")[0], OK)
        self.assertEqual(self.node.ensure("m")[3], "just the text")

    def test_unload_is_tried_again(self):
        self.node.register("m")
        self.node.call("m")
        self.refuse("unloadModel", grpc.StatusCode.UNAVAILABLE)
        self.node.unregister("m")
        wait_until(lambda: self.runtime.count("unloadModel") == 1, lambda: "unloadModel")
        del self.runtime.says["unloadModel"]
        wait_until(lambda: self.runtime.count("unloadModel") == 2, lambda: "another unloadModel")
        self.node.register("m")
        self.assertEqual(self.node.call("m")[0], OK)

    def test_unload_of_what_is_not_there(self):
        self.node.register("m")
        self.node.call("m")
        free = self.node.look()[3]
        self.refuse("unloadModel", grpc.StatusCode.NOT_FOUND)
        self.node.unregister("m")
        wait_until(lambda: self.runtime.count("unloadModel") == 1, lambda: "unloadModel")
        self.node.register("m")
        self.assertEqual(self.node.call("m")[0], OK)
        self.assertEqual(self.node.look()[3], free)  # nothing counts as lost


class SlowLoads(Rig):
    def before(self):
        self.runtime.fields["modelLoadingTimeoutMs"] = 300

    def test_load_takes_too_long(self):
        self.runtime.says["loadModel"] = self.runtime.hang
        self.node.register("m")
        self.assertNotEqual(self.node.call("m")[0], OK)
        self.assertIn("DEADLINE_EXCEEDED", self.node.ensure("m")[3])
        wait_until(lambda: self.runtime.count("unloadModel") >= 1, lambda: "unloadModel")


class Calls(Rig):
    def before(self):
        self.runtime.methods = {INFER: [1], "x.Y/Z": [], "x.Y/Nested": [3, 2]}

    def setUp(self):
        super().setUp()
        self.node.register("m")

    def test_metadata_and_trailers_pass(self):
        end, status, message, initial, trailing, text = self.node.call("m", metadata="x-own=mine")
        self.assertEqual((end, status, message, initial, trailing, text),
                         (OK, 0, b"answer:hello", "x-first=one", "x-last=two", ""))
        metadata, = self.runtime.metadata
        self.assertEqual(metadata["mm-model-id"], "m")
        self.assertEqual(metadata["mm-model-id-bin"], b"m")
        self.assertEqual(metadata["x-own"], "mine")

    def test_id_beyond_ascii(self):
        self.node.register("modèle")
        self.assertEqual(self.node.call("modèle")[:3], (OK, 0, b"answer:hello"))
        metadata, = self.runtime.metadata
        self.assertEqual(metadata["mm-model-id-bin"], "modèle".encode())
        self.assertNotIn("mm-model-id", metadata)

    def test_empty_message(self):
        self.assertEqual(self.node.call("m", message=b"")[:3], (OK, 0, b"answer:"))

    def test_id_is_injected(self):
        message = OIP["ModelInferRequest"](model_name="what the caller calls it")
        message.inputs.add(name="x", datatype="UINT8", shape=[70000])
        message.raw_input_contents.append(bytes(range(250)) * 280)
        answer = self.node.call("m", method=INFER, message=message.SerializeToString())[2]
        came = OIP["ModelInferRequest"].FromString(answer.removeprefix(b"answer:"))
        message.model_name = "m"
        self.assertEqual(came, message)

    def test_id_is_injected_where_there_was_none(self):
        answer = self.node.call("m", method="x.Y/Nested", message=b"\x08\x01\x1a\x02\x08\x05")[2]
        self.assertEqual(answer, b"answer:\x08\x01\x1a\x05\x08\x05\x12\x01m")
        answer = self.node.call("m", method="x.Y/Nested", message=b"\x08\x01")[2]
        self.assertEqual(answer, b"answer:\x08\x01\x1a\x03\x12\x01m")

    def test_no_place_for_the_id(self):
        end, status, _, _, _, text = self.node.call("m", method=INFER, message=b"\x0a\x70cut")
        self.assertEqual((end, status), (OK, 3), text)
        self.assertIn("no place for the model's id", text)

    def test_not_permitted(self):
        for method in ("x.Y/Other", "mmesh.ModelRuntime/unloadModel"):
            end, status, _, _, _, text = self.node.call("m", method=method)
            self.assertEqual((end, status, text), (OK, 12, f"Method not found or not permitted: {method}"))
        self.assertEqual(self.runtime.count("x.Y/Other"), 0)
        self.assertEqual(self.node.ask("permits", "/x.Y/Other")[1], "12")
        self.assertEqual(self.node.ask("permits", "/x.Y/Z")[1], "0")

    def test_errors_are_the_runtimes_own(self):
        self.refuse("x.Y/Z", grpc.StatusCode.ABORTED, "not today")
        self.assertEqual(self.node.call("m"), (OK, 10, None, "-", "-", "x.Y/Z: ABORTED: not today"))

    def test_errors_keep_their_trailers(self):
        def say(_request, context):
            context.set_trailing_metadata((("x-why", "tired"),))
            raise Refusal(grpc.StatusCode.ABORTED, "not today")
        self.runtime.says["x.Y/Z"] = say
        self.assertEqual(self.node.call("m")[4], "x-why=tired")

    def check_vanished(self, code, text):
        """The model is loaded anew, and the call answered."""
        self.assertEqual(self.node.call("m")[0], OK)
        loads = self.runtime.count("loadModel")
        came = []

        def say(request, context):
            came.append(sorted(context.invocation_metadata()))
            if len(came) == 1:
                raise Refusal(code, text)
            return self.runtime.infer(request, context)
        self.runtime.says["x.Y/Z"] = say
        self.assertEqual(self.node.call("m", metadata="x-own=mine")[:3], (OK, 0, b"answer:hello"))
        self.assertEqual(self.runtime.count("loadModel"), loads + 1)
        first, second = came
        self.assertEqual(first, second)
        self.assertIn(("x-own", "mine"), second)

    def test_vanished(self):
        self.check_vanished(grpc.StatusCode.NOT_FOUND, "gone")

    def test_vanished_from_triton(self):
        for text in ("'m' is not found", "'m' has no available versions"):
            self.check_vanished(grpc.StatusCode.UNAVAILABLE, f"Request for unknown model: {text}")

    def test_vanished_from_mlserver(self):
        self.check_vanished(grpc.StatusCode.INVALID_ARGUMENT, "Model m not found")

    def test_invalid_argument_is_an_answer(self):
        self.refuse("x.Y/Z", grpc.StatusCode.INVALID_ARGUMENT, "Model m has other inputs")
        self.assertEqual(self.node.call("m")[:2], (OK, 3))

    def test_cancelled(self):
        self.runtime.says["x.Y/Z"] = self.runtime.hang
        tag = self.node.start("m")
        wait_until(lambda: self.runtime.count("x.Y/Z") == 1, lambda: "the call")
        self.node.cancel(tag)
        self.assertTrue(self.runtime.cancelled.wait(WAIT_SECONDS))

    def test_deadline(self):
        self.node.call("m")
        left = []

        def say(request, context):
            left.append(context.time_remaining())
            return self.runtime.hang(request, context)
        self.runtime.says["x.Y/Z"] = say

        def comes():
            """On a busy machine the deadline may come before the call has."""
            self.assertEqual(self.node.call("m", timeout_ms=700)[0], DEADLINE)
            return left
        self.assertLess(wait_until(comes, "a call to come to the runtime")[0], 1)


class AnyMethod(Calls):
    """The same with allowAnyMethod: only what is not permitted differs."""

    def before(self):
        super().before()
        self.runtime.fields["allowAnyMethod"] = True

    def test_not_permitted(self):
        self.assertEqual(self.node.call("m", method="x.Y/Other")[:2], (OK, 0))
        self.assertEqual(self.node.call("m", method="mmesh.ModelRuntime/unloadModel")[1], 12)


class Ends(unittest.TestCase):
    def test_restart(self):
        with Runtime() as first:
            with Node(first.address) as node:
                node.wait_ready()
                node.register("m")
                self.assertEqual(node.call("m")[:2], (OK, 0))
                free = node.look()[3]
                first.stop()
                wait_until(lambda: not node.look()[0], lambda: "the loss to be known")
                self.assertNotEqual(node.call("m", timeout_ms=500)[0], OK)
                with Runtime(first.address) as second:
                    node.wait_ready(starts=2)
                    self.assertEqual(node.call("m")[:3], (OK, 0, b"answer:hello"))
                    self.assertEqual(second.count("loadModel"), 1)
                    self.assertEqual(second.count("unloadModel"), 0)
                    self.assertEqual(node.look()[3], free)

    def test_an_unload_that_waits_ends_too(self):
        """The next start has nothing of the model: it is not told to unload it."""
        with Runtime() as first:
            with Node(first.address) as node:
                node.wait_ready()
                node.register("m")
                self.assertEqual(node.call("m")[:2], (OK, 0))
                free = node.look()[3]

                def refuse(_request, _context):
                    raise Refusal(grpc.StatusCode.UNAVAILABLE)
                first.says["unloadModel"] = refuse
                node.unregister("m")
                wait_until(lambda: first.count("unloadModel") > 0, lambda: "unloadModel")
                first.stop()
                with Runtime(first.address) as second:
                    node.wait_ready(starts=2)
                    node.register("m")
                    self.assertEqual(node.call("m")[:2], (OK, 0))
                    self.assertEqual(second.count("unloadModel"), 0)
                    self.assertEqual(node.look()[3], free)

    def test_ends_in_the_middle_of_all(self):
        with Runtime() as runtime, Node(runtime.address) as node:
            node.wait_ready()
            node.register("m")
            node.register("n")
            node.call("m")

            runtime.says["x.Y/Z"] = runtime.says["loadModel"] = runtime.hang
            tags = [node.start("n")]
            wait_until(lambda: runtime.count("loadModel") == 2, "a load")  # before all threads hang
            tags += [node.start("m") for _ in range(64)]
            wait_until(lambda: runtime.count("x.Y/Z") >= 16,
                       lambda: f"16 calls, not {runtime.count('x.Y/Z')}")
            runtime.stop()
            for tag in tags:
                self.assertNotEqual(node.end(tag)[:2], (OK, 0))

    def test_the_node_ends_in_the_middle_of_all(self):
        with Runtime() as runtime:
            with Node(runtime.address) as node:
                node.wait_ready()
                node.register("m")
                node.register("n")
                node.call("m")
                runtime.says["x.Y/Z"] = runtime.says["loadModel"] = runtime.hang
                for model in ("m", "m", "n"):
                    node.start(model)
                wait_until(lambda: runtime.count("x.Y/Z") == 3, lambda: "calls")

    def test_calls_at_another_address(self):
        """Management and serving of the models are two processes: as adapters are."""
        with Runtime() as manager, Runtime() as server:
            server.held = manager.held
            with Node(manager.address, serving=server.address) as node:
                node.wait_ready()
                node.register("m")
                self.assertEqual(node.call("m")[:2], (OK, 0))
                self.assertEqual((server.count("x.Y/Z"), manager.count("x.Y/Z")), (1, 0))
                manager.held.clear()  # what only the server has forgotten
                self.assertEqual(node.call("m")[:2], (OK, 0))
                self.assertEqual(manager.count("loadModel"), 2)


class Own(unittest.TestCase):
    """Shoal's own ModelRuntime, which another mesh would drive just so."""

    def test_load_and_call(self):
        shoald = prepare(pupil(), runtime=["unix:runtime.sock"])
        with shoald, Node(f"unix:{shoald.folder}/runtime.sock", serving=shoald.target) as node:
            node.wait_ready()
            node.register("m", "pupil", "model", pupil_key().replace(" ", ""))
            message = OIP["ModelInferRequest"](model_name="vmodel")
            message.inputs.add(name="x", datatype="UINT8", shape=[1])
            message.raw_input_contents.append(b"\7")
            end, status, answer, _, _, text = node.call("m", method=INFER, message=message.SerializeToString())
            self.assertEqual((end, status), (OK, 0), text)
            response = OIP["ModelInferResponse"].FromString(answer)
            self.assertEqual(response.model_name, "m")
            self.assertEqual(known(response), 1)
            node.unregister("m")
            self.assertEqual(node.call("m")[0], NOT_FOUND)


if __name__ == "__main__":
    shoal_fixture.main()
