# SPDX-License-Identifier: Apache-2.0
"""MLServer, managed by a node's built-in adapter, and run by the node from KServe's manifest: linear models
of scikit-learn."""

import os
import pathlib
import signal
import sys
import tempfile
import unittest

import joblib
import managed
import numpy as np
import peers
from sklearn.linear_model import LinearRegression
from shoal_fixture import free_port, read_proc, wait_until
from shoal_hosting import Case, processes, service


SERVER = pathlib.Path(sys.executable).parent / "mlserver"
# KServe's mlserver-1.x, but for the ports, a mark, and workers that some versions of Python break.
MANIFEST = """
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: mlserver-1.x
spec:
  supportedModelFormats:
    - {name: sklearn, version: "0", autoSelect: true}
    - {name: sklearn, version: "1", autoSelect: true}
    - {name: xgboost, version: "1", autoSelect: true}
  protocolVersions: [grpc-v2]
  multiModel: true
  grpcEndpoint: "port:8085"
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


def write_model(path, factor):
    numbers = np.arange(9.0).reshape(-1, 1)
    joblib.dump(LinearRegression().fit(numbers, factor * numbers[:, 0]), path)


class Hosted(Case):
    def ask(self, vmodel):
        call = self.registrar.start_infer("", (("mm-vmodel-id", vmodel),),
                                          (("x", "FP32", [1, 1], managed.floats(5.0)),), timeout=10)
        if call.exception() is not None:
            return None
        contents, = call.result().raw_output_contents
        return round(managed.real(contents, "<f" if len(contents) == 4 else "<d"), 3)

    def check_a_manifest_of_kserve(self):
        """from the manifest to answers, kill -9 of the server, and its end"""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-interop.")))
        (folder / "files").mkdir()
        self.start(images={"docker.io/seldonio/mlserver": f"{SERVER} start /models/_mlserver_models"},
                   node={"files_root": str(folder / "files"), "models_cache": str(folder / "cache")})
        manifest = MANIFEST
        for name, value in (("grpc", self.port), ("http", free_port()), ("metrics", free_port()),
                            ("marker", self.marker)):
            manifest = manifest.replace(f"{{{name}}}", str(value))
        for factor, name in enumerate(("one", "two"), 1):
            write_model(folder / "files" / name, factor)
        self.apply(manifest, service("one", "sklearn", "one"), service("two", "sklearn", "two"))
        for factor, name in enumerate(("one", "two"), 1):
            wait_until(lambda factor=factor, name=name: self.ask(name) == 5.0 * factor,
                       lambda name=name: f"{name} to answer\n{self.at.stderr}")
        keeper, = [pid for pid in processes(self.marker) if "--keep" in read_proc(pid, "cmdline")]
        server, *_ = map(int, read_proc(keeper, f"task/{keeper}/children").split())
        os.kill(server, signal.SIGKILL)
        self.at.wait_log("gRPC server running", 2)  # takes its time
        self.wait_state("mlserver-1.x", "Ready", restarts="^1$", message="ended by signal 9")
        for factor, name in enumerate(("one", "two"), 1):
            wait_until(lambda factor=factor, name=name: self.ask(name) == 5.0 * factor, f"{name} to answer again")
        repository, = (folder / "cache" / "runtimes").iterdir()
        self.assertEqual(len(list(repository.glob("*__isvc-*"))), 2)
        self.apply(manifest.replace("multiModel: true", "multiModel: true\n  disabled: true"))
        self.wait_gone()
        wait_until(lambda: not list(repository.glob("*__isvc-*")), "the folder to be cleared")


class Mlserver(managed.Managed, unittest.TestCase):
    kind, format = "mlserver", "sklearn"

    def command(self):
        return [SERVER, "start", self.folder]

    def environment(self):
        return {"MLSERVER_LOAD_MODELS_AT_STARTUP": "false", "MLSERVER_MODEL_REPOSITORY_ROOT": str(self.repository),
                "MLSERVER_HOST": "127.0.0.1", "MLSERVER_GRPC_PORT": str(self.port),
                "MLSERVER_HTTP_PORT": str(self.http_port), "MLSERVER_METRICS_PORT": str(free_port()),
                "MLSERVER_PARALLEL_WORKERS": "0"}

    def write(self, path, factor):
        write_model(path, factor)

    def broken(self, path):
        path.write_bytes(b"not a model")

    def request(self, value):
        return "x", "FP32", [1, 1], managed.floats(value)

    def value(self, contents):
        return managed.real(contents, "<f" if len(contents) == 4 else "<d")


if __name__ == "__main__":
    peers.main()
