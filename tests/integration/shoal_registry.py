# SPDX-License-Identifier: Apache-2.0
"""A client that registers models with a mesh and calls them: mmesh.ModelMesh as its contract states
it (shoal_contract.py)."""

from shoal_contract import (DEFINED, LOADED, LOADING, LOADING_FAILED, MODEL_MESH as SERVICE, NOT_FOUND,
                            NOT_LOADED, OLD_MODEL_MESH as OLD_SERVICE, TRANSITION_FAILED, TRANSITIONING,
                            Stub, connect)
from shoal_fixture import WAIT_SECONDS, wait_until
from shoal_mesh import INFER, INFERENCE, OIP


def wait_status(ask, model, status):
    """The answer of `ask` for a model with that status."""
    last = []

    def look():
        last[:] = [ask(model)]
        return last[0] if last[0].status == status else None
    return wait_until(look, lambda: f"{model} to be {status}, not {last}")


class Registrar:
    """Connections to a node of a mesh: one to where it is managed, one to where models are called.
    A text is an address for both."""

    def __init__(self, shoald, channel=None):
        self.management = connect(getattr(shoald, "management", shoald))
        self.channel = channel or connect(getattr(shoald, "target", shoald))
        self.stubs = {service: Stub(self.management, SERVICE, service)
                      for service in (SERVICE, OLD_SERVICE)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.management.close()
        self.channel.close()

    def start(self, method, service=SERVICE, **keys):
        """A call as a future; a field that is a dict is a message."""
        return self.stubs[service].start(method, **keys)

    def call(self, method, **fields):
        return self.start(method, **fields).result()

    def register(self, model, path="model", key="", kind="pupil", **fields):
        return self.call("registerModel", modelId=model,
                         modelInfo={"type": kind, "path": path, "key": key}, **fields)

    def unregister(self, model):
        return self.call("unregisterModel", modelId=model)

    def status(self, model):
        return self.call("getModelStatus", modelId=model)

    def ensure(self, model, **fields):
        return self.call("ensureLoaded", modelId=model, **fields)

    def wait_status(self, model, status):
        return wait_status(self.status, model, status)

    def start_infer(self, name="", metadata=(), inputs=(("x", "UINT8", [1], b"\7"),),
                    timeout=WAIT_SECONDS):
        message = OIP["ModelInferRequest"](model_name=name)
        for tensor, datatype, shape, contents in inputs:
            message.inputs.add(name=tensor, datatype=datatype, shape=shape)
            message.raw_input_contents.append(contents)
        stub = self.channel.unary_unary(
            f"/{INFER}", request_serializer=OIP["ModelInferRequest"].SerializeToString,
            response_deserializer=OIP["ModelInferResponse"].FromString)
        return stub.future(message, timeout=timeout, metadata=metadata)

    def start_ready(self, name="", metadata=()):
        stub = self.channel.unary_unary(
            f"/{INFERENCE}/ModelReady",
            request_serializer=OIP["ModelReadyRequest"].SerializeToString,
            response_deserializer=OIP["ModelReadyResponse"].FromString)
        return stub.future(OIP["ModelReadyRequest"](name=name), timeout=WAIT_SECONDS,
                           metadata=metadata)

    def infer(self, name="", **keys):
        return self.start_infer(name, **keys).result()
