# SPDX-License-Identifier: Apache-2.0
"""Mosec beside a node, with the same model in Python (servers.py)."""

import peers
import servers


class Mosec(servers.Beside):
    path = "/inference"
    arguments = ("--address", "127.0.0.1", "--port", "{port}")
    code = f"""
import mosec

class Model(mosec.Worker):
    def forward(self, data):
        return [{{"y": row}} for row in (numpy.array([one["x"] for one in data], "f4") @ W).tolist()]

if __name__ == "__main__":
    server = mosec.Server()
    server.append_worker(Model, num={servers.WORKERS}, max_batch_size={servers.BATCH},
                         max_wait_time={servers.WAIT_MS})
    server.run()
"""


if __name__ == "__main__":
    peers.main()
