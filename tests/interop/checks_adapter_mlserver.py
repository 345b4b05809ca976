# SPDX-License-Identifier: Apache-2.0
"""MLServer, managed by a node's built-in adapter: linear models of scikit-learn."""

import pathlib
import sys
import unittest

import joblib
import managed
import numpy as np
import peers
from sklearn.linear_model import LinearRegression
from shoal_fixture import free_port


class Mlserver(managed.Managed, unittest.TestCase):
    kind, format = "mlserver", "sklearn"

    def command(self):
        return [pathlib.Path(sys.executable).parent / "mlserver", "start", self.folder]

    def environment(self):
        return {"MLSERVER_LOAD_MODELS_AT_STARTUP": "false", "MLSERVER_MODEL_REPOSITORY_ROOT": str(self.repository),
                "MLSERVER_HOST": "127.0.0.1", "MLSERVER_GRPC_PORT": str(self.port),
                "MLSERVER_HTTP_PORT": str(self.http_port), "MLSERVER_METRICS_PORT": str(free_port()),
                "MLSERVER_PARALLEL_WORKERS": "0"}

    def write(self, path, factor):
        numbers = np.arange(9.0).reshape(-1, 1)
        joblib.dump(LinearRegression().fit(numbers, factor * numbers[:, 0]), path)

    def broken(self, path):
        path.write_bytes(b"not a model")

    def request(self, value):
        return "x", "FP32", [1, 1], managed.floats(value)

    def value(self, contents):
        return managed.real(contents, "<f" if len(contents) == 4 else "<d")


if __name__ == "__main__":
    peers.main()
