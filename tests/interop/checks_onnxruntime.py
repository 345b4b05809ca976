# SPDX-License-Identifier: Apache-2.0
"""The onnx modelet with the newest ONNX Runtime in a Python package, as on a system that has none:
the suites of the modelet, answers that are the package's own, and what docs/serve.md has one type."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest

import numpy as np
import onnxruntime
import peers

BUILD = pathlib.Path(os.environ["SHOAL_BUILD_DIR"])
CAPI = pathlib.Path(onnxruntime.__file__).parent / "capi"


class OnnxRuntime(unittest.TestCase):
    def run_suite(self, *command):
        """With each of the folders that may be named."""
        for folder in (CAPI, CAPI.parent, CAPI.parent.parent):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=5 * peers.SECONDS, check=False,
                                  env={**os.environ, "SHOAL_ONNXRUNTIME_DIR": str(folder)})
            self.assertEqual(done.returncode, 0, f"{folder}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            self.assertNotIn("SKIPPED", done.stdout.replace("SKIPPED  ] 0", ""))

    def check_modelet(self):
        self.run_suite(BUILD / "tests/modelets/onnx")

    def check_models(self):
        self.run_suite(BUILD / "tests/modelets/onnx_files")

    def check_service(self):
        """In the whole sandbox."""
        self.run_suite("/usr/bin/python3", peers.SOURCE / "tests/integration/test_18_onnx.py")

    def check_own_answers(self):
        model = str(BUILD / "examples/onnx/xor.onnx")
        bits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
        wanted, = onnxruntime.InferenceSession(model).run(None, {"bits": bits})
        os.environ["SHOAL_ONNXRUNTIME_DIR"] = str(CAPI)
        done = subprocess.run(
            ["/usr/bin/python3", "-c", ANSWER, peers.SOURCE / "tests/integration", model],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=peers.SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        np.testing.assert_array_equal(np.array(eval(done.stdout), np.float32), wanted)

    def check_documented_commands(self):
        """From pip to the answer to the command that the node prints."""
        text = (peers.SOURCE / "docs/serve.md").read_text()
        install, serve = re.findall("^    (pip install .* onnxruntime|.* shoald serve model.onnx)$", text, re.M)
        shutil.copy(BUILD / "examples/onnx/xor.onnx", peers.FOLDER / "model.onnx")
        path = f"{pathlib.Path(sys.executable).parent}:{BUILD / 'bin'}:{os.environ['PATH']}"
        place = {"cwd": peers.FOLDER, "env": {**os.environ, "PATH": path}, "stdin": subprocess.DEVNULL}
        subprocess.run(install, shell=True, check=True, **place)
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            http, grpc = one.getsockname()[1], two.getsockname()[1]
        options = f"--http-port {http} --grpc-port {grpc} --metrics-port 0 --dashboard-port 0 --counters counters"
        with subprocess.Popen(f"exec timeout {peers.SECONDS} env {serve} {options}",
                              shell=True, stderr=subprocess.PIPE, text=True, **place) as node:
            said = [next(node.stderr, "")]
            while said[-1] and not said[-1].startswith("  curl "):
                said.append(next(node.stderr, ""))
            self.assertNotEqual(said[-1], "", f"no command was printed: {said}")
            answer = subprocess.run(said[-1], shell=True, check=True, capture_output=True, **place).stdout
            node.terminate()
        output, = json.loads(answer)["outputs"]
        session = onnxruntime.InferenceSession(str(BUILD / "examples/onnx/xor.onnx"))
        wanted, = session.run(None, {"bits": np.zeros((1, 2), np.float32)})
        np.testing.assert_array_equal(np.array(output["data"], np.float32), wanted.ravel())


# With the system's Python, as the fixtures need it.
ANSWER = """
import struct, sys
sys.path.insert(0, sys.argv[1])
from shoal_client import Client
from shoal_fixture import Shoald, node, pipeline, stage
model = {"id": "xor", "path": sys.argv[2]}
bits = struct.pack("<8f", 0, 0, 0, 1, 1, 0, 1, 1)
with Shoald(node(pipeline("onnx", stage("libonnx_modelet.so", model=model)))) as shoald:
    with Client(shoald.target) as client:
        raw, = client.infer_raw("onnx", ("bits", "FP32", [4, 2], bits)).raw_output_contents
print([[value] for value in struct.unpack("<4f", raw)])
"""


if __name__ == "__main__":
    peers.main()
