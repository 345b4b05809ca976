# SPDX-License-Identifier: Apache-2.0
"""Server reflection: a client without any proto file can find and call what there is.

Plays such a client: of the protocol it knows the reflection messages only; everything else it asks the
node for, builds the message classes from the answer, and runs an inference with them. v1 and v1alpha.
ctest: timeout=120
"""

import queue
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import shoal_fixture
from shoal_client import Client
from shoal_fixture import Shoald, node, pipeline, stage

VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
SERVICES = {"inference.GRPCInferenceService", "grpc.health.v1.Health",
            *(f"{version}.ServerReflection" for version in VERSIONS)}


def message_class(pool, name):
    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


class Stream:
    """One reflection stream: asks, and reads the answer to each question."""

    def __init__(self, client, version):
        request, stub = client.stub("ServerReflectionInfo", f"{version}.ServerReflection",
                                    "stream_stream")
        self.request = request
        self.questions = queue.SimpleQueue()
        self.answers = stub(iter(self.questions.get, None), timeout=shoal_fixture.WAIT_SECONDS)

    def ask(self, **question):
        message = self.request(host="localhost", **question)
        self.questions.put(message)
        answer = next(self.answers)
        assert answer.original_request == message, f"{answer} is no answer to {message}"
        return answer

    def files(self, **question):
        found = self.ask(**question).file_descriptor_response.file_descriptor_proto
        return [descriptor_pb2.FileDescriptorProto.FromString(data) for data in found]

    def end(self):
        self.questions.put(None)
        rest = list(self.answers)
        assert rest == [], f"more answers than questions: {rest}"
        assert self.answers.code() == grpc.StatusCode.OK, self.answers.details()


class TestReflection(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("echo", stage("libecho.so"), slots=8), message_mib=1)))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def each(self):
        for version in VERSIONS:
            with self.subTest(version):
                stream = Stream(self.client, version)
                yield stream
                stream.end()

    def test_list(self):
        for stream in self.each():
            names = [one.name for one in stream.ask(list_services="*").list_services_response.service]
            self.assertEqual(len(names), len(set(names)), names)
            self.assertEqual(set(names), SERVICES)

    def test_file_by_symbol(self):
        for stream in self.each():
            for symbol in ("inference.GRPCInferenceService",
                           "inference.GRPCInferenceService.ModelInfer",
                           "inference.ModelInferRequest",
                           "inference.ModelInferRequest.InferInputTensor",
                           "inference.InferTensorContents"):
                names = [file.name for file in stream.files(file_containing_symbol=symbol)]
                self.assertIn("inference/open_inference.proto", names, symbol)
            for service in SERVICES:
                self.assertTrue(stream.files(file_containing_symbol=service), service)

    def test_file_by_name(self):
        for stream in self.each():
            for file in stream.files(file_containing_symbol="grpc.health.v1.Health"):
                again = stream.files(file_by_filename=file.name)
                self.assertIn(file, again)

    def test_unknown_symbols(self):
        """An answer with an error code, and the stream goes on."""
        for stream in self.each():
            for question in ({"file_containing_symbol": "nobody.Service"},
                             {"file_by_filename": "nobody.proto"},
                             {"file_containing_symbol": ""},
                             {"file_containing_symbol": "inference.GRPCInferenceService.Nobody"},
                             {"all_extension_numbers_of_type": "nobody.Message"}):
                answer = stream.ask(**question)
                self.assertEqual(answer.error_response.error_code,
                                 grpc.StatusCode.NOT_FOUND.value[0], f"{question}: {answer}")
            self.assertTrue(stream.ask(list_services="").list_services_response.service)

    def test_call_without_proto_files(self):
        for stream in self.each():
            pool = descriptor_pool.DescriptorPool()
            for file in stream.files(file_containing_symbol="inference.GRPCInferenceService"):
                pool.AddSerializedFile(file.SerializeToString())
            method = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name[
                "ModelInfer"]
            request = message_class(pool, method.input_type.full_name)
            response = message_class(pool, method.output_type.full_name)
            infer = self.client.channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString)
            answer = infer(request(model_name="echo",
                                   inputs=[{"name": "x", "datatype": "INT8", "shape": [3]}],
                                   raw_input_contents=[b"abc"]), timeout=30)
            self.assertEqual(list(answer.raw_output_contents), [b"abc"])

    def test_streams_that_are_left(self):
        """Cancelled, or without a single question."""
        for version in VERSIONS:
            streams = [Stream(self.client, version) for _ in range(20)]
            for i, stream in enumerate(streams):
                if i % 2:
                    stream.ask(list_services="")
                stream.answers.cancel()
                stream.questions.put(None)
            Stream(self.client, version).end()


if __name__ == "__main__":
    shoal_fixture.main()
