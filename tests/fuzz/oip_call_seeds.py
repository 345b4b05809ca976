# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/oip_call: gRPC messages that name a model (fuzz_oip_call.c).

    python3 tests/fuzz/oip_call_seeds.py
"""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus" / "oip_call"


def frame(message, compressed=0, more=0):
    return struct.pack(">BI", compressed, len(message) + more) + message


def run(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


NAME, VERSION = run(1, b"echo"), run(2, b"1")
SEEDS = {
    "name": frame(NAME),
    "last": frame(VERSION + b"\x28\x96\x01" + run(1, "ä€".encode())),
    "two": frame(NAME + VERSION) + frame(NAME) + frame(b""),
    "twice": frame(NAME + run(1, b"other")),
    "number": frame(b"\x08\x01"),
    "long-length": frame(b"\x0a\x84\x80\x00echo" + VERSION),
    "group": frame(b"\x0b\x0c" + NAME),
    "zero": frame(run(1, b"a\0b")),
    "not-utf8": frame(run(1, b"\xc0\x80")),
    "compressed": frame(NAME, 1),
    "cut": frame(NAME, more=1),
    "large": b"\0\xff\xff\xff\xff" + NAME,
    "tensor": frame(NAME + run(4, run(1, b"p") + run(2, b"\x10\x02")) + run(5, run(1, b"x")) +
                    run(7, b"\1\2\3\4")),
    "timeout": b"99999999H",
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content)
