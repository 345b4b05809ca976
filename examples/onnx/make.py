#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX files without any package: dense networks, or any model by its functions.

    make.py ../mlp/xor.json xor.onnx
    make.py --folder ../mlp/xor.json xor

The JSON is that of ../mlp/make.py. With --folder the weights are in a file of their own, as large
models have them: xor/model.onnx and xor/weights.bin, where each begins at a multiple of 4096.

ONNX is Protocol Buffers: numbered fields, each a varint or a length and bytes. The functions below
write a model's messages with the field numbers of onnx.proto; `model` writes the whole.
"""

import argparse
import array
import json
import os
import pathlib
import sys

FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, UINT32, UINT64 = \
    range(1, 14)
BFLOAT16 = 16
PAGE = 4096
OPERATORS = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softmax": "Softmax"}


def varint(number):
    number &= (1 << 64) - 1
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def field(number, value):
    """A field of a message: an int, a text, or bytes, which may be a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def initializer(name, element, shape, raw=None, location=None, offset=0, length=0):
    """A constant: its bytes, or where they are in another file."""
    message = b"".join(field(1, size) for size in shape) + field(2, element) + field(8, name)
    if location is None:
        return message + field(9, raw)
    places = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in places.items():
        message += field(13, field(1, key) + field(2, value))
    return message + field(14, 1)


def value(name, element, shape):
    """An input or output. A dimension is a number, or the name of one that is open."""
    dims = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, dims)))


def node(operator, inputs, outputs, **integers):
    message = b"".join(field(1, name) for name in inputs)
    message += b"".join(field(2, name) for name in outputs) + field(4, operator)
    for name, number in integers.items():
        message += field(5, field(1, name) + field(3, number) + field(20, 2))
    return message


def model(nodes, inputs, outputs, initializers=(), opset=17):
    graph = b"".join(field(1, one) for one in nodes) + field(2, "graph")
    graph += b"".join(field(5, one) for one in initializers)
    graph += b"".join(field(11, one) for one in inputs)
    graph += b"".join(field(12, one) for one in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(2, opset))


def dense(inputs, layers, input_name="input", output_name="output", weights_file=None):
    """Returns a model of dense layers, described as for ../mlp/make.py, and the bytes of its file
    of weights, if any."""
    nodes, constants, apart = [], [], bytearray()
    width, last = inputs, input_name

    def place(name, shape, numbers):
        raw = array.array("f", numbers).tobytes()
        if weights_file is None:
            constants.append(initializer(name, FLOAT, shape, raw))
            return
        apart.extend(bytes(-len(apart) % PAGE))
        constants.append(initializer(name, FLOAT, shape, None, weights_file, len(apart), len(raw)))
        apart.extend(raw)

    for index, layer in enumerate(layers):
        weights = layer["weights"]
        outputs = len(weights[0])
        place(f"W{index}", [width, outputs], [weight for row in weights for weight in row])
        steps = [("MatMul", [f"W{index}"])]
        if layer.get("bias") is not None:
            place(f"b{index}", [outputs], layer["bias"])
            steps.append(("Add", [f"b{index}"]))
        if layer["activation"] != "identity":
            steps.append((OPERATORS[layer["activation"]], []))
        for operator, constant in steps:
            result = f"{operator}{index}"
            nodes.append(node(operator, [last] + constant, [result]))
            last = result
        width = outputs
    nodes.append(node("Identity", [last], [output_name]))
    return model(nodes, [value(input_name, FLOAT, ["batch", inputs])],
                 [value(output_name, FLOAT, ["batch", width])], constants), bytes(apart)


def write(path, content):
    """Writes all or nothing: a mapped file must never be overwritten."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def write_dense(path, folder=False, **network):
    path = pathlib.Path(path)
    content, weights = dense(**network, weights_file="weights.bin" if folder else None)
    if not folder:
        write(path, content)
        return
    path.mkdir(exist_ok=True)
    write(path / "weights.bin", weights)
    write(path / "model.onnx", content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", action="store_true", help="weights in a file of their own")
    parser.add_argument("json")
    parser.add_argument("model")
    arguments = parser.parse_args()
    try:
        with open(arguments.json, encoding="utf-8") as file:
            network = json.load(file)
        write_dense(arguments.model, arguments.folder, inputs=network["inputs"],
                    layers=network["layers"], input_name=network["input"],
                    output_name=network["output"])
    except (KeyError, OSError, ValueError) as error:
        sys.exit(f"make.py: {error!r}")


if __name__ == "__main__":
    main()
