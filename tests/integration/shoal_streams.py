# SPDX-License-Identifier: Apache-2.0
"""A caller of ModelStreamInfer, and what it sends to the modelets that answer in pieces: the tests'
probe (tests/modelets/probe.h) and the example `repeat`."""

import queue
import struct

from shoal_fixture import WAIT_SECONDS

PATH = "/inference.GRPCInferenceService/ModelStreamInfer"
EMIT = 18  # enum probe_command
ANSWER, NOTHING, FAIL, _, _, ENDLESS, LARGE, WIDE, WAIT = range(9)  # enum probe_ending
WORDS = 10  # of its answers


def argument(pieces, ending=ANSWER, pause_ms=0):
    return pieces | pause_ms << 16 | ending << 32


def emission(pieces, ending=ANSWER, tag=0, pause_ms=0):
    return "probe", "INT64", [3], struct.pack("<3q", EMIT, argument(pieces, ending, pause_ms), tag)


def repeat(values, delay=0):
    count = len(values)
    return (("IN", "INT32", [count], struct.pack(f"<{count}i", *values)),
            ("DELAY", "UINT32", [count], struct.pack(f"<{count}I", *[delay] * count)),
            ("WAIT", "UINT32", [1], struct.pack("<I", 0)))


def is_final(message):
    return message.infer_response.parameters["triton_final_response"].bool_param


def words(message):
    raw, = message.infer_response.raw_output_contents
    return struct.unpack(f"<{WORDS}q", raw)


class Stream:
    """One call of ModelStreamInfer, whose requests are sent one by one."""

    def __init__(self, client, timeout=WAIT_SECONDS):
        self.requests = queue.SimpleQueue()
        self.client = client
        self.request, stub = client.stub("ModelStreamInfer", kind="stream_stream")
        self.call = stub(iter(self.requests.get, None), timeout=timeout)

    def send(self, model, *inputs, empty_final=False, **fields):
        if empty_final:
            fields["parameters"] = {"triton_enable_empty_final_response": {"bool_param": True}}
        self.requests.put(self.request(**self.client.infer_fields(model, inputs, **fields)))

    def half_close(self):
        self.requests.put(None)

    def read(self):
        return next(self.call)

    def read_all(self):
        self.half_close()
        return list(self.call)
