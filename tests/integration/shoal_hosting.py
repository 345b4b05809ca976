# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that nodes run, for tests: manifests of containers (shoal_container.py), nodes that run
them, and what is reported about them."""

import json
import os
import pathlib
import re
import sys
import unittest

from shoal_ctl import shoalctl
from shoal_fixture import BUILD, SOURCE, WAIT_SECONDS, Shoald, free_port, is_alive, read_proc, wait_until
from shoal_registry import Registrar

PROGRAM = f"{sys.executable} {SOURCE / 'tests' / 'integration' / 'shoal_container.py'}"
IMAGES = {"container": PROGRAM, "registry.example/team/server": PROGRAM}
ENV = [{"name": "SHOAL_BUILD_DIR", "value": str(BUILD)}, {"name": "SHOAL_SOURCE_DIR", "value": str(SOURCE)},
       {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]
ANY = "/x.Y/Z"


def container(*args, name="server", image="container", env=(), **more):
    return {"name": name, "image": image, "args": list(args), "env": [*ENV, *env], **more}


def runtime(name, address, *containers, formats=("sort",), **more):
    endpoint = address if address.startswith("unix:") else f"port:{address.rpartition(':')[2]}"
    return {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime", "metadata": {"name": name},
            "spec": {"supportedModelFormats": [{"name": form, "autoSelect": True} for form in formats],
                     "multiModel": True, "grpcEndpoint": endpoint, "containers": list(containers), **more}}


def service(name, form="sort", path="a/model"):
    return {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name},
            "spec": {"predictor": {"model": {"modelFormat": {"name": form}, "storage": {"path": path}}}}}


def host(name="node-1", images=None, node=None, **mesh):
    """A daemon that runs runtimes, and has not started; `node`: its keys beside `mesh`."""
    return Shoald({"message_mib": 1, "drain_timeout_ms": 4000, **(node or {}),
                   "mesh": {"instance": name, "images": IMAGES if images is None else images,
                            "restart_ms_max": 1000, **mesh}})


def processes(marker):
    """Those of this test: they have the marker in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and f"MARKER={marker}\0" in read_proc(entry.name, "environ") and \
                is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found


class Case(unittest.TestCase):
    """`self.at`: the node that is asked."""

    def setUp(self):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.marker = f"{os.getpid()}-{self.port}"
        self.mark = {"name": "MARKER", "value": self.marker}

    def start(self, *args, **keys):
        self.at = self.enterContext(host(*args, **keys))
        self.registrar = self.enterContext(Registrar(self.at))

    def ctl(self, verb, *arguments, **options):
        return shoalctl(verb, *arguments, "--counters", self.at.counters, **options)

    def apply(self, *manifests):
        text = "\n---\n".join(one if isinstance(one, str) else json.dumps(one) for one in manifests)
        return self.ctl("apply", "-f", "-", stdin=text.encode())

    def nodes(self, name):
        """The reports of nodes about a runtime, by node."""
        told = self.ctl("get", "servingruntime", name, "-o", "json").json.get("status", {}).get("nodes", [])
        return {one["node"]: one for one in told}

    def wait_state(self, name, state, node="node-1", **more):
        def look():
            told = self.nodes(name).get(node, {})
            good = told.get("state") == state and all(re.search(pattern, str(told.get(key, "")))
                                                      for key, pattern in more.items())
            return told if good else None
        return wait_until(look, lambda: f"{name} to be {state} {more} on {node}, not {self.nodes(name)}\n"
                                        f"{self.at.stderr}")

    def wait_ready(self, name):
        self.ctl("wait", "--for=condition=Ready", f"isvc/{name}", "--timeout-ms", WAIT_SECONDS * 1000)

    def start_call(self, vmodel, registrar=None, timeout=WAIT_SECONDS):
        return (registrar or self.registrar).channel.unary_unary(ANY).future(
            b"hello", timeout=timeout, metadata=(("mm-vmodel-id", vmodel),))

    def call(self, vmodel):
        return json.loads(self.start_call(vmodel).result())

    def call_or_none(self, vmodel):
        future = self.start_call(vmodel, timeout=5)
        return json.loads(future.result()) if future.exception() is None else None

    def wait_gone(self):
        wait_until(lambda: not processes(self.marker), lambda: f"{processes(self.marker)} to end")


def scale(grace, config=None, **more):
    """`config`: its keys beside `scaleToZero`."""
    text = json.dumps({"scaleToZero": {"gracePeriodSeconds": grace, **more}, **(config or {})})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "model-serving-config"},
            "data": {"config.yaml": text}}


class Resting(Case):
    """One runtime of the type mt:sort, which is READY while the file `open` exists."""

    def begin(self, **keys):
        self.start(**keys)
        self.open = self.at.folder / "open"
        self.open.touch()
        self.apply(scale(0), self.manifest())

    def manifest(self, name="sorter", port=None, **more):
        address = f"127.0.0.1:{port or self.port}"
        server = container(f"serve={address}", f"open={self.open}", "fork", env=[self.mark])
        return runtime(name, address, server, **more)

    def wait_rest(self, name="sorter"):
        self.wait_state(name, "Idle")
        self.wait_gone()

    def call_model(self, model, timeout=WAIT_SECONDS):
        return self.registrar.channel.unary_unary(ANY).future(
            b"hello", timeout=timeout, metadata=(("mm-model-id", model),))

    def rests(self):
        stat = self.at.stat()
        return stat["mesh_runtime_rests"], stat["mesh_runtime_wakes"]
