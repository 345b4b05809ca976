# SPDX-License-Identifier: Apache-2.0
"""A mesh, for tests: it knows mmesh.ModelRuntime as its contract states it (shoal_contract.py), and nothing of
Shoal. Of the Open Inference Protocol it knows as much as a caller of one small model must.
"""

from shoal_contract import (BOOL, BYTES, FAILING, I64, MODEL_RUNTIME as SERVICE, READY, STARTING,
                            STRING, TYPES as MMESH, File, Stub, connect)
from shoal_fixture import WAIT_SECONDS

INFERENCE = "inference.GRPCInferenceService"
INFER = f"{INFERENCE}/ModelInfer"

OIP = File("inference", {
    "Tensor": [("name", 1, STRING), ("datatype", 2, STRING), ("shape", 3, [I64])],
    "ModelInferRequest": [("model_name", 1, STRING), ("inputs", 5, ["Tensor"]),
                          ("raw_input_contents", 7, [BYTES])],
    "ModelInferResponse": [("model_name", 1, STRING), ("outputs", 5, ["Tensor"]),
                           ("raw_output_contents", 6, [BYTES])],
    "ModelReadyRequest": [("name", 1, STRING)],
    "ModelReadyResponse": [("ready", 1, BOOL)],
}).classes()


def inject(message, path, model):
    """Puts the model's id where the path of field numbers leads, as a mesh does."""
    for number in path[:-1]:
        message = getattr(message, message.DESCRIPTOR.fields_by_number[number].name)
    setattr(message, message.DESCRIPTOR.fields_by_number[path[-1]].name, model)


class Mesh:
    """A mesh's two connections to its runtime, which may be one."""

    def __init__(self, management, data):
        self.management = connect(management)
        self.data = self.management if data == management else connect(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.management.close()
        self.data.close()

    # ---- the runtime's side ----

    def start(self, method, **keys):
        """A call of mmesh.ModelRuntime as a future."""
        return Stub(self.management, SERVICE).start(method, **keys)

    def status(self, **keys):
        return self.start("runtimeStatus", **keys).result()

    def start_load(self, model, path="model", key="", kind="whatever", **keys):
        return self.start("loadModel", modelId=model, modelType=kind, modelPath=path, modelKey=key,
                          **keys)

    def load(self, model, *args, **keys):
        return self.start_load(model, *args, **keys).result()

    def start_predict(self, model, path="model", key="", **keys):
        return self.start("predictModelSize", modelId=model, modelPath=path, modelKey=key, **keys)

    def predict(self, model, *args, **keys):
        return self.start_predict(model, *args, **keys).result()

    def start_unload(self, model, **keys):
        return self.start("unloadModel", modelId=model, **keys)

    def unload(self, model, **keys):
        return self.start_unload(model, **keys).result()

    def size(self, model):
        return self.start("modelSize", modelId=model).result()

    # ---- the data's side ----

    def start_message(self, method, message, response, metadata=()):
        stub = self.data.unary_unary(f"/{method}", response_deserializer=response.FromString)
        return stub.future(message.SerializeToString(), timeout=WAIT_SECONDS, metadata=metadata)

    def start_infer(self, name="", metadata=(), inputs=(("x", "UINT8", [1], b"\7"),)):
        """A request with this name in it, and this metadata."""
        message = OIP["ModelInferRequest"](model_name=name)
        for tensor, datatype, shape, contents in inputs:
            message.inputs.add(name=tensor, datatype=datatype, shape=shape)
            message.raw_input_contents.append(contents)
        return self.start_message(INFER, message, OIP["ModelInferResponse"], metadata)

    def start_injected(self, status, model):
        """A caller's request under a name of its own, with the id put where methodInfos says."""
        path = status.methodInfos[INFER].idInjectionPath
        message = OIP["ModelInferRequest"](model_name="what-the-caller-calls-it")
        message.inputs.add(name="x", datatype="UINT8", shape=[1])
        message.raw_input_contents.append(b"\7")
        inject(message, path, model)
        return self.start_message(INFER, message, OIP["ModelInferResponse"])

    def ready(self, model):
        return self.start_message(f"{INFERENCE}/ModelReady", OIP["ModelReadyRequest"](name=model),
                                  OIP["ModelReadyResponse"]).result().ready
