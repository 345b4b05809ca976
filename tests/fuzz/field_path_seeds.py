# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/field_path: messages in which a string is looked for
(fuzz_field_path.c).

    python3 tests/fuzz/field_path_seeds.py
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "field_path"

NAME, ID, NESTED, ANY = 0, 1, 2, 255 - 12  # the last: sixteen bits, four fields deep


def varint(value):
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7f
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number, wire_type, content):
    return varint(number << 3 | wire_type) + content


def run(number, content):
    return field(number, 2, varint(len(content)) + content)


def seed(way, content, step=0):
    return bytes((way, step)) + content


SEEDS = {
    "name": seed(NAME, run(1, b"digits") + run(2, b"1"), step=3),
    "last-name": seed(NAME, run(1, b"first") + run(3, b"id") + run(1, b"second"), step=2),
    "no-name": seed(NAME, run(3, b"id")),
    "empty-name": seed(NAME, run(1, b"first") + run(1, b"")),
    "number-as-name": seed(NAME, field(1, 0, b"\1")),
    "id": seed(ID, run(1, b"m") + run(3, b"7") + run(7, bytes(70)), step=9),
    "nested": seed(NESTED, run(1, b"valid") + run(2, run(1, b"host")), step=3),
    "merged": seed(NESTED, run(2, run(1, b"host")) + run(2, run(3, b"file"))),
    "last-nested": seed(NESTED, run(2, run(1, b"a") + run(1, b"b")) + run(2, run(1, b"c"))),
    "empty-nested": seed(NESTED, run(2, b"")),
    "cut-nested": seed(NESTED, run(2, run(1, b"host")[:-1])),
    "fixed": seed(NESTED, field(9, 1, bytes(8)) + field(10, 5, bytes(4)) + run(2, run(1, b"h"))),
    "group": seed(NESTED, field(3, 3, b"") + field(3, 4, b"")),
    "cut": seed(NAME, run(1, b"digits")[:-1]),
    "deep": seed(ANY, run(2, run(2, run(1, run(1, b"x")))) + run(1, run(2, b"")), step=1),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content)
    print(f"{len(SEEDS)} seeds in {FOLDER}")
