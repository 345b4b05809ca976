# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/json: requests with binary data or without (fuzz_json.c).

    python3 tests/fuzz/json_seeds.py
"""

import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus" / "json"

VALUES = {
    "BOOL": [True, False], "UINT8": [0, 255], "UINT16": [0, 65535], "UINT32": [0, 2**32 - 1],
    "UINT64": [2**63, 2**64 - 1], "INT8": [-128, 127], "INT16": [-2**15, 2**15 - 1],
    "INT32": [-2**31, 2**31 - 1], "INT64": [-2**63, 2**63 - 1], "FP32": [0.1, -1e-45],
    "FP64": [5e-324, 1.5e300], "BYTES": ["a\"\\\u00e4\U0001f600", "\n\0"],
}


def tensor(name, datatype, shape, data=None, **parameters):
    members = {"name": name, "datatype": datatype, "shape": shape}
    if parameters:
        members["parameters"] = parameters
    if data is not None:
        members["data"] = data
    return members


def seed(binary=b"", text=None, **members):
    return bytes([len(binary)]) + (text or json.dumps(members)).encode() + binary


def output(name, **parameters):
    return {"name": name, "parameters": parameters} if parameters else {"name": name}


SEEDS = {f"json-{kind}": seed(inputs=[tensor("x", kind, [2], values)])
         for kind, values in VALUES.items()}
SEEDS |= {
    "nested": seed(inputs=[tensor("x", "INT8", [2, 1, 2], [[[1, 2]], [[3, 4]]])]),
    "empty": seed(inputs=[tensor("x", "INT8", [3, 0], [[], [], []])]),
    "words": seed(inputs=[tensor("x", "FP32", [3], ["NaN", "Infinity", "-Infinity"])]),
    "base64": seed(inputs=[tensor("x", "BYTES", [1], ["AP8="], content_type="base64")],
                   outputs=[output("x", content_type="base64")]),
    "escaped-key": seed(text='{"inputs":[{"d\\u0061ta":[1],"name":"x","datatype":"INT8",'
                             '"shape":[1]}]}'),
    "parameters": seed(id="an id", parameters={"a": 1, "b": 1.5, "c": "d", "e": True, "timeout": 5,
                                               "priority": 1}, inputs=[]),
    "many": seed(inputs=[tensor(f"x{i}", "UINT8", [1], [i]) for i in range(8)],
                 outputs=[output(f"x{i}", binary_data=i % 2 == 0) for i in (3, 1, 2)]),
    "binary": seed(struct.pack("<3h", 1, -1, 7), parameters={"binary_data_output": True}, inputs=[
        tensor("x", "INT16", [2], binary_data_size=4), tensor("y", "INT8", [1], [5]),
        tensor("z", "FP16", [1], binary_data_size=2)]),
    "binary-BYTES": seed(struct.pack("<I2sI", 2, b"ab", 0), inputs=[
        tensor("x", "BYTES", [2], binary_data_size=10)]),
    "shared": seed(inputs=[
        tensor("x", "INT16", [2], shared_memory_region="r", shared_memory_byte_size=4),
        tensor("y", "BYTES", [2], shared_memory_region="s", shared_memory_byte_size=8, shared_memory_offset=512),
        tensor("z", "INT8", [1], [5])],
        outputs=[output("z"), output("x", shared_memory_region="r", shared_memory_byte_size=4, shared_memory_offset=8)]),
    "cut": seed(text='{"inputs":[{"data":[[1,2'),
    "deep": seed(text='{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":' + "[" * 40),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content)
