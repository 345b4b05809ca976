# SPDX-License-Identifier: Apache-2.0
"""A node that `shoald serve` runs, for tests."""

import pathlib

from shoal_fixture import BIN, Shoald, free_port


class Serve(Shoald):
    """`shoald serve PATH...` instead of `shoald CONFIG`."""

    def __init__(self, folder, *paths):
        super().__init__(pathlib.Path("unused"), folder=folder, listen=[])
        self.http = f"127.0.0.1:{free_port()}"
        self.target = f"127.0.0.1:{free_port()}"
        self.metrics = f"127.0.0.1:{free_port()}"
        self.dashboard = f"127.0.0.1:{free_port()}"
        self.command = [str(BIN / "shoald"), "serve", "--counters", str(self.counters)]
        for name, address in (("http", self.http), ("grpc", self.target), ("metrics", self.metrics),
                              ("dashboard", self.dashboard)):
            self.command += [f"--{name}-port", address.rpartition(":")[2]]
        self.command += map(str, paths)

    def wait_ready(self):
        self.wait_log("shoald serves gRPC on")
        return self
