# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/mesh_id: calls of a mesh, with ids in metadata and in the message (fuzz_mesh_id.c).

    python3 tests/fuzz/mesh_id_seeds.py
"""

import pathlib

from field_path_seeds import run

FOLDER = pathlib.Path(__file__).parent / "corpus" / "mesh_id"

MODEL, MODEL_BIN, VMODEL, OLD, VMODEL_BIN = range(5)  # keys, as in fuzz_mesh_id.c
REQUIRED, OTHER = 7, 14
LONG_FROM = 220
HEADER, FIELD, NESTED, VMODEL_FIELD = 0, 1, 2 | 1 << 3, 1 | 0x80  # no path; 1; 1.2; 1 of a vmodel


def packed_length(value):
    return len(value) if len(value) < LONG_FROM else LONG_FROM + len(value) // 32


def seed(way, entries, message=b"", step=0):
    packed = b"".join(bytes((key, packed_length(value))) + value for key, value in entries)
    return bytes((way, step, len(entries))) + packed + message


SEEDS = {
    "none": seed(HEADER, [(OTHER, b"x")]),
    "model": seed(HEADER, [(MODEL, b"digits"), (OTHER, b"x")], b"message"),
    "model-bin": seed(HEADER, [(MODEL_BIN, "Fläche".encode())]),
    "both-forms": seed(HEADER, [(MODEL_BIN, b"\xff"), (MODEL, b"digits")]),
    "vmodels": seed(HEADER, [(VMODEL, b"w"), (OTHER, b"x"), (VMODEL, b"v"), (VMODEL, b"w")]),
    "vmodel-bin": seed(HEADER, [(VMODEL_BIN, b"w"), (OLD, b"m"), (VMODEL_BIN, b"v")]),
    "both-kinds": seed(HEADER, [(VMODEL, b"v"), (MODEL, b"m")]),
    "old": seed(HEADER, [(OLD, b"a"), (OLD, b"c"), (REQUIRED, b"all")]),
    "old-last": seed(HEADER, [(OLD, b"a"), (MODEL, b"m"), (OLD, b"")]),
    "empty": seed(HEADER, [(MODEL, b"m"), (MODEL, b"")]),
    "empty-vmodel": seed(HEADER, [(VMODEL_BIN, b"")]),
    "longest": seed(HEADER, [(MODEL, bytes([97]) * 1024)]),
    "too-long": seed(HEADER, [(MODEL, bytes([97]) * 1056)]),
    "zero": seed(HEADER, [(MODEL_BIN, b"a\0b")]),
    "no-utf8": seed(HEADER, [(MODEL_BIN, b"\xed\xa0\x80")]),
    "most": seed(HEADER, [(MODEL, b"m")] * 64),
    "too-many": seed(HEADER, [(MODEL, b"m")] * 65),
    "field": seed(FIELD, [(MODEL, b"else")], run(1, b"digits") + run(2, b"1"), step=5),
    "field-empty": seed(FIELD, [(MODEL, b"a"), (MODEL, b"b")], run(1, b"") + run(2, b"1"), step=2),
    "field-absent": seed(NESTED, [(MODEL_BIN, b"a"), (MODEL_BIN, b"bc")], run(2, b"tensor"), step=9),
    "field-among": seed(NESTED, [(MODEL, b"a")], run(2, bytes(40)) + run(1, run(1, b"x")) + run(2, b"y"), step=9),
    "field-cut": seed(FIELD, [(MODEL, b"a")], run(1, b"digits")[:-1]),
    "field-no-utf8": seed(FIELD, [(MODEL, b"a")], run(1, b"\xff")),
    "field-nested": seed(NESTED, [], run(1, run(2, b"digits")) + run(1, run(1, b"x")), step=3),
    "field-vmodel": seed(VMODEL_FIELD, [], run(1, b"v")),
    "field-vmodel-absent": seed(VMODEL_FIELD, [(MODEL, b"m")], run(2, b"v")),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content)
    print(f"{len(SEEDS)} seeds in {FOLDER}")
