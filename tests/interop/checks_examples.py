# SPDX-License-Identifier: Apache-2.0
"""Triton's own example clients, as they are, against a node with their models. run.py gets them; each
must end well. METADATA demand the server's name, and have a node with `server_name: triton`; CONTROL
count the models, and have a node with so many; SKIPPED need what a node lacks."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import peers

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from shoal_fixture import Shoald, free_port, node, pipeline, stage  # noqa: E402
from shoal_rest import ANY_PORT, port_of  # noqa: E402

EXAMPLES = pathlib.Path(peers.os.environ.get("INTEROP_SOURCE", ".")) / "src" / "python" / "examples"
RUN = {
    "simple_http_infer_client": (), "simple_grpc_infer_client": (),
    "simple_http_infer_client gzip": ("--request-compression-algorithm", "gzip",
                                      "--response-compression-algorithm", "gzip"),
    "simple_http_infer_client deflate": ("--request-compression-algorithm", "deflate"),
    "simple_grpc_infer_client gzip": ("-C", "gzip"),
    "simple_http_async_infer_client": (), "simple_grpc_async_infer_client": (),
    "simple_http_aio_infer_client": (), "simple_grpc_aio_infer_client": (),
    "simple_http_string_infer_client": (), "simple_grpc_string_infer_client": (),
    "simple_grpc_keepalive_client": (), "simple_grpc_custom_args_client": (),
    "grpc_explicit_int_content_client": (), "grpc_explicit_int8_content_client": (),
    "grpc_explicit_byte_content_client": (),
    "simple_http_shm_client": (), "simple_grpc_shm_client": (),
    "simple_http_shm_string_client": (), "simple_grpc_shm_string_client": (),
    "simple_grpc_custom_repeat": (),
    **{f"simple_{way}_sequence_sync_infer_client": () for way in ("http", "grpc")},
    "simple_grpc_sequence_stream_infer_client": (), "simple_grpc_aio_sequence_stream_infer_client": (),
    "reuse_infer_objects_client": (), "reuse_infer_objects_client gRPC": ("-i", "grpc"),
}
METADATA = ("simple_http_health_metadata", "simple_grpc_health_metadata")
CONTROL = {"simple_http_model_control": 7, "simple_grpc_model_control": 8}
SKIPPED = {
    **{f"simple_{way}_cudashm_client": "CUDA shared memory: no GPU" for way in ("http", "grpc")},
    "image_client, grpc_image_client, ensemble_image_client, grpc_client": "models of images, not at hand",
    "memory_growth_test": "runs for hours",
}


class Examples(unittest.TestCase):
    def run_example(self, name, more, grpc=peers.GRPC, http=peers.HTTP):
        file = name.partition(" ")[0]
        address = grpc if "grpc" in name.lower() else http
        done = subprocess.run([sys.executable, EXAMPLES / f"{file}.py", "-u", address, *more],
                              timeout=peers.SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-300:])
        for word in ("FAILED", "Traceback", "error: "):
            self.assertNotIn(word, done.stdout, done.stdout[-300:])
        return done.stdout

    def serve(self, count, **keys):
        """A node with model `simple` and others, so many in all; its addresses."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-interop.")))
        for model in ("simple", *(f"more_{i}" for i in range(1, count))):
            (folder / "models" / model).mkdir(parents=True)
        (folder / "models/simple/config.pbtxt").write_text("max_batch_size: 8\n")
        port = free_port()
        shoald = self.enterContext(Shoald(node(
            pipeline("models", stage("libsimple.so", batch_size=64), models={"root": "models", "memory_mib": 64}),
            http=ANY_PORT, **keys), ["--listen", f"127.0.0.1:{port}"], folder=folder))
        return f"127.0.0.1:{port}", f"127.0.0.1:{port_of(shoald)}"


def add_check(name, more):
    def check(self):
        self.run_example(name, more)
    setattr(Examples, f"check_{name}", check)


def add_metadata(name):
    def check(self):
        self.run_example(name, (), *self.serve(1, server_name="triton"))
    check.__doc__ = "a node with server_name: triton"
    setattr(Examples, f"check_{name}", check)


def add_control(name, count):
    def check(self):
        said = self.run_example(name, (), *self.serve(count, http_control="on"))
        self.assertIn("PASS: model control", said)
    check.__doc__ = f"a node with {count} models"
    setattr(Examples, f"check_{name}", check)


for example, options in RUN.items():
    add_check(example, options)
for example in METADATA:
    add_metadata(example)
for example, models in CONTROL.items():
    add_control(example, models)

if __name__ == "__main__":
    peers.main(SKIPPED)
