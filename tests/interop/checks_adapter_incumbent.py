# SPDX-License-Identifier: Apache-2.0
"""KServe's own adapter for MLServer, built from the checkout that $SHOAL_RUNTIME_ADAPTER names, in a
ServingRuntime of two containers that a node runs: the contract is the adapter's, and the node's models
come as KServe's storage helper would bring them."""

import os
import pathlib
import signal
import subprocess
import unittest

import managed
import peers
from checks_adapter_mlserver import MANIFEST, SERVER, Models
from shoal_fixture import read_proc, wait_until
from shoal_hosting import processes

SOURCE = pathlib.Path(os.environ["INTEROP_SOURCE"])
ADAPTER = pathlib.Path("build/interop/mlserver-adapter").resolve()
BUILD_SECONDS = 1800  # also fetches its modules
# The container that ModelMesh Serving's controller adds, but for the ports, the buffer, and the folder: the node
# fetches models, not the adapter. Of its requests, 100 MiB are for models.
CONTAINER = """
    - name: mlserver-adapter
      image: kserve/modelmesh-runtime-adapter:v0.12.0
      env:
        - {name: ADAPTER_PORT, value: "{adapter}"}
        - {name: RUNTIME_PORT, value: "{grpc}"}
        - {name: RUNTIME_DATA_ENDPOINT, value: "port:{grpc}"}
        - name: CONTAINER_MEM_REQ_BYTES
          valueFrom: {resourceFieldRef: {containerName: mlserver, resource: requests.memory}}
        - {name: MEM_BUFFER_BYTES, value: "968884224"}
        - {name: LOADTIME_TIMEOUT, value: "90000"}
        - {name: ROOT_MODEL_DIR, value: "{root}"}
        - {name: MARKER, value: "{marker}"}
"""
MODEL_BYTES = 25 * managed.MIB  # the adapter takes a model for a quarter larger than its files


def setUpModule():
    try:
        done = subprocess.run(["go", "build", "-buildvcs=false", "-o", ADAPTER, "./model-mesh-mlserver-adapter"],
                              cwd=SOURCE, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise unittest.SkipTest(f"go build: not within {BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise unittest.SkipTest(f"go build: {done.stderr.strip()}"[:300])


class Incumbent(Models, managed.Hosted):
    started = "gRPC server running"

    def setUp(self):
        super().setUp()
        self.manifest = MANIFEST.partition("  builtInAdapter:")[0].rstrip() + CONTAINER
        self.node = {"pvc_mounts": str(self.folder), "models_cache": str(self.folder / "cache"), "models_cache_gib": 1}
        self.mesh = {"images": {"docker.io/seldonio/mlserver": f"{SERVER} start",
                                "kserve/modelmesh-runtime-adapter": str(ADAPTER)}}

    def repository(self, node):
        return self.folder / "models" / node / "_mlserver_models"

    def runtime(self, node, marker, more=""):
        """MLServer's image starts it with the folder; here an argument does."""
        repository = self.repository(node)
        repository.mkdir(parents=True)
        image = "image: docker.io/seldonio/mlserver:1.3.2"
        text = super().runtime(node, marker, more).replace(image, f'{image}\n      args: ["{repository}"]')
        return text.replace("{root}", str(repository.parent))

    def write(self, path, factor):
        super().write(path, factor)
        os.truncate(path, MODEL_BYTES)

    def service(self, name, path):
        made = super().service(name, path)
        model = made["spec"]["predictor"]["model"]
        del model["storage"]
        return {**made, "spec": {"predictor": {"model": {**model, "storageUri": f"pvc://files/{path}"}}}}

    def models(self, node):
        return [one.name.partition("__")[0] for one in self.repository(node).iterdir()]

    def wait_cleared(self):
        """The adapter clears the folder when it starts, not at its end."""

    def server(self, marker):
        found, = [pid for pid in processes(marker) if "--keep" not in read_proc(pid, "cmdline")
                  and f"\0{SERVER}\0" in read_proc(pid, "cmdline")]
        return found

    def check_evict_and_reload(self):
        """four models of 31 MiB in 100 MiB"""
        self.start(node=self.node, **self.mesh)
        self.apply(self.runtime("node-1", self.marker))
        models = {"a": 1, "b": 2, "c": 3, "d": 4}
        self.serve(**models)
        self.wait_answers(**models)
        for name, factor in models.items():
            self.assertEqual(self.ask(name), 5.0 * factor)
        wait_until(lambda: self.at.stat()["mesh_evictions"] >= 2, "evictions")
        wait_until(lambda: 0 < len(self.models("node-1")) < 4, lambda: f"folders, not {self.models('node-1')}")


if __name__ == "__main__":
    peers.main()
