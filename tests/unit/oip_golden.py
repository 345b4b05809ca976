#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random requests as Google's own library writes them, and what a stage is to see of each.

    oip_golden.py DESCRIPTORS SEED COUNT > FILE

For each request: its length in 4 bytes and itself, then the same of what payload_rig_bytes() gives
for it. The elements are put into raw form with `struct` here, without any of our code.
"""

import random
import struct
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Datatype -> its number in the ABI, struct's letter, member of InferTensorContents (None: raw only).
DATATYPES = {
    "BOOL": (1, "?", "bool_contents"), "UINT8": (2, "B", "uint_contents"),
    "UINT16": (3, "H", "uint_contents"), "UINT32": (4, "I", "uint_contents"),
    "UINT64": (5, "Q", "uint64_contents"), "INT8": (6, "b", "int_contents"),
    "INT16": (7, "h", "int_contents"), "INT32": (8, "i", "int_contents"),
    "INT64": (9, "q", "int64_contents"), "FP16": (10, "e", None),
    "FP32": (11, "f", "fp32_contents"), "FP64": (12, "d", "fp64_contents"),
    "BYTES": (13, None, "bytes_contents"),
}


def request_class(path):
    pool = descriptor_pool.DescriptorPool()
    with open(path, "rb") as file:
        for descriptor in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
            pool.Add(descriptor)
    found = pool.FindMessageTypeByName("inference.ModelInferRequest")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(pool).GetPrototype(found)  # before protobuf 4.22


def element(letter):
    if letter is None:
        return random.randbytes(random.randrange(20))
    if letter == "?":
        return random.random() < 0.5
    if letter in "efd":
        # Exact in all three, so that no rounding is a matter here.
        return random.randrange(-2000, 2000) / 4
    bits = 8 * struct.calcsize("<" + letter)
    low = -(1 << (bits - 1)) if letter.islower() else 0
    high = low + (1 << bits) - 1
    return random.choice([low, high, 0, random.randint(low, high)])


def raw_form(letter, elements):
    if letter is None:
        return b"".join(struct.pack("<I", len(text)) + text for text in elements)
    return struct.pack(f"<{len(elements)}{letter}", *elements)


def add_input(request, number, is_raw):
    """Adds a random tensor; returns what is to be seen of it."""
    name = f"tensor-{number}-é" * random.randrange(1, 4)
    datatype = random.choice([one for one in DATATYPES if is_raw or DATATYPES[one][2]])
    code, letter, member = DATATYPES[datatype]
    shape = [random.choice([0, 1, 2, 3, 7]) for _ in range(random.randrange(0, 4))]
    count = 1
    for dimension in shape:
        count *= dimension
    elements = [element(letter) for _ in range(count)]
    tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
    tensor.parameters["ours"].bool_param = True
    raw = raw_form(letter, elements)
    if is_raw:
        request.raw_input_contents.append(raw)
    else:
        getattr(tensor.contents, member).extend(elements)
    return (name.encode() + b"\0" + struct.pack(f"<II{len(shape)}q", code, len(shape), *shape) +
            struct.pack("<Q", len(raw)) + raw)


def main():
    message = request_class(sys.argv[1])
    random.seed(int(sys.argv[2]))
    for _ in range(int(sys.argv[3])):
        request = message(model_name="m" * random.randrange(1, 100), id="x" * random.randrange(9))
        is_raw = random.random() < 0.5
        seen = b"".join(add_input(request, i, is_raw) for i in range(random.randrange(1, 9)))
        parameters = random.randrange(4)
        for i in range(parameters):
            request.parameters[f"p{i}"].string_param = "ü" * i
        seen += struct.pack("<H", parameters)
        for run in (request.SerializeToString(), seen):
            sys.stdout.buffer.write(struct.pack("<I", len(run)) + run)


if __name__ == "__main__":
    main()
