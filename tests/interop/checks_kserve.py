# SPDX-License-Identifier: Apache-2.0
"""KServe's inference clients against a node, over REST and gRPC: typed and binary contents."""

import asyncio
import unittest

import grpc
import httpx
import numpy as np
import peers
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

IMAGES, _ = peers.digits()


def request(name, array, binary, model="echo", datatype=None):
    names = {"f": f"FP{8 * array.itemsize}", "i": f"INT{8 * array.itemsize}", "b": "BOOL", "O": "BYTES",
             "u": f"UINT{8 * array.itemsize}"}
    tensor = InferInput(name, list(array.shape), datatype or names[array.dtype.kind])
    tensor.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[tensor], request_id="7")


class Kserve(unittest.TestCase):
    def run_rest(self, test):
        async def run():
            async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
                return await test(client, f"http://{peers.HTTP}")
        return asyncio.run(run())

    def run_grpc(self, test):
        async def run():
            async with InferenceGRPCClient(peers.GRPC) as client:
                return await test(client)
        return asyncio.run(run())

    def assert_digits(self, answer):
        labels, probabilities = peers.digits_answer(IMAGES)
        outputs = {output.name: output.as_numpy() for output in answer.outputs}
        np.testing.assert_array_equal(outputs["label"].reshape(-1), labels)
        np.testing.assert_allclose(outputs["probabilities"].reshape(-1), probabilities, rtol=1e-6)
        self.assertEqual(answer.id, "7")

    def check_rest_health(self):
        async def test(client, url):
            self.assertTrue(await client.is_server_live(url) and await client.is_server_ready(url)
                            and await client.is_model_ready(url, "digits"))
        self.run_rest(test)

    def check_rest_digits(self):
        async def test(client, url):
            for binary in (True, False):
                self.assert_digits(await client.infer(
                    url, request("image", np.array(IMAGES, "f4"), binary, "digits"), "digits"))
        self.run_rest(test)

    def check_rest_errors(self):
        async def test(client, url):
            with self.assertRaises(httpx.HTTPStatusError) as caught:
                await client.infer(url, request("x", np.zeros(1), True), "nobody")
            self.assertEqual(caught.exception.response.status_code, 404)
        self.run_rest(test)

    def check_grpc_health(self):
        async def test(client):
            self.assertTrue(await client.is_server_live() and await client.is_server_ready()
                            and await client.is_model_ready("digits"))
        self.run_grpc(test)

    def check_grpc_digits(self):
        async def test(client):
            for binary in (True, False):
                self.assert_digits(await client.infer(
                    request("image", np.array(IMAGES, "f4"), binary, "digits")))
        self.run_grpc(test)

    def check_grpc_datatypes(self):
        async def test(client):
            for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"):
                array = np.arange(6).reshape(2, 3).astype(code)
                for binary in (True, False):
                    output, = (await client.infer(request("x", array, binary))).outputs
                    np.testing.assert_array_equal(output.as_numpy(), array)
            texts = np.array([b"a", b"", b"\xff"], dtype=object)
            output, = (await client.infer(request("x", texts, True))).outputs
            np.testing.assert_array_equal(output.as_numpy(), texts)
        self.run_grpc(test)

    def check_grpc_errors(self):
        async def test(client):
            with self.assertRaises(grpc.RpcError) as caught:
                await client.infer(request("x", np.zeros(1), True, "nobody"))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.run_grpc(test)


if __name__ == "__main__":
    peers.main()
