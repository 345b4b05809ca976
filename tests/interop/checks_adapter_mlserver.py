# SPDX-License-Identifier: Apache-2.0
"""MLServer, managed by a node's built-in adapter, and run by the node from KServe's manifest: linear models
of scikit-learn."""

import pathlib
import sys
import unittest

import joblib
import managed
import numpy as np
import peers
from sklearn.linear_model import LinearRegression
from shoal_fixture import free_port

SERVER = pathlib.Path(sys.executable).parent / "mlserver"
# KServe's mlserver-1.x, but for the ports, a mark, and workers that some versions of Python break.
MANIFEST = """
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: "{name}"
spec:
  supportedModelFormats:
    - {name: sklearn, version: "0", autoSelect: true}
    - {name: sklearn, version: "1", autoSelect: true}
    - {name: xgboost, version: "1", autoSelect: true}
  protocolVersions: [grpc-v2]
  multiModel: true
  grpcEndpoint: "port:{adapter}"
  grpcDataEndpoint: "port:{grpc}"
  containers:
    - name: mlserver
      image: docker.io/seldonio/mlserver:1.3.2
      env:
        - {name: MLSERVER_MODELS_DIR, value: "/models/_mlserver_models/"}
        - {name: MLSERVER_GRPC_PORT, value: "{grpc}"}
        - {name: MLSERVER_HTTP_PORT, value: "{http}"}
        - {name: MLSERVER_METRICS_PORT, value: "{metrics}"}
        - {name: MLSERVER_LOAD_MODELS_AT_STARTUP, value: "false"}
        - {name: MLSERVER_MODEL_NAME, value: dummy-model-fixme}
        - {name: MLSERVER_HOST, value: "127.0.0.1"}
        - {name: MLSERVER_GRPC_MAX_MESSAGE_LENGTH, value: "-1"}
        - {name: MLSERVER_PARALLEL_WORKERS, value: "0"}
        - {name: MARKER, value: "{marker}"}
      resources:
        requests: {cpu: 500m, memory: 1Gi}
        limits: {cpu: "5", memory: 16Gi}
  builtInAdapter:
    serverType: mlserver
    runtimeManagementPort: {grpc}
    memBufferBytes: 134217728
    modelLoadingTimeoutMillis: 90000
"""


class Models:
    kind, format = "mlserver", "sklearn"

    def write(self, path, factor):
        numbers = np.arange(9.0).reshape(-1, 1)
        joblib.dump(LinearRegression().fit(numbers, factor * numbers[:, 0]), path)

    def broken(self, path):
        path.write_bytes(b"not a model")

    def request(self, value):
        return "x", "FP32", [1, 1], managed.floats(value)

    def value(self, contents):
        return managed.real(contents, "<f" if len(contents) == 4 else "<d")


class Hosted(Models, managed.Hosted):
    manifest, started = MANIFEST, "gRPC server running"
    mesh = {"images": {"docker.io/seldonio/mlserver": f"{SERVER} start /models/_mlserver_models"}}


class Mlserver(Models, managed.Managed, unittest.TestCase):
    def command(self):
        return [SERVER, "start", self.folder]

    def environment(self):
        return {"MLSERVER_LOAD_MODELS_AT_STARTUP": "false", "MLSERVER_MODEL_REPOSITORY_ROOT": str(self.repository),
                "MLSERVER_HOST": "127.0.0.1", "MLSERVER_GRPC_PORT": str(self.port),
                "MLSERVER_HTTP_PORT": str(self.http_port), "MLSERVER_METRICS_PORT": str(free_port()),
                "MLSERVER_PARALLEL_WORKERS": "0"}


if __name__ == "__main__":
    peers.main()
