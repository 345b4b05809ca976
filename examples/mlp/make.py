#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the model files of the mlp modelet (network.h is the format).

    make.py xor.json xor.mlp
    make.py --random 64,128:relu,10:softmax --seed 1 random.mlp

The JSON is {"input": NAME, "output": NAME, "inputs": WIDTH, "layers": [{"weights": [[...], ...],
"bias": [...], "activation": NAME}, ...]}, weights by row: one row per input of the layer; the bias
may be left out. Activations: identity, relu, tanh, sigmoid, softmax. With --random the weights are
drawn, with the variance that keeps a deep network's numbers in range: for tests and measurements.
"""

import argparse
import array
import json
import os
import random
import struct
import sys

ACTIVATIONS = ["identity", "relu", "tanh", "sigmoid", "softmax"]
ALIGNMENT = 64
HEADER = struct.Struct("=8sIIQII64s64s")
LAYER = struct.Struct("=IIQQ")


def floats(numbers):
    return array.array("f", numbers).tobytes()


def encode(inputs, layers, input_name="input", output_name="output"):
    """Returns the bytes of a file; `layers` as in the JSON, with `weights` by row."""
    names = [name.encode() for name in (input_name, output_name)]
    if not all(0 < len(name) < 64 for name in names):
        raise ValueError("a tensor's name has 1 to 63 bytes")
    at = HEADER.size + LAYER.size * len(layers)
    table, areas, width = [], [], inputs

    def place(numbers):
        nonlocal at
        offset = -(-at // ALIGNMENT) * ALIGNMENT
        areas.append(bytes(offset - at) + floats(numbers))
        at = offset + 4 * len(numbers)
        return offset

    for index, layer in enumerate(layers):
        weights, bias = layer["weights"], layer.get("bias")
        outputs = len(weights[0])
        if len(weights) != width or any(len(row) != outputs for row in weights):
            raise ValueError(f"layer {index}: weights must be {width} rows of one length")
        if bias is not None and len(bias) != outputs:
            raise ValueError(f"layer {index}: the bias must have {outputs} numbers")
        offset = place([weight for row in weights for weight in row])
        table.append(LAYER.pack(outputs, ACTIVATIONS.index(layer["activation"]), offset,
                                place(bias) if bias is not None else 0))
        width = outputs
    head = HEADER.pack(b"SHOALMLP", 0x01020304, 1, at, inputs, len(layers), *names)
    return head + b"".join(table) + b"".join(areas)


def draw(words, seed):
    """Makes arguments for `encode` from "64,128:relu,10:softmax"."""
    chance = random.Random(seed)
    first, *rest = words.split(",")
    layers, width = [], int(first)
    for word in rest:
        outputs, _, activation = word.partition(":")
        spread = (2 / width) ** 0.5
        layers.append({
            "weights": [[chance.gauss(0, spread) for _ in range(int(outputs))]
                        for _ in range(width)],
            "bias": [chance.gauss(0, 0.1) for _ in range(int(outputs))],
            "activation": activation or "identity"})
        width = int(outputs)
    return {"inputs": int(first), "layers": layers}


def write(path, content):
    """Writes all or nothing: a mapped file must never be overwritten."""
    with open(f"{path}.new", "wb") as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--random", metavar="WIDTHS", help="draw a network instead of reading one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="+", help="[JSON] MODEL")
    arguments = parser.parse_args()
    if len(arguments.files) != (1 if arguments.random else 2):
        parser.error("one file to write, and one to read unless --random is given")
    try:
        if arguments.random:
            content = encode(**draw(arguments.random, arguments.seed))
        else:
            with open(arguments.files[0], encoding="utf-8") as file:
                model = json.load(file)
            content = encode(model["inputs"], model["layers"], model["input"], model["output"])
        write(arguments.files[-1], content)
    except (KeyError, OSError, ValueError) as error:
        sys.exit(f"make.py: {error!r}")


if __name__ == "__main__":
    main()
