# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/mlp and corpus/booster: model files as small as they can be.

    python3 tests/fuzz/model_seeds.py
"""

import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples" / "mlp"))
import make


def name(text):
    return b"L" + struct.pack(">q", len(text)) + text


def dense(inputs, outputs, activation, bias=True):
    layer = {"weights": [[0.5] * outputs] * inputs, "activation": activation}
    return {**layer, "bias": [0.25] * outputs} if bias else layer


DEEP = [dense(2, 2, make.ACTIVATIONS[i % 5], bias=i % 2 == 0) for i in range(12)]

WHOLE = make.encode(2, DEEP)
CUT = WHOLE[:170]  # within the table, and says so itself

SEEDS = {
    "mlp": {
        "cut-table": CUT[:16] + struct.pack("=Q", len(CUT)) + CUT[24:],
        "one": make.encode(1, [dense(1, 1, "identity", bias=False)]),
        "three": make.encode(3, [dense(3, 4, "relu"), dense(4, 5, "tanh"), dense(5, 2, "softmax")]),
        "deep": make.encode(2, DEEP, "x", "y" * 63),
    },
    "booster": {
        "json": b'{"learner":{"a":[1,2.5e3,{"b":"\\"}"}],"c":null},"version":[1,7,4]}',
        "json-space": b'{\n  "a": [ ]\n}\n',
        "ubjson": b"{" + name(b"a") + b"{" + name(b"f") + b"[$d#L" + struct.pack(">q2f", 2, 1, 2) +
                  name(b"s") + b"SL" + struct.pack(">q", 2) + b"hi" + b"}" + name(b"v") +
                  b"[i\1I\0\1L" + bytes(8) + b"TFNZ]" + b"}",
        "ubjson-counts": b"{U\1a[#i\2d" + bytes(4) + b"D" + bytes(8) + b"i\1b[$U#l\0\0\0\2ab}",
    },
}

if __name__ == "__main__":
    for corpus, seeds in SEEDS.items():
        (HERE / "corpus" / corpus).mkdir(parents=True, exist_ok=True)
        for file, content in seeds.items():
            (HERE / "corpus" / corpus / file).write_bytes(content)
