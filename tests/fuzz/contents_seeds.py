# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/contents: elements of one tensor, typed or raw (fuzz_contents.c).

    python3 tests/fuzz/contents_seeds.py
"""

import pathlib
import struct

from field_path_seeds import field, run, varint

FOLDER = pathlib.Path(__file__).parent / "corpus" / "contents"

# As the modelet ABI numbers them; the byte in a seed is one less.
TYPES = ("BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BYTES BF16").split()
VARINTS = {"BOOL": 1, "INT8": 2, "INT16": 2, "INT32": 2, "INT64": 3, "UINT8": 4, "UINT16": 4,
           "UINT32": 4, "UINT64": 5}
ALL = 255


def seed(datatype, content, raw=False, step=0, elements=ALL):
    return bytes((TYPES.index(datatype), raw, step, elements)) + content


SEEDS = {}
for name, member in VARINTS.items():
    top = 1 if name == "BOOL" else 127
    below = varint((1 << 64) - 100) if name.startswith("INT") else varint(0)
    SEEDS[f"packed-{name}"] = seed(name, run(member, varint(1) + varint(top) + below), step=3)
    SEEDS[f"single-{name}"] = seed(name, field(member, 0, varint(top)) + field(member, 0, below))
SEEDS["too-large"] = seed("INT8", run(2, varint(128)))
SEEDS["packed-FP32"] = seed("FP32", run(6, struct.pack("<3f", 1, -2.5, 3)), step=5)
SEEDS["single-FP32"] = seed("FP32", field(6, 5, struct.pack("<f", 7)))
SEEDS["packed-FP64"] = seed("FP64", run(7, struct.pack("<2d", 1, -2.5)), step=5)
SEEDS["single-FP64"] = seed("FP64", field(7, 1, struct.pack("<d", 7)))
SEEDS["odd-FP64"] = seed("FP64", run(7, bytes(11)))
SEEDS["typed-BYTES"] = seed("BYTES", run(8, b"ab") + run(8, b"") + run(8, b"shoal"), step=2)
SEEDS["both"] = seed("INT32", run(2, b"\1") + run(3, b"\1"))
SEEDS["no-member"] = seed("FP16", run(6, bytes(4)), elements=1)
SEEDS["wire-type"] = seed("INT32", field(2, 5, bytes(4)))
SEEDS["unknown"] = seed("INT64", run(9, b"xy") + run(3, b"\5"))
SEEDS["cut"] = seed("INT64", run(3, b"\5\6")[:-1])
SEEDS["raw-FP16"] = seed("FP16", bytes(6), raw=True, elements=3)
SEEDS["raw-BYTES"] = seed("BYTES", struct.pack("<I2sI", 2, b"ab", 0), raw=True, elements=2, step=3)
SEEDS["raw-BYTES-cut"] = seed("BYTES", struct.pack("<I2s", 9, b"ab"), raw=True, elements=1)

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content)
    print(f"{len(SEEDS)} seeds in {FOLDER}")
