# SPDX-License-Identifier: Apache-2.0
"""LitServe beside a node, with the same model in Python (servers.py)."""

import peers
import servers


class LitServe(servers.Beside):
    path = "/predict"
    arguments = ("{port}",)
    code = f"""
import litserve
import sys

class Model(litserve.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request):
        return request["x"]

    def batch(self, inputs):
        return numpy.array(inputs, "f4")

    def predict(self, x):
        return x @ W

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {{"y": output.tolist()}}

if __name__ == "__main__":
    api = Model(max_batch_size={servers.BATCH}, batch_timeout={servers.WAIT_MS / 1000})
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device={servers.WORKERS})
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
"""


if __name__ == "__main__":
    peers.main()
