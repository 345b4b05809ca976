# SPDX-License-Identifier: Apache-2.0
"""Triton, of the package nvidia-pytriton, managed by a node's built-in adapter: models in Python."""

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


class Triton(managed.Managed, unittest.TestCase):
    kind, format = "triton", "python"

    @classmethod
    def setUpClass(cls):
        version = ".".join(platform.python_version_tuple()[:2])
        stub = TRITON / "python_backend_stubs" / version / "triton_python_backend_stub"
        shutil.copy(stub, TRITON / "backends" / "python")

    def command(self):
        return [TRITON / "bin" / "tritonserver", "--model-repository", self.repository,
                "--model-control-mode", "explicit", "--backend-directory", TRITON / "backends",
                "--grpc-address", "127.0.0.1", "--grpc-port", str(self.port), "--http-address", "127.0.0.1",
                "--http-port", str(self.http_port), "--allow-metrics", "false"]

    def environment(self):
        return {"LD_LIBRARY_PATH": str(LIBS), "PYTHONPATH": ":".join(sys.path[1:])}

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


if __name__ == "__main__":
    peers.main()
