# SPDX-License-Identifier: Apache-2.0
"""Triton's own example clients, as programs, against a node with their models. run.py gets them; each
must end well. EDITS are what they may not expect of another server; SKIPPED need what a node lacks."""

import pathlib
import subprocess
import sys
import unittest

import peers

EXAMPLES = pathlib.Path(peers.os.environ.get("INTEROP_EXAMPLES", "."))
RUN = {
    "simple_http_health_metadata": (), "simple_grpc_health_metadata": (),
    "simple_http_infer_client": (), "simple_grpc_infer_client": (),
    "simple_http_infer_client gzip": ("--request-compression-algorithm", "gzip",
                                      "--response-compression-algorithm", "gzip"),
    "simple_http_infer_client deflate": ("--request-compression-algorithm", "deflate"),
    "simple_grpc_infer_client gzip": ("-C", "gzip"),
    "simple_http_async_infer_client": (), "simple_grpc_async_infer_client": (),
    "simple_http_aio_infer_client": (), "simple_grpc_aio_infer_client": (),
    "simple_http_string_infer_client": (), "simple_grpc_string_infer_client": (),
    "simple_grpc_keepalive_client": (), "simple_grpc_custom_args_client": (),
    "grpc_explicit_int_content_client": (), "grpc_explicit_byte_content_client": (),
    "simple_http_shm_client": (), "simple_grpc_shm_client": (),
    "simple_http_shm_string_client": (), "simple_grpc_shm_string_client": (),
    "simple_grpc_custom_repeat": (),
    "reuse_infer_objects_client": (), "reuse_infer_objects_client gRPC": ("-i", "grpc"),
}
NAME = ('"triton"', '"shoal"')
EDITS = {"simple_http_health_metadata": NAME, "simple_grpc_health_metadata": NAME}

CONTROL = "counts the models of Triton's tests, and overrides a configuration; checks_tritonclient does the rest"
SEQUENCES = "stateful models: a node has none"
SKIPPED = {
    **{f"simple_{way}_model_control": CONTROL for way in ("http", "grpc")},
    **{f"simple_{way}_cudashm_client": "CUDA shared memory: no GPU" for way in ("http", "grpc")},
    **{f"simple_{way}_sequence_sync_infer_client": SEQUENCES for way in ("http", "grpc")},
    "simple_grpc_sequence_stream_infer_client": SEQUENCES,
    "grpc_explicit_int8_content_client": "a model of INT8; checks_tritonclient does the call",
    "image_client, grpc_image_client, ensemble_image_client, grpc_client": "models of images, not at hand",
    "memory_growth_test": "runs for hours",
}


class Examples(unittest.TestCase):
    def run_example(self, name, more):
        file = name.partition(" ")[0]
        text = (EXAMPLES / f"{file}.py").read_text()
        if file in EDITS:
            self.assertIn(EDITS[file][0], text)
            text = text.replace(*EDITS[file])
        program = peers.FOLDER / f"{file}.py"
        program.write_text(text)
        address = peers.GRPC if "grpc" in name.lower() else peers.HTTP
        done = subprocess.run([sys.executable, program, "-u", address, *more], timeout=peers.SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-300:])
        for word in ("FAILED", "Traceback", "error: "):
            self.assertNotIn(word, done.stdout, done.stdout[-300:])


def add_check(name, more):
    def check(self):
        self.run_example(name, more)
    if name in EDITS:
        check.__doc__ = f"with {EDITS[name][1]} for {EDITS[name][0]}"
    setattr(Examples, f"check_{name}", check)


for example, options in RUN.items():
    add_check(example, options)

if __name__ == "__main__":
    peers.main(SKIPPED)
