# SPDX-License-Identifier: Apache-2.0
"""Nodes whose models are the pupil's (tests/modelets/modelet_pupil.c), and how tests give it its
cues."""

import json

import grpc

from shoal_client import failure
from shoal_fixture import Shoald, node, pipeline, stage, wait_until

SIZE = 5000  # of a pupil's model whose key says nothing
MIB = 1 << 20
LOAD_CONCURRENCY = 3


def models(**keys):
    return {"root": "models", "memory_mib": 64, "load_concurrency": LOAD_CONCURRENCY,
            "default_size_mib": 4, "watch": "no", **keys}


def pupil(name="pupil", params=None, workers=1, **keys):
    of_models = keys.pop("models", {})
    return pipeline(name, stage("libpupil.so", batch_size=8, workers=workers,
                                params={"folder": ".", **(params or {})}),
                    slots=64, models=models(**of_models), **keys)


def key(**more):
    return json.dumps({"model_type": {"name": "pupil"}, **more})


def prepare(*pipelines, **keys):
    """A daemon that has not started, with a root for its models that has one in it."""
    listen = keys.pop("listen", None)
    shoald = Shoald(node(*pipelines, message_mib=1, **keys), listen=listen)
    root = shoald.folder / "models"
    (root / "folder").mkdir(parents=True)
    (root / "model").write_text("a model")
    (root / "folder" / "model").write_text("another")
    return shoald


def said(answer):
    """The id of the model that a pupil has answered with."""
    return answer.raw_output_contents[0][4:].decode()


def known(answer):
    """How many models the worker has that answered."""
    return int.from_bytes(answer.raw_output_contents[1], "little")


class Rig:
    """A daemon, and a mesh that is connected to it."""

    def cue_is_held(self, name):
        return (self.shoald.folder / f"{name}.held").exists()

    def wait_held(self, name):
        wait_until(lambda: self.cue_is_held(name),
                   lambda: f"{name} to be held\n{self.shoald.stderr}")

    def give(self, name):
        (self.shoald.folder / f"{name}.go").touch()

    def lessons(self, model):
        """The workers' actions on it, in order."""
        file = self.shoald.folder / "lessons"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split()[0] for line in lines if line.split()[1] == model]

    def model(self):
        """An id for this test, whose model is gone when it ends."""
        name = self.id().rpartition(".")[2]
        self.addCleanup(lambda: self.mesh.unload(name))
        return name

    def check_fails(self, future, code, *texts):
        found, text = failure(future)
        self.assertEqual(found, code, text)
        for part in texts:
            self.assertIn(part, text)

    def check_not_known(self, model):
        self.check_fails(self.mesh.start_infer(model), grpc.StatusCode.NOT_FOUND)

    def wait_state(self, state):
        return wait_until(lambda: self.mesh.status() if self.mesh.status().status == state else None,
                          lambda: f"status {state}, not {self.mesh.status().status}")
