# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/http2: frames of clients, whose first byte says how they are cut
(fuzz_http2.c).

    python3 tests/fuzz/http2_seeds.py
"""

import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "http2"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(path, method=b"POST", *fields):
    return (literal(b":method", method) + b"\x86" + literal(b":path", path)
            + literal(b":authority", b"x") + b"".join(literal(*field) for field in fields))


def request(stream, path, body=None, method=b"POST", *fields):
    frames = frame(HEADERS, END_HEADERS | (END_STREAM if body is None else 0), stream,
                   head(path, method, *fields))
    return frames if body is None else frames + frame(DATA, END_STREAM, stream, body)


HELLO = frame(SETTINGS) + frame(SETTINGS, 1)
SEEDS = {
    "get": request(1, b"/", method=b"GET"),
    "post": request(1, b"/x", b"a body", b"POST", (b"content-length", b"6")),
    "many": b"".join(request(1 + 2 * i, path, b"abc" * i) for i, path in
                     enumerate((b"/s", b"/p", b"/k", b"/e", b"/x", b"/s", b"/p", b"/k", b"/k"))),
    "paused": frame(HEADERS, END_HEADERS, 1, head(b"/p")) + frame(DATA, 0, 1, b"abc")
    + frame(DATA, 0, 1, b"abcdef") + frame(DATA, END_STREAM, 1, b"abc"),
    "reset": request(1, b"/k") + frame(RESET, 0, 1, b"\0\0\0\x08") + request(3, b"/s", b"x"),
    "trailers": frame(HEADERS, END_HEADERS, 1, head(b"/s")) + frame(DATA, 0, 1, b"abc")
    + frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"a", b"b")),
    "continuation": frame(HEADERS, END_STREAM, 1, head(b"/x")[:9])
    + frame(CONTINUATION, END_HEADERS, 1, head(b"/x")[9:]),
    "padded": frame(HEADERS, END_HEADERS, 1, head(b"/s"))
    + frame(DATA, PADDED | END_STREAM, 1, b"\x04abcd\0\0\0\0"),
    "windows": frame(SETTINGS, 0, 0, b"\0\x04\0\0\0\x05") + request(1, b"/s", b"a" * 100)
    + frame(WINDOW, 0, 1, b"\0\0\0\x10") + frame(WINDOW, 0, 0, b"\0\0\0\x10"),
    "cookies": request(1, b"/x", None, b"GET", (b"cookie", b"a"), (b"cookie", b"b")),
    "expect": frame(HEADERS, END_HEADERS, 1, head(b"/x", b"POST", (b"expect", b"100-continue")))
    + frame(DATA, END_STREAM, 1, b"x"),
    "large": request(1, b"/x", b"a" * 1001) + request(3, b"/s", b"b" * 1001),
    "goaway": request(1, b"/k") + frame(PING, 0, 0, b"12345678") + frame(GOAWAY, 0, 0, bytes(8)),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for at, (name, data) in enumerate(SEEDS.items()):
        (FOLDER / name).write_bytes(bytes([at * 16 % 224]) + HELLO + data)
