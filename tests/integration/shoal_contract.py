# SPDX-License-Identifier: Apache-2.0
"""The incumbent's two services as its users have them, mmesh.ModelMesh and mmesh.ModelRuntime,
and the clients that are generated from that.

Everything is written down here once more, by its numbers, so that a wrong number in the server's
proto files is not read with the same wrong number here. Fields that are deprecated or reserved
there are here those that its users once sent.
"""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from shoal_fixture import WAIT_SECONDS

FIELD = descriptor_pb2.FieldDescriptorProto
STRING, U64, U32, I64 = FIELD.TYPE_STRING, FIELD.TYPE_UINT64, FIELD.TYPE_UINT32, FIELD.TYPE_INT64
BOOL, BYTES = FIELD.TYPE_BOOL, FIELD.TYPE_BYTES

MODEL_MESH, MODEL_RUNTIME = "mmesh.ModelMesh", "mmesh.ModelRuntime"
OLD_MODEL_MESH = "com.ibm.watson.tas.proto.TasRuntime"  # the same methods, and messages
OLD_NAMES = {"addModel": "registerModel", "deleteModel": "unregisterModel"}  # in both

ENUMS = {
    "ModelStatusInfo.ModelStatus": ["NOT_FOUND", "NOT_LOADED", "LOADING", "LOADED",
                                    "LOADING_FAILED", "UNKNOWN"],
    "VModelStatusInfo.VModelStatus": ["NOT_FOUND", "DEFINED", "TRANSITIONING", "TRANSITION_FAILED",
                                      None, "UNKNOWN"],
    "RuntimeStatusResponse.Status": ["STARTING", "READY", "FAILING"],
}
NOT_FOUND, NOT_LOADED, LOADING, LOADED, LOADING_FAILED, UNKNOWN = range(6)
DEFINED, TRANSITIONING, TRANSITION_FAILED = 1, 2, 3
STARTING, READY, FAILING = range(3)

# Message -> fields: (name, number, type); a list says repeated, a text is another message or an
# enum, a pair a map.
MODEL = [("modelId", 1, STRING), ("modelType", 2, STRING), ("modelPath", 3, STRING),
         ("modelKey", 4, STRING)]
MESSAGES = {
    "ModelInfo": [("type", 1, STRING), ("path", 2, STRING), ("key", 3, STRING)],
    "RegisterModelRequest": [("modelId", 1, STRING), ("modelInfo", 2, "ModelInfo"),
                             ("loadNow", 3, BOOL), ("sync", 4, BOOL), ("lastUsedTime", 5, U64)],
    "UnregisterModelRequest": [("modelId", 1, STRING)],
    "UnregisterModelResponse": [],
    "GetStatusRequest": [("modelId", 1, STRING)],
    "EnsureLoadedRequest": [("modelId", 1, STRING), ("lastUsedTime", 2, U64), ("sync", 4, BOOL)],
    "ModelStatusInfo.ModelCopyInfo": [("location", 1, STRING),
                                      ("copyStatus", 2, "ModelStatusInfo.ModelStatus"),
                                      ("time", 3, U64)],
    "ModelStatusInfo": [("status", 1, "ModelStatusInfo.ModelStatus"), ("errors", 2, [STRING]),
                        ("modelCopyInfos", 3, ["ModelStatusInfo.ModelCopyInfo"])],
    "SetVModelRequest": [("vModelId", 1, STRING), ("targetModelId", 2, STRING),
                         ("updateOnly", 3, BOOL), ("modelInfo", 4, "ModelInfo"),
                         ("autoDeleteTargetModel", 5, BOOL), ("loadNow", 6, BOOL),
                         ("force", 7, BOOL), ("sync", 8, BOOL),
                         ("expectedTargetModelId", 9, STRING), ("owner", 10, STRING)],
    "DeleteVModelRequest": [("vModelId", 1, STRING), ("owner", 2, STRING)],
    "DeleteVModelResponse": [],
    "GetVModelStatusRequest": [("vModelId", 1, STRING), ("owner", 2, STRING)],
    "VModelStatusInfo": [("status", 1, "VModelStatusInfo.VModelStatus"),
                         ("activeModelId", 2, STRING), ("targetModelId", 3, STRING),
                         ("activeModelStatus", 4, "ModelStatusInfo"),
                         ("targetModelStatus", 5, "ModelStatusInfo"), ("owner", 6, STRING)],

    "LoadModelRequest": MODEL,
    "LoadModelResponse": [("sizeInBytes", 1, U64), ("maxConcurrency", 2, U32)],
    "UnloadModelRequest": [("modelId", 1, STRING)],
    "UnloadModelResponse": [],
    "PredictModelSizeRequest": MODEL,
    "PredictModelSizeResponse": [("sizeInBytes", 1, U64)],
    "ModelSizeRequest": [("modelId", 1, STRING)],
    "ModelSizeResponse": [("sizeInBytes", 1, U64)],
    "RuntimeStatusRequest": [],
    "RuntimeStatusResponse.MethodInfo": [("idInjectionPath", 1, [U32])],
    "RuntimeStatusResponse": [
        ("status", 1, "RuntimeStatusResponse.Status"), ("capacityInBytes", 2, U64),
        ("maxLoadingConcurrency", 3, U32), ("modelLoadingTimeoutMs", 4, U32),
        ("defaultModelSizeInBytes", 5, U64), ("runtimeVersion", 6, STRING),
        ("numericRuntimeVersion", 7, U64),
        ("methodInfos", 8, (STRING, "RuntimeStatusResponse.MethodInfo")),
        ("limitModelConcurrency", 9, BOOL), ("allowAnyMethod", 10, BOOL)],
}
DEPRECATED = {("RuntimeStatusResponse", "numericRuntimeVersion")}

# Service -> method -> request, response. All are unary, and begin with a small letter on the wire.
SERVICES = {
    "ModelMesh": {
        "registerModel": ("RegisterModelRequest", "ModelStatusInfo"),
        "unregisterModel": ("UnregisterModelRequest", "UnregisterModelResponse"),
        "getModelStatus": ("GetStatusRequest", "ModelStatusInfo"),
        "ensureLoaded": ("EnsureLoadedRequest", "ModelStatusInfo"),
        "setVModel": ("SetVModelRequest", "VModelStatusInfo"),
        "deleteVModel": ("DeleteVModelRequest", "DeleteVModelResponse"),
        "getVModelStatus": ("GetVModelStatusRequest", "VModelStatusInfo"),
    },
    "ModelRuntime": {
        "loadModel": ("LoadModelRequest", "LoadModelResponse"),
        "unloadModel": ("UnloadModelRequest", "UnloadModelResponse"),
        "predictModelSize": ("PredictModelSizeRequest", "PredictModelSizeResponse"),
        "modelSize": ("ModelSizeRequest", "ModelSizeResponse"),
        "runtimeStatus": ("RuntimeStatusRequest", "RuntimeStatusResponse"),
    },
}


# ---- descriptors ----

class File:
    """A proto file from tables like those above."""

    def __init__(self, package, messages, enums=None, services=None):
        self.package = package
        self.proto = descriptor_pb2.FileDescriptorProto(name=f"contract/{package}.proto",
                                                        package=package, syntax="proto3")
        self.enums = enums or {}
        self.messages = {}
        for name, fields in sorted(messages.items()):  # what is nested comes behind what it is in
            self.add_message(name, fields)
        for name, words in self.enums.items():
            of, _, short = name.rpartition(".")
            made = self.messages[of].enum_type.add(name=short)
            for number, word in enumerate(words):
                if word is not None:
                    made.value.add(name=word, number=number)
        for name, methods in (services or {}).items():
            service = self.proto.service.add(name=name)
            for method, (request, response) in methods.items():
                service.method.add(name=method, input_type=f".{package}.{request}",
                                   output_type=f".{package}.{response}")

    def add_message(self, name, fields):
        of, _, short = name.rpartition(".")
        among = self.messages[of].nested_type if of else self.proto.message_type
        self.messages[name] = message = among.add(name=short)
        for field, number, kind in fields:
            message.field.append(self.field(name, field, number, kind))

    def field(self, message, name, number, kind):
        field = FIELD(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
        if isinstance(kind, tuple):
            kind = [self.add_entry(message, name, *kind)]
        if isinstance(kind, list):
            field.label, kind = FIELD.LABEL_REPEATED, kind[0]
        if isinstance(kind, str):
            field.type = FIELD.TYPE_ENUM if kind in self.enums else FIELD.TYPE_MESSAGE
            field.type_name = f".{self.package}.{kind}"
        else:
            field.type = kind
        return field

    def add_entry(self, message, field, key, value):
        """The message that a map is repeated of, on the wire."""
        name = f"{message}.{field[0].upper()}{field[1:]}Entry"
        self.add_message(name, [("key", 1, key), ("value", 2, value)])
        self.messages[name].options.map_entry = True
        return name

    def classes(self):
        """The classes of its messages, by their names without the package."""
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(self.proto.SerializeToString())
        found = {name: pool.FindMessageTypeByName(f"{self.package}.{name}")
                 for name, message in self.messages.items() if not message.options.map_entry}
        if hasattr(message_factory, "GetMessageClass"):
            return {name: message_factory.GetMessageClass(one) for name, one in found.items()}
        factory = message_factory.MessageFactory(pool)
        return {name: factory.GetPrototype(one) for name, one in found.items()}


FILE = File("mmesh", MESSAGES, ENUMS, SERVICES)
TYPES = FILE.classes()
METHODS = {method: types for methods in SERVICES.values() for method, types in methods.items()}


# ---- clients ----

def request_of(method):
    return TYPES[METHODS[OLD_NAMES.get(method, method)][0]]


def response_of(method):
    return TYPES[METHODS[OLD_NAMES.get(method, method)][1]]


class Stub:
    """A client of one service, or of its like under another name: a callable per method, as those
    have that a compiler of proto files generates."""

    def __init__(self, channel, service, called=None):
        methods = SERVICES[service.rpartition(".")[2]]
        old = [name for name, now in OLD_NAMES.items() if now in methods]
        for method in (*methods, *old):
            setattr(self, method, channel.unary_unary(
                f"/{called or service}/{method}",
                request_serializer=request_of(method).SerializeToString,
                response_deserializer=response_of(method).FromString))

    def start(self, method, timeout=WAIT_SECONDS, **fields):
        """A call as a future; a field that is a dict is a message."""
        return getattr(self, method).future(request_of(method)(**fields), timeout=timeout)

    def call(self, method, **fields):
        return self.start(method, **fields).result()


def connect(target):
    """A connection of one's own."""
    return grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
