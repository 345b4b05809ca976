# SPDX-License-Identifier: Apache-2.0
"""A client for tests: all rpcs of the daemon, as futures too, on what the example clients use."""

import struct
import sys

import grpc

from shoal_fixture import BUILD, SOURCE, WAIT_SECONDS

sys.path.insert(0, str(SOURCE / "examples"))
import open_inference  # noqa: E402

INFERENCE = "inference.GRPCInferenceService"
# Large answers are part of the tests; a channel to itself, so that no test sees another's
# connection.
CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                   ("grpc.use_local_subchannel_pool", 1))


class Client(open_inference.Client):
    """One connection. Every call has a deadline, so that a test that would hang fails."""

    def __init__(self, target, options=()):
        super().__init__(target, BUILD / "proto" / "shoal.desc", WAIT_SECONDS)
        self.channel.close()
        self.channel = grpc.insecure_channel(target, options=(*CHANNEL_OPTIONS, *options))
        self.classes = {}

    def type(self, name):
        """The class of the message with this full name."""
        if name not in self.classes:
            self.classes[name] = self.message(self.pool.FindMessageTypeByName(name))
        return self.classes[name]

    def stub(self, method, service=INFERENCE, kind="unary_unary"):
        descriptor = self.pool.FindServiceByName(service).methods_by_name[method]
        request = self.type(descriptor.input_type.full_name)
        response = self.type(descriptor.output_type.full_name)
        stub = getattr(self.channel, kind)(f"/{service}/{method}",
                                           request_serializer=request.SerializeToString,
                                           response_deserializer=response.FromString)
        return request, stub

    def call(self, method, timeout=WAIT_SECONDS, service=INFERENCE, **fields):
        request, stub = self.stub(method, service)
        return stub(request(**fields), timeout=timeout)

    def start(self, method, timeout=WAIT_SECONDS, service=INFERENCE, **fields):
        """The same as a future."""
        request, stub = self.stub(method, service)
        return stub.future(request(**fields), timeout=timeout)

    def start_bytes(self, method, message, timeout=WAIT_SECONDS):
        """Sends bytes as they are, to any method, known or not."""
        return self.channel.unary_unary(method).future(message, timeout=timeout)

    # ---- inference ----

    def infer_fields(self, model, inputs, raw=True, parameters=None, outputs=(), **fields):
        """`inputs`: (name, datatype, shape, contents): bytes, or a dict for typed contents."""
        tensors = [{"name": name, "datatype": datatype, "shape": shape}
                   for name, datatype, shape, _ in inputs]
        if raw:
            fields["raw_input_contents"] = [contents for *_, contents in inputs]
        else:
            for tensor, (*_, contents) in zip(tensors, inputs):
                tensor["contents"] = contents
        if parameters:
            fields["parameters"] = {name: self.type("inference.InferParameter")(**value)
                                    for name, value in parameters.items()}
        return {"model_name": model, "inputs": tensors,
                "outputs": [{"name": name} for name in outputs], **fields}

    def infer_raw(self, model, *inputs, timeout=WAIT_SECONDS, **fields):
        return self.call("ModelInfer", timeout, **self.infer_fields(model, inputs, **fields))

    def start_raw(self, model, *inputs, timeout=WAIT_SECONDS, **fields):
        return self.start("ModelInfer", timeout, **self.infer_fields(model, inputs, **fields))

    # ---- the puppet: tests/modelets/modelet_puppet.c ----

    def tell(self, text, model="puppet", timeout=WAIT_SECONDS):
        """Has the puppet do what the text says; a future."""
        return self.start_raw(model, ("say", "BYTES", [1], bytes_element(text)), timeout=timeout)


def bytes_element(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<I", len(data)) + data


def said(answer):
    """The actions that a puppet's answer reports."""
    return answer.raw_output_contents[0][4:].decode()


def said_pid(answer):
    return struct.unpack("<q", answer.raw_output_contents[1])[0]


def failure(future):
    """Code and text of a call that must fail."""
    try:
        answer = future.result()
    except grpc.RpcError as error:
        return error.code(), error.details()
    except grpc.FutureCancelledError:
        return grpc.StatusCode.CANCELLED, ""
    raise AssertionError(f"it succeeded: {str(answer)[:500]}")


def outcome(future):
    """The status code of a call that has ended, or will."""
    return future.code()
