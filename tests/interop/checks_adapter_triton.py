# SPDX-License-Identifier: Apache-2.0
"""Triton, of the package nvidia-pytriton, managed by a node's built-in adapter, and run by the node from
KServe's manifest: models in Python."""

import pathlib
import platform
import shutil
import sys
import unittest

import managed
import peers
import pytriton

TRITON = pathlib.Path(pytriton.__file__).parent / "tritonserver"
LIBS = TRITON.parents[1] / "nvidia_pytriton.libs"
CONFIG = """name: "another"
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
MODEL = """import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [pb.InferenceResponse([pb.Tensor("y", one * one.dtype.type(FACTOR))]) for one in inputs]
"""


# KServe's triton-2.x, but for the ports, a mark, the format of the models here, and where this Triton's files are.
MANIFEST = """
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: "{name}"
  annotations: {maxLoadingConcurrency: "2"}
spec:
  supportedModelFormats:
    - {name: keras, version: "2", autoSelect: true}
    - {name: onnx, version: "1", autoSelect: true}
    - {name: python, autoSelect: true}
  protocolVersions: [grpc-v2]
  multiModel: true
  grpcEndpoint: "port:{adapter}"
  grpcDataEndpoint: "port:{grpc}"
  containers:
    - name: triton
      image: nvcr.io/nvidia/tritonserver:23.04-py3
      command: [/bin/sh]
      args:
        - -c
        - 'mkdir -p /models/_triton_models;
          chmod 777 /models/_triton_models;
          exec tritonserver
          "--model-repository=/models/_triton_models"
          "--model-control-mode=explicit"
          "--strict-model-config=false"
          "--strict-readiness=false"
          "--allow-http=true"
          "--http-address=127.0.0.1" "--http-port={http}" "--grpc-address=127.0.0.1" "--grpc-port={grpc}"
          "--allow-metrics=false" "--backend-directory=BACKENDS"
          '
      env:
        - {name: PATH, value: "BIN:/usr/bin:/bin"}
        - {name: LD_LIBRARY_PATH, value: "LIBS"}
        - {name: PYTHONPATH, value: "PACKAGES"}
        - {name: MARKER, value: "{marker}"}
      resources:
        requests: {cpu: 500m, memory: 1Gi}
        limits: {cpu: "5", memory: 16Gi}
  builtInAdapter:
    serverType: triton
    runtimeManagementPort: {grpc}
    memBufferBytes: 134217728
    modelLoadingTimeoutMillis: 90000
"""
PACKAGES = ":".join(sys.path[1:])
for field, value in (("BACKENDS", TRITON / "backends"), ("BIN", TRITON / "bin"), ("LIBS", LIBS), ("PACKAGES", PACKAGES)):
    MANIFEST = MANIFEST.replace(field, str(value))


class Models:
    kind, format = "triton", "python"

    @classmethod
    def setUpClass(cls):
        version = ".".join(platform.python_version_tuple()[:2])
        stub = TRITON / "python_backend_stubs" / version / "triton_python_backend_stub"
        shutil.copy(stub, TRITON / "backends" / "python")

    def write(self, path, factor):
        shutil.rmtree(path, ignore_errors=True)
        (path / "1").mkdir(parents=True)
        (path / "config.pbtxt").write_text(CONFIG)
        (path / "1" / "model.py").write_text(MODEL.replace("FACTOR", str(factor)))

    def broken(self, path):
        self.write(path, "(")

    def request(self, value):
        return "x", "FP32", [1], managed.floats(value)

    def value(self, contents):
        return managed.real(contents)


class Hosted(Models, managed.Hosted):
    manifest, started = MANIFEST, "Started GRPCInferenceService"
    mesh = {"images": {"nvcr.io/nvidia/tritonserver": "/bin/sh"}, "run_commands": "on"}


class Triton(Models, managed.Managed, unittest.TestCase):
    def command(self):
        return [TRITON / "bin" / "tritonserver", "--model-repository", self.repository,
                "--model-control-mode", "explicit", "--backend-directory", TRITON / "backends",
                "--grpc-address", "127.0.0.1", "--grpc-port", str(self.port), "--http-address", "127.0.0.1",
                "--http-port", str(self.http_port), "--allow-metrics", "false"]

    def environment(self):
        return {"LD_LIBRARY_PATH": str(LIBS), "PYTHONPATH": PACKAGES}


if __name__ == "__main__":
    peers.main()
