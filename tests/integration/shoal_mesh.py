# SPDX-License-Identifier: Apache-2.0
"""A mesh, for tests: it knows mmesh.ModelRuntime as its contract states it, and nothing of Shoal.

Its messages are written down here once more, from the contract, so that a wrong field number in the
server's proto file is not read with the same wrong number here. Of the Open Inference Protocol it
knows as much as a caller of one small model must.
"""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shoal_fixture import WAIT_SECONDS

FIELD = descriptor_pb2.FieldDescriptorProto
STRING, U64, U32, I64 = FIELD.TYPE_STRING, FIELD.TYPE_UINT64, FIELD.TYPE_UINT32, FIELD.TYPE_INT64
BOOL, BYTES, INT32 = FIELD.TYPE_BOOL, FIELD.TYPE_BYTES, FIELD.TYPE_INT32

STARTING, READY, FAILING = 0, 1, 2
SERVICE = "mmesh.ModelRuntime"
INFERENCE = "inference.GRPCInferenceService"
INFER = f"{INFERENCE}/ModelInfer"

# Message -> fields: (name, number, type); a list says repeated, a text is another message.
MODEL = [("modelId", 1, STRING), ("modelType", 2, STRING), ("modelPath", 3, STRING),
         ("modelKey", 4, STRING)]
MESSAGES = {
    "mmesh": {
        "LoadModelRequest": MODEL,
        "LoadModelResponse": [("sizeInBytes", 1, U64), ("maxConcurrency", 2, U32)],
        "UnloadModelRequest": [("modelId", 1, STRING)],
        "UnloadModelResponse": [],
        "PredictModelSizeRequest": MODEL,
        "PredictModelSizeResponse": [("sizeInBytes", 1, U64)],
        "ModelSizeRequest": [("modelId", 1, STRING)],
        "ModelSizeResponse": [("sizeInBytes", 1, U64)],
        "RuntimeStatusRequest": [],
        "MethodInfo": [("idInjectionPath", 1, [U32])],
        "MethodEntry": [("key", 1, STRING), ("value", 2, "MethodInfo")],  # a map's, on the wire
        "RuntimeStatusResponse": [
            ("status", 1, INT32), ("capacityInBytes", 2, U64), ("maxLoadingConcurrency", 3, U32),
            ("modelLoadingTimeoutMs", 4, U32), ("defaultModelSizeInBytes", 5, U64),
            ("runtimeVersion", 6, STRING), ("methodInfos", 8, ["MethodEntry"]),
            ("limitModelConcurrency", 9, BOOL), ("allowAnyMethod", 10, BOOL)],
    },
    "inference": {
        "Tensor": [("name", 1, STRING), ("datatype", 2, STRING), ("shape", 3, [I64])],
        "ModelInferRequest": [("model_name", 1, STRING), ("inputs", 5, ["Tensor"]),
                              ("raw_input_contents", 7, [BYTES])],
        "ModelInferResponse": [("model_name", 1, STRING), ("outputs", 5, ["Tensor"]),
                               ("raw_output_contents", 6, [BYTES])],
        "ModelReadyRequest": [("name", 1, STRING)],
        "ModelReadyResponse": [("ready", 1, BOOL)],
    },
}


def field_of(package, name, number, kind):
    field = FIELD(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
    if isinstance(kind, list):
        field.label, kind = FIELD.LABEL_REPEATED, kind[0]
    if isinstance(kind, str):
        field.type, field.type_name = FIELD.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        field.type = kind
    return field


def classes_of(package):
    """The classes of a package's messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"contract/{package}.proto", package=package,
                                              syntax="proto3")
    for name, fields in MESSAGES[package].items():
        file.message_type.add(name=name).field.extend(field_of(package, *one) for one in fields)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = [pool.FindMessageTypeByName(f"{package}.{name}") for name in MESSAGES[package]]
    if hasattr(message_factory, "GetMessageClass"):
        return {one.name: message_factory.GetMessageClass(one) for one in find}
    factory = message_factory.MessageFactory(pool)
    return {one.name: factory.GetPrototype(one) for one in find}


MMESH = classes_of("mmesh")
OIP = classes_of("inference")


def inject(message, path, model):
    """Puts the model's id where the path of field numbers leads, as a mesh does."""
    for number in path[:-1]:
        message = getattr(message, message.DESCRIPTOR.fields_by_number[number].name)
    setattr(message, message.DESCRIPTOR.fields_by_number[path[-1]].name, model)


class Mesh:
    """A mesh's two connections to its runtime, which may be one."""

    def __init__(self, management, data):
        self.management = self.connect(management)
        self.data = self.management if data == management else self.connect(data)

    @staticmethod
    def connect(target):
        return grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.management.close()
        self.data.close()

    # ---- the runtime's side ----

    def start(self, method, timeout=WAIT_SECONDS, **fields):
        """A call of mmesh.ModelRuntime as a future."""
        kind = method[0].upper() + method[1:]
        stub = self.management.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=MMESH[f"{kind}Request"].SerializeToString,
            response_deserializer=MMESH[f"{kind}Response"].FromString)
        return stub.future(MMESH[f"{kind}Request"](**fields), timeout=timeout)

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
        paths = {entry.key: list(entry.value.idInjectionPath) for entry in status.methodInfos}
        message = OIP["ModelInferRequest"](model_name="what-the-caller-calls-it")
        message.inputs.add(name="x", datatype="UINT8", shape=[1])
        message.raw_input_contents.append(b"\7")
        inject(message, paths[INFER], model)
        return self.start_message(INFER, message, OIP["ModelInferResponse"])

    def ready(self, model):
        return self.start_message(f"{INFERENCE}/ModelReady", OIP["ModelReadyRequest"](name=model),
                                  OIP["ModelReadyResponse"]).result().ready
