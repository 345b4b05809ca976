# SPDX-License-Identifier: Apache-2.0
"""Triton's Python clients against a node. Checks have the names of Triton's example clients that do the
same calls with Triton's `simple` model; ours echoes, and classifies digits."""

import asyncio
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import unittest

import ml_dtypes
import numpy as np
import peers
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

sys.path[:0] = [str(peers.SOURCE / "clients" / "python"), str(peers.SOURCE / "tests" / "integration")]
import grpc  # noqa: E402
import shoal  # noqa: E402
from shoal_fixture import EXAMPLES  # noqa: E402
from shoal_serve import Serve  # noqa: E402

NUMBERS = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.full((1, 16), -1, dtype=np.int32)
TEXTS = np.array([[b"", b"a\0", b"\xff\xfe", "häns".encode()]], dtype=object)
IMAGES, SHOWN = peers.digits()


def tensors(client, *arrays, **options):
    made = []
    for i, array in enumerate(arrays):
        made.append(client.InferInput(f"INPUT{i}", list(array.shape), np_to_triton_dtype(array.dtype)))
        made[-1].set_data_from_numpy(array, **options)
    return made


def image_input(client, **options):
    images = np.array(IMAGES, np.float32)
    made = client.InferInput("image", list(images.shape), "FP32")
    made.set_data_from_numpy(images, **options)
    return made


class Both(unittest.TestCase):
    def assert_equal(self, result, *arrays):
        for i, array in enumerate(arrays):
            got = result.as_numpy(f"INPUT{i}")
            self.assertEqual((got.shape, got.dtype), (array.shape, array.dtype))
            np.testing.assert_array_equal(got, array)

    def assert_digits(self, result):
        """The answer is ours, and that of plain JSON."""
        with shoal.Client(peers.GRPC) as ours:
            wanted = ours.infer("digits", IMAGES)
        labels, probabilities = peers.digits_answer(IMAGES)
        np.testing.assert_array_equal(result.as_numpy("label"), wanted["label"])
        np.testing.assert_array_equal(result.as_numpy("label").reshape(-1), labels)
        np.testing.assert_array_equal(result.as_numpy("probabilities"), wanted["probabilities"])
        np.testing.assert_allclose(result.as_numpy("probabilities").reshape(-1), probabilities,
                                   rtol=1e-6)
        self.assertGreaterEqual(np.mean(result.as_numpy("label").reshape(-1) == SHOWN), 0.9)

    def control(self, names, config):
        self.assertIn("simple", names())
        self.assertEqual((config["max_batch_size"], config["input"][0]["data_type"]), (8, "TYPE_INT32"))
        self.client.load_model("simple")
        self.assertTrue(self.client.is_model_ready("simple"))
        with self.assertRaises(InferenceServerException) as caught:
            self.client.load_model("wrong_model_name")
        self.assertIn("failed to load", caught.exception.message())
        self.client.unload_model("simple")
        self.assertFalse(self.client.is_model_ready("simple"))
        self.client.load_model("simple")

    def assert_unknown(self, call):
        with self.assertRaises(InferenceServerException) as caught:
            call()
        self.assertIn("wrong_model_name", caught.exception.message())


class Grpc(Both):
    def setUp(self):
        self.client = grpcclient.InferenceServerClient(peers.GRPC)
        self.addCleanup(self.client.close)

    def check_simple_grpc_infer_client(self):
        outputs = [grpcclient.InferRequestedOutput("INPUT1"), grpcclient.InferRequestedOutput("INPUT0")]
        for wanted, keys in ((outputs, {}), (None, {"headers": {"test": "1"}}), (None, {"priority": 1}),
                             (None, {"compression_algorithm": "gzip"}), (None, {"timeout": 60000000}),
                             (None, {"compression_algorithm": "deflate"}), (None, {"request_id": "7"}),
                             (None, {"parameters": {"a": 1, "b": "c", "d": True}})):
            result = self.client.infer("echo", tensors(grpcclient, NUMBERS, ONES), outputs=wanted, **keys)
            self.assert_equal(result, NUMBERS, ONES)
            self.assertEqual(result.get_response().id, keys.get("request_id", ""))
        self.assertEqual(len(self.client.get_inference_statistics("echo").model_stats), 1)
        self.assert_unknown(lambda: self.client.infer("wrong_model_name", tensors(grpcclient, NUMBERS)))

    def check_simple_grpc_string_infer_client(self):
        self.assert_equal(self.client.infer("echo", tensors(grpcclient, TEXTS)), TEXTS)
        text = np.array([[str(x) for x in range(16)]], dtype=object)
        result = self.client.infer("echo", tensors(grpcclient, text)).as_numpy("INPUT0")
        self.assertEqual([int(x) for x in result[0]], list(range(16)))

    def check_simple_grpc_async_infer_client(self):
        answers = queue.Queue()
        for number in range(20):
            self.client.async_infer("echo", tensors(grpcclient, NUMBERS + number),
                                    lambda result, error, n=number: answers.put((n, result, error)))
        for _ in range(20):
            number, result, error = answers.get(timeout=peers.SECONDS)
            self.assertIsNone(error)
            self.assert_equal(result, NUMBERS + number)
        lingers = grpcclient.InferInput("say", [1], "BYTES")
        lingers.set_data_from_numpy(np.array([b"linger triton"], dtype=object))
        call = self.client.async_infer("puppet", [lingers], lambda result, error: answers.put(error))
        call.cancel()
        self.assertIn("cancel", str(answers.get(timeout=peers.SECONDS)).lower())

    def check_simple_grpc_aio_infer_client(self):
        async def run():
            async with grpcaio.InferenceServerClient(peers.GRPC) as client:
                results = await asyncio.gather(*(
                    client.infer("echo", tensors(grpcclient, NUMBERS + i)) for i in range(20)))
                for i, result in enumerate(results):
                    self.assert_equal(result, NUMBERS + i)
                self.assertTrue(await client.is_server_ready())
        asyncio.run(run())

    def check_simple_grpc_health_metadata(self):
        """but that the server's name is shoal"""
        self.assertTrue(self.client.is_server_live() and self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("digits"))
        self.assertEqual(self.client.get_server_metadata().name, "shoal")
        self.assertEqual(self.client.get_server_metadata(as_json=True)["name"], "shoal")
        metadata = self.client.get_model_metadata("digits")
        self.assertEqual((metadata.name, metadata.inputs[0].name, metadata.inputs[0].datatype),
                         ("digits", "image", "FP32"))
        self.assert_unknown(lambda: self.client.get_model_metadata("wrong_model_name"))

    def check_simple_grpc_keepalive_client(self):
        keepalive = grpcclient.KeepAliveOptions(keepalive_time_ms=10000, keepalive_timeout_ms=20000,
                                                keepalive_permit_without_calls=True)
        with grpcclient.InferenceServerClient(peers.GRPC, keepalive_options=keepalive) as client:
            self.assert_equal(client.infer("echo", tensors(grpcclient, NUMBERS)), NUMBERS)

    def check_simple_grpc_custom_args_client(self):
        options = [("grpc.max_receive_message_length", 1 << 25), ("grpc.primary_user_agent", "custom")]
        with grpcclient.InferenceServerClient(peers.GRPC, channel_args=options) as client:
            self.assert_equal(client.infer("echo", tensors(grpcclient, NUMBERS)), NUMBERS)

    def infer_stub(self, datatype, shape, raw=None, **contents):
        request = service_pb2.ModelInferRequest(model_name="echo")
        tensor = request.inputs.add(name="x", datatype=datatype, shape=shape)
        if raw is None:
            for member, values in contents.items():
                getattr(tensor.contents, member).extend(values)
        else:
            request.raw_input_contents.append(raw)
        with grpc.insecure_channel(peers.GRPC) as channel:
            answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        return answer.raw_output_contents[0]

    def check_grpc_client(self):
        self.assertEqual(self.client.get_model_config("digits").config.input[0].name, "image")
        self.assertEqual(self.infer_stub("INT32", [1, 16], NUMBERS.tobytes()), NUMBERS.tobytes())

    def check_grpc_explicit_int_content_client(self):
        self.assertEqual(self.infer_stub("INT32", [1, 16], int_contents=range(16)), NUMBERS.tobytes())

    def check_grpc_explicit_int8_content_client(self):
        self.assertEqual(self.infer_stub("INT8", [2], int_contents=[-1, 5]), b"\xff\5")

    def check_grpc_explicit_byte_content_client(self):
        self.assertEqual(self.infer_stub("BYTES", [2], bytes_contents=[b"a\0", b""]),
                         b"\2\0\0\0a\0\0\0\0\0")

    def check_grpc_every_datatype(self):
        """as our client sends and receives them"""
        with shoal.Client(peers.GRPC) as ours:
            for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
                for shape in ((3,), (0,), (2, 3, 1)):
                    array = np.arange(np.prod(shape)).reshape(shape).astype(code)
                    result = self.client.infer("echo", tensors(grpcclient, array))
                    self.assert_equal(result, array)
                    np.testing.assert_array_equal(ours.infer("echo", array), result.as_numpy("INPUT0"))
            array = np.array([[1, -2.5, 0.25]], ml_dtypes.bfloat16)
            tensor = grpcclient.InferInput("INPUT0", [1, 3], "BF16")
            tensor.set_data_from_numpy(array)
            result = self.client.infer("echo", [tensor]).as_numpy("INPUT0").astype(np.float32)
            np.testing.assert_array_equal(ours.infer("echo", array), result)
            np.testing.assert_array_equal(ours.infer("echo", shoal.Tensor(result, "BF16")), result)

    def check_grpc_digits(self):
        self.assert_digits(self.client.infer("digits", [image_input(grpcclient)]))

    def check_grpc_client_timeout(self):
        lingers = grpcclient.InferInput("say", [1], "BYTES")
        lingers.set_data_from_numpy(np.array([b"linger timeout"], dtype=object))
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("puppet", [lingers], client_timeout=0.3)
        self.assertIn("DEADLINE_EXCEEDED", str(caught.exception.status()))


    def check_simple_grpc_model_control(self):
        """but for the number of models"""
        self.control(lambda: [one.name for one in self.client.get_model_repository_index().models],
                     self.client.get_model_config("simple", as_json=True)["config"])


class Http(Both):
    def setUp(self):
        self.client = httpclient.InferenceServerClient(peers.HTTP, concurrency=8)
        self.addCleanup(self.client.close)

    def check_simple_http_infer_client(self):
        for binary in ((True, True), (False, True), (False, False)):
            inputs = [tensors(httpclient, array, binary_data=way)[0]
                      for array, way in zip((NUMBERS, NUMBERS), binary)]
            inputs[1]._name = "INPUT1"
            outputs = [httpclient.InferRequestedOutput(f"INPUT{i}", binary_data=way)
                       for i, way in enumerate(reversed(binary))]
            for wanted in (outputs, None):
                result = self.client.infer("echo", inputs, outputs=wanted, headers={"Test": "1"},
                                           query_params={"test_1": 1, "test_2": 2}, request_id="7")
                self.assert_equal(result, NUMBERS, NUMBERS)
                self.assertEqual(result.get_response()["id"], "7")
        self.assertEqual(len(self.client.get_inference_statistics("echo")["model_stats"]), 1)
        self.assert_unknown(lambda: self.client.infer("wrong_model_name", tensors(httpclient, NUMBERS)))

    def check_simple_http_infer_client_compressed(self):
        for algorithm in ("gzip", "deflate"):
            result = self.client.infer("echo", tensors(httpclient, NUMBERS),
                                       request_compression_algorithm=algorithm,
                                       response_compression_algorithm=algorithm)
            self.assert_equal(result, NUMBERS)

    def check_simple_http_string_infer_client(self):
        self.assert_equal(self.client.infer("echo", tensors(httpclient, TEXTS)), TEXTS)
        text = np.array([["a", "häns", ""]], dtype=object)
        for binary in (True, False):
            result = self.client.infer("echo", tensors(httpclient, text, binary_data=binary))
            self.assert_equal(result, np.array([["a".encode(), "häns".encode(), b""]], dtype=object))

    def check_simple_http_async_infer_client(self):
        calls = [self.client.async_infer("echo", tensors(httpclient, NUMBERS + i)) for i in range(20)]
        for i, call in enumerate(calls):
            self.assert_equal(call.get_result(timeout=peers.SECONDS), NUMBERS + i)

    def check_simple_http_aio_infer_client(self):
        async def run():
            async with httpaio.InferenceServerClient(peers.HTTP) as client:
                results = await asyncio.gather(*(
                    client.infer("echo", tensors(httpclient, NUMBERS + i)) for i in range(20)))
                for i, result in enumerate(results):
                    self.assert_equal(result, NUMBERS + i)
        asyncio.run(run())

    def check_simple_http_health_metadata(self):
        """but that the server's name is shoal"""
        self.assertTrue(self.client.is_server_live(query_params={"test_1": 1}))
        self.assertTrue(self.client.is_server_ready() and self.client.is_model_ready("digits"))
        self.assertEqual(self.client.get_server_metadata()["name"], "shoal")
        metadata = self.client.get_model_metadata("digits", query_params={"test_1": 1})
        self.assertEqual((metadata["name"], metadata["inputs"][0]["name"]), ("digits", "image"))
        self.assert_unknown(lambda: self.client.get_model_metadata("wrong_model_name"))

    def check_simple_http_model_control(self):
        """but for the number of models"""
        self.control(lambda: [one["name"] for one in self.client.get_model_repository_index()],
                     self.client.get_model_config("simple"))

    def check_http_every_datatype(self):
        for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
            for shape in ((3,), (0,), (2, 3, 1)):
                array = np.arange(np.prod(shape)).reshape(shape).astype(code)
                for binary in (True,) if code == "f2" else (True, False):
                    result = self.client.infer("echo", tensors(httpclient, array, binary_data=binary))
                    self.assert_equal(result, array)

    def check_http_digits(self):
        for binary in (True, False):
            self.assert_digits(self.client.infer("digits", [image_input(httpclient, binary_data=binary)]))


class Documents(unittest.TestCase):
    def check_docs_serve(self):
        """the four lines of docs/serve.md, and `shoald serve`"""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-interop."))
        models = pathlib.Path(folder) / "models"
        models.mkdir()
        shutil.copy(EXAMPLES / "digits" / "digits.ubj", models)
        with Serve(folder, models) as shoald:
            program = peers.documented("serve.md", "tritonclient-example")
            done = subprocess.run([sys.executable, "-c", program.replace("localhost:8033", shoald.target)],
                                  capture_output=True, text=True, timeout=peers.SECONDS, check=False)
        self.assertEqual(done.stdout, program.rsplit("# ", 1)[1], done.stderr)


if __name__ == "__main__":
    peers.main()
