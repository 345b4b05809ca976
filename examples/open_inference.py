# SPDX-License-Identifier: Apache-2.0
"""A client of the Open Inference Protocol on Debian's python3-grpcio, for the example clients.

There are no generated stubs: the message classes are made at run time from the descriptors that the
build wrote (<build>/proto/shoal.desc).
"""

import argparse
import array
import math
import os
import pathlib

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "inference.GRPCInferenceService"
# Datatypes that Python's array module supports.
TYPECODES = {
    "BOOL": "B", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d",
}


def parser(description, target):
    """Returns the options that all example clients have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--target", default=target, help="unix:/path or host:port [%(default)s]")
    options.add_argument("--timeout", type=float, default=10, help="seconds per call [%(default)s]")
    options.add_argument("--descriptors", type=pathlib.Path, default=default_descriptors(),
                         help="descriptor set of the protocol [%(default)s]")
    return options


def default_descriptors():
    build = os.environ.get("SHOAL_BUILD_DIR")
    if build is None:
        build = pathlib.Path(__file__).resolve().parents[1] / "build" / "release"
    return pathlib.Path(build) / "proto" / "shoal.desc"


class Client:
    """One connection; `infer` maps input tensors to output tensors."""

    def __init__(self, target, descriptors, timeout=10):
        self.timeout = timeout
        self.pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file:
            self.pool.AddSerializedFile(file.SerializeToString())
        self.methods = self.pool.FindServiceByName(SERVICE).methods_by_name
        self.channel = grpc.insecure_channel(target)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def message(self, descriptor):
        """Returns a message's class: the function for it moved in protobuf 4."""
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(descriptor)
        return message_factory.MessageFactory(self.pool).GetPrototype(descriptor)

    def call(self, method, **fields):
        """One unary call; waits for the server within the time-out. Raises grpc.RpcError."""
        descriptor = self.methods[method]
        request = self.message(descriptor.input_type)
        response = self.message(descriptor.output_type)
        stub = self.channel.unary_unary(f"/{SERVICE}/{method}", request.SerializeToString,
                                        response.FromString)
        return stub(request(**fields), timeout=self.timeout, wait_for_ready=True)

    def infer(self, model, inputs):
        """`inputs`: name -> (datatype, shape, values); returns the outputs in the same form."""
        answer = self.call("ModelInfer", **request_fields(model, inputs))
        return {output.name: (output.datatype, list(output.shape), decode(output, contents))
                for output, contents in zip(answer.outputs, answer.raw_output_contents)}

    def stream(self, model, inputs):
        """Yields the messages of an answer in pieces as they come."""
        descriptor = self.methods["ModelStreamInfer"]
        request = self.message(descriptor.input_type)(**request_fields(model, inputs))
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        stub = self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer",
                                          type(request).SerializeToString,
                                          self.message(descriptor.output_type).FromString)
        yield from stub(iter([request]), timeout=self.timeout, wait_for_ready=True)


def request_fields(model, inputs):
    return {"model_name": model,
            "inputs": [{"name": name, "datatype": datatype, "shape": shape}
                       for name, (datatype, shape, _) in inputs.items()],
            "raw_input_contents": [array.array(TYPECODES[datatype], values).tobytes()
                                   for datatype, _, values in inputs.values()]}


def decode(output, contents):
    values = array.array(TYPECODES[output.datatype])
    values.frombytes(contents)
    if len(values) != math.prod(output.shape):
        raise ValueError(f"output {output.name}: {len(values)} values, shape {output.shape}")
    return values.tolist()
