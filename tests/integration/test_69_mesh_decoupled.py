# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces of an external runtime that refuses ModelInfer, as Triton does for decoupled
models: a gRPC server in Python (shoal_runtime.py) beside node-b, called there and through node-a, which
has no runtime. Real daemons and a real etcd.

Proves: requests of ModelStreamInfer, named by metadata or in the message, and events over REST go to
the runtime's ModelStreamInfer; pieces come as they are made, in order and of any size; ends, errors,
malformed responses and cancelling are those of each request; callers of ModelInfer get the refusal.
ctest: timeout=180 presets=release,tsan because adapters consume pieces on their own threads
"""

import json
import struct
import threading
import unittest

import grpc

from shoal_client import Client, failure
from shoal_fixture import WAIT_SECONDS, main, wait_until
from shoal_mesh import INFER
from shoal_meshes import Etcd, mesh_node
from shoal_pupil import pupil
from shoal_registry import Registrar
from shoal_rest import ANY_PORT, port_of, tensor
from shoal_runtime import Refusal, Runtime, when_over
from shoal_streams import Stream, is_final
from test_14_rest_streams import EVENTS, Events, parse

Code = grpc.StatusCode
REFUSAL = "ModelInfer RPC doesn't support models with decoupled transaction policy"
STREAM = "inference.GRPCInferenceService/ModelStreamInfer"
LARGE = 300 << 10  # more than a window
INPUT = ("x", "INT64", [1], bytes(8))


class Decoupled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        etcd = cls.enterClassContext(Etcd())
        cls.runtime = cls.enterClassContext(Runtime())
        cls.runtime.says[INFER] = cls.refuse
        cls.runtime.streams[STREAM] = cls.answer
        own = pupil(models={"types": ["pupil"]})
        keys = {"http": [ANY_PORT], "pipelines": [own]}
        cls.nodes = {
            "node-a": mesh_node(etcd, "node-a", mesh={"address": "127.0.0.1"}, **keys),
            "node-b": mesh_node(etcd, "node-b", mesh={"address": "127.0.0.1", "runtime": cls.runtime.address,
                                                      "runtime_types": ["decoupled"]}, **keys)}
        for one in cls.nodes.values():
            cls.enterClassContext(one)
        cls.clients = {name: cls.enterClassContext(Client(one.target)) for name, one in cls.nodes.items()}
        cls.request = cls.clients["node-a"].type("inference.ModelInferRequest")
        cls.response = cls.clients["node-a"].type("inference.ModelStreamInferResponse")
        registrar = cls.enterClassContext(Registrar(cls.nodes["node-b"]))
        registrar.register("m", kind="decoupled")
        registrar.ensure("m", sync=True)
        for client in cls.clients.values():  # node-a may have tried a load of its own
            wait_until(lambda client=client: failure(client.start_raw("m", INPUT))[1].endswith(REFUSAL),
                       "the node to see the copy")

    # ---- the runtime ----

    @staticmethod
    def refuse(_request, _context):
        raise Refusal(Code.UNIMPLEMENTED, REFUSAL)

    @classmethod
    def piece(cls, request, number, size=8, **parameters):
        message = cls.response()
        message.infer_response.model_name, message.infer_response.id = "of the runtime", request.id
        output = message.infer_response.outputs.add(name="y", datatype="UINT8")
        output.shape.append(size)
        message.infer_response.raw_output_contents.append(struct.pack("<q", number) + bytes(size - 8))
        for key, value in parameters.items():
            message.infer_response.parameters[key].bool_param = value
        return message.SerializeToString()

    @classmethod
    def answer(cls, requests, context):
        """A request's id says how many pieces are made, of which size, and how they end."""
        for data in requests:
            request = cls.request.FromString(data)
            count, size, end = request.id.split()
            if end == "waits":
                when_over(context, cls.over.set)  # the generator may not go on then
            for number in range(int(count)):
                yield cls.piece(request, number, int(size), triton_final_response=False)
            wants_end = request.parameters["triton_enable_empty_final_response"].bool_param
            if end == "final":
                yield cls.piece(request, int(count), int(size), triton_final_response=True)
            elif end == "fails":
                yield cls.response(error_message="told to fail").SerializeToString()
            elif end == "long":
                yield cls.response(error_message="x" + 3000 * "ä").SerializeToString()
            elif end == "malformed":
                yield b"\xff"
            elif end == "on":
                yield from [cls.piece(request, 0, triton_final_response=True)] * 2
            elif end == "aborts":
                context.abort(Code.ABORTED, "enough")
            elif end == "waits":
                cls.over.wait(WAIT_SECONDS)
            elif wants_end:
                last = cls.response()
                last.infer_response.id = request.id
                last.infer_response.parameters["triton_final_response"].bool_param = True
                yield last.SerializeToString()

    # ---- its callers ----

    def setUp(self):
        type(self).over = threading.Event()

    def each(self):
        yield from self.clients.items()
        for one in self.nodes.values():
            wait_until(lambda one=one: one.stat()["streams"] == one.stat()["mesh_under_way"] == 0,
                       "all streams and calls to be gone")

    @staticmethod
    def ask(client, told, **named):
        stream = Stream(client)
        stream.send("m", INPUT, id=told, **named)
        return stream

    def numbers(self, messages):
        return [struct.unpack_from("<q", message.infer_response.raw_output_contents[0])[0]
                for message in messages]

    # ---- answers ----

    def test_pieces_and_ends(self):
        for _, client in self.each():
            for count in (0, 1, 50):
                *pieces, last = self.ask(client, f"{count} 8 final").read_all()
                self.assertEqual(self.numbers([*pieces, last]), list(range(count + 1)))
                self.assertEqual([is_final(message) for message in [*pieces, last]], [False] * count + [True])
            pieces = self.ask(client, "3 8 none").read_all()
            self.assertEqual((self.numbers(pieces), [is_final(message) for message in pieces]),
                             ([0, 1, 2], [False] * 3))
            *pieces, last = self.ask(client, "3 8 none", empty_final=True).read_all()
            self.assertEqual((len(pieces), last.infer_response.id, len(last.infer_response.outputs)),
                             (3, "3 8 none", 0))
            self.assertTrue(is_final(last))

    def test_named_by_metadata(self):
        """Several requests of one stream, each an answer of its own."""
        for _, client in self.each():
            request, stub = client.stub("ModelStreamInfer", kind="stream_stream")
            messages = [request(**client.infer_fields("any", [INPUT], id=f"{n} 8 final")) for n in (2, 3)]
            answers = list(stub(iter(messages), timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),)))
            self.assertEqual(sorted(self.numbers(answers)), [0, 0, 1, 1, 2, 2, 3])

    def test_come_as_they_are_made(self):
        for _, client in self.each():
            type(self).over = threading.Event()
            stream = self.ask(client, "2 8 waits")
            self.assertEqual(self.numbers([stream.read(), stream.read()]), [0, 1])
            self.over.set()
            self.assertEqual(stream.read_all(), [])

    def test_large(self):
        for _, client in self.each():
            messages = self.ask(client, f"20 {LARGE} final").read_all()
            self.assertEqual(self.numbers(messages), list(range(21)))
            self.assertEqual({len(message.infer_response.raw_output_contents[0]) for message in messages},
                             {LARGE})

    def test_rest(self):
        body = {"inputs": [tensor("x", "INT64", [1], [0])], "id": f"20 {100 << 10} final"}
        for name, _ in self.each():
            with Events(port_of(self.nodes[name])) as events:
                answer = events.ask("POST", "/v2/models/m/infer", json.dumps(body), EVENTS)
            pieces = parse(answer.body)
            self.assertEqual([one["outputs"][0]["data"][0] for one in pieces], list(range(21)))
            self.assertEqual([one["parameters"]["triton_final_response"] for one in pieces], [False] * 20 + [True])

    # ---- failures ----

    def test_failures(self):
        for told, error, count in (
                ("2 8 fails", f"{STREAM}: told to fail", 2),
                ("0 8 fails", f"{STREAM}: told to fail", 0),
                ("1 8 malformed", f"{STREAM}: the runtime sent no valid ModelStreamInferResponse", 1),
                ("0 8 on", f"{STREAM}: the runtime sent more after its final response", 0),
                ("2 8 aborts", f"{INFER}: ABORTED: enough", 2)):
            for _, client in self.each():
                *pieces, last = self.ask(client, told).read_all()
                self.assertEqual((self.numbers(pieces), last.error_message), (list(range(count)), error))
                self.assertTrue(is_final(last))

    def test_a_long_error_is_cut_between_characters(self):
        for _, client in self.each():
            last, = self.ask(client, "0 8 long").read_all()
            self.assertRegex(last.error_message, f"^{STREAM}: xä{{100,}}$")

    def test_unary_callers(self):
        for _, client in self.each():
            self.assertEqual(failure(client.start_raw("m", INPUT)),
                             (Code.UNIMPLEMENTED, f"{INFER}: UNIMPLEMENTED: {REFUSAL}"))

    def test_a_caller_that_goes(self):
        for _, client in self.each():
            type(self).over = threading.Event()
            stream = self.ask(client, "1 8 waits")
            self.assertEqual(self.numbers([stream.read()]), [0])
            stream.call.cancel()
            self.assertTrue(self.over.wait(WAIT_SECONDS), "the runtime has not heard of it")


if __name__ == "__main__":
    main()
