# SPDX-License-Identifier: Apache-2.0
"""Who registers models with a mesh, and calls them: mmesh.ModelMesh as its contract states it.

The messages are written down here once more, by their field numbers, so that a wrong number in the
server's proto file is not read with the same wrong number here.
"""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shoal_fixture import WAIT_SECONDS, wait_until
from shoal_mesh import BOOL, INFER, INFERENCE, INT32, OIP, STRING, U64, field_of

NOT_FOUND, NOT_LOADED, LOADING, LOADED, LOADING_FAILED, UNKNOWN = range(6)
DEFINED, TRANSITIONING, TRANSITION_FAILED = 1, 2, 3
SERVICE = "mmesh.ModelMesh"
OLD_SERVICE = "com.ibm.watson.tas.proto.TasRuntime"

MESSAGES = {
    "ModelInfo": [("type", 1, STRING), ("path", 2, STRING), ("key", 3, STRING)],
    "RegisterModelRequest": [("modelId", 1, STRING), ("modelInfo", 2, "ModelInfo"),
                             ("loadNow", 3, BOOL), ("sync", 4, BOOL), ("lastUsedTime", 5, U64)],
    "UnregisterModelRequest": [("modelId", 1, STRING)],
    "UnregisterModelResponse": [],
    "GetStatusRequest": [("modelId", 1, STRING)],
    "EnsureLoadedRequest": [("modelId", 1, STRING), ("lastUsedTime", 2, U64), ("sync", 4, BOOL)],
    "ModelCopyInfo": [("location", 1, STRING), ("copyStatus", 2, INT32), ("time", 3, U64)],
    "ModelStatusInfo": [("status", 1, INT32), ("errors", 2, [STRING]),
                        ("modelCopyInfos", 3, ["ModelCopyInfo"])],
    "SetVModelRequest": [("vModelId", 1, STRING), ("targetModelId", 2, STRING),
                         ("updateOnly", 3, BOOL), ("modelInfo", 4, "ModelInfo"),
                         ("autoDeleteTargetModel", 5, BOOL), ("loadNow", 6, BOOL),
                         ("force", 7, BOOL), ("sync", 8, BOOL),
                         ("expectedTargetModelId", 9, STRING), ("owner", 10, STRING)],
    "DeleteVModelRequest": [("vModelId", 1, STRING), ("owner", 2, STRING)],
    "DeleteVModelResponse": [],
    "GetVModelStatusRequest": [("vModelId", 1, STRING), ("owner", 2, STRING)],
    "VModelStatusInfo": [("status", 1, INT32), ("activeModelId", 2, STRING),
                         ("targetModelId", 3, STRING),
                         ("activeModelStatus", 4, "ModelStatusInfo"),
                         ("targetModelStatus", 5, "ModelStatusInfo"), ("owner", 6, STRING)],
}

# Method -> request, response.
METHODS = {
    "registerModel": ("RegisterModelRequest", "ModelStatusInfo"),
    "unregisterModel": ("UnregisterModelRequest", "UnregisterModelResponse"),
    "getModelStatus": ("GetStatusRequest", "ModelStatusInfo"),
    "ensureLoaded": ("EnsureLoadedRequest", "ModelStatusInfo"),
    "setVModel": ("SetVModelRequest", "VModelStatusInfo"),
    "deleteVModel": ("DeleteVModelRequest", "DeleteVModelResponse"),
    "getVModelStatus": ("GetVModelStatusRequest", "VModelStatusInfo"),
}
OLD_NAMES = {"addModel": "registerModel", "deleteModel": "unregisterModel"}


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="contract/registry.proto", package="registry",
                                              syntax="proto3")
    for name, fields in MESSAGES.items():
        file.message_type.add(name=name).field.extend(field_of("registry", *one)
                                                      for one in fields)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = [pool.FindMessageTypeByName(f"registry.{name}") for name in MESSAGES]
    if hasattr(message_factory, "GetMessageClass"):
        return {one.name: message_factory.GetMessageClass(one) for one in find}
    factory = message_factory.MessageFactory(pool)
    return {one.name: factory.GetPrototype(one) for one in find}


TYPES = classes()


class Registrar:
    """A connection to a node of a mesh."""

    def __init__(self, target):
        self.channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def start(self, method, service=SERVICE, timeout=WAIT_SECONDS, **fields):
        """A call as a future; a field that is a dict is a message."""
        request, response = METHODS[OLD_NAMES.get(method, method)]
        stub = self.channel.unary_unary(f"/{service}/{method}",
                                        request_serializer=TYPES[request].SerializeToString,
                                        response_deserializer=TYPES[response].FromString)
        return stub.future(TYPES[request](**fields), timeout=timeout)

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
        last = []

        def look():
            last[:] = [self.status(model)]
            return last[0] if last[0].status == status else None
        return wait_until(look, lambda: f"{model} to be {status}, not {last}")

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
