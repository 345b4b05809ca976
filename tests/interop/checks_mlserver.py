# SPDX-License-Identifier: Apache-2.0
"""MLServer's types and codecs against a node: requests as MLServer's users build them, over REST and over
gRPC, whose answers its codecs must read."""

import unittest

import grpc
import numpy as np
import peers
import requests
from mlserver.codecs import Base64Codec, NumpyCodec, NumpyRequestCodec, StringCodec
from mlserver.grpc import converters, dataplane_pb2_grpc
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestOutput

IMAGES, _ = peers.digits()
TEXTS = ["a", "", "häns"]


class Mlserver(unittest.TestCase):
    def rest(self, model, *inputs, outputs=None):
        request = InferenceRequest(id="7", inputs=list(inputs), outputs=outputs)
        with requests.Session() as session:
            session.trust_env = False
            answer = session.post(f"http://{peers.HTTP}/v2/models/{model}/infer",
                                  data=request.model_dump_json(exclude_none=True),
                                  headers={"Content-Type": "application/json"}, timeout=peers.SECONDS)
        self.assertEqual(answer.status_code, 200, answer.text)
        return InferenceResponse.model_validate_json(answer.content)

    def grpc(self, model, *inputs):
        request = converters.ModelInferRequestConverter.from_types(
            InferenceRequest(id="7", inputs=list(inputs)), model_name=model, model_version=None)
        with grpc.insecure_channel(peers.GRPC) as channel:
            answer = dataplane_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
        return converters.ModelInferResponseConverter.to_types(answer)

    def assert_digits(self, call):
        answer = call("digits", NumpyCodec.encode_input("image", np.array(IMAGES, "f4")))
        labels, probabilities = peers.digits_answer(IMAGES)
        outputs = {output.name: NumpyCodec.decode_output(output) for output in answer.outputs}
        np.testing.assert_array_equal(outputs["label"].reshape(-1), labels)
        np.testing.assert_allclose(outputs["probabilities"].reshape(-1), probabilities, rtol=1e-6)
        self.assertEqual(answer.id, "7")

    def assert_texts(self, call):
        output, = call("echo", StringCodec.encode_input("x", TEXTS)).outputs
        self.assertEqual(StringCodec.decode_output(output), TEXTS)

    def assert_datatypes(self, call):
        for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"):
            array = np.arange(6).reshape(2, 3).astype(code)
            output, = call("echo", NumpyCodec.encode_input("x", array)).outputs
            np.testing.assert_array_equal(NumpyCodec.decode_output(output), array)

    def check_rest_digits(self):
        self.assert_digits(self.rest)

    def check_rest_texts(self):
        self.assert_texts(self.rest)

    def check_rest_datatypes(self):
        self.assert_datatypes(self.rest)

    def check_rest_base64(self):
        base64 = Parameters(content_type="base64")
        output, = self.rest("echo", Base64Codec.encode_input("x", [b"\xff\0", b""]),
                            outputs=[RequestOutput(name="x", parameters=base64)]).outputs
        self.assertEqual(Base64Codec.decode_output(output), [b"\xff\0", b""])

    def check_rest_request_codec(self):
        request = NumpyRequestCodec.encode_request(np.arange(3.0))
        output, = self.rest("echo", *request.inputs).outputs
        np.testing.assert_array_equal(NumpyCodec.decode_output(output).reshape(-1), np.arange(3.0))

    def check_grpc_digits(self):
        self.assert_digits(self.grpc)

    def check_grpc_texts(self):
        self.assert_texts(self.grpc)

    def check_grpc_datatypes(self):
        self.assert_datatypes(self.grpc)


if __name__ == "__main__":
    peers.main()
