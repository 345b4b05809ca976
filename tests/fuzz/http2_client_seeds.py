# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/http2_client: what a server of HTTP/2 says to the client, and what the
client's user does meanwhile (fuzz_http2_client.c).

    python3 tests/fuzz/http2_client_seeds.py
"""

import pathlib
import struct

from http2_seeds import (CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING,
                         RESET, SETTINGS, WINDOW, frame, literal)
from http2_seeds import head as request_head

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "http2_client"
START, SEND, END, CANCEL, RESUME, CLOSE, READ = range(1, 8)
CALM, AT_HEAD, AT_PIECE, PAUSES, OTHERS, RESTARTS = range(6)
PUSH = 5
OK = b"\x88"  # :status: 200


def do(step, rest=0):
    return bytes([8 * rest + step])


def say(*frames):
    said = b"".join(frames)
    return b"\0" + struct.pack("<H", len(said)) + said


def head(stream, block=OK + literal(b"content-type", b"application/grpc"), flags=0):
    return frame(HEADERS, END_HEADERS | flags, stream, block)


def trailers(stream, *fields):
    return head(stream, b"".join(literal(*field) for field in fields or [(b"grpc-status", b"0")]),
                END_STREAM)


def number(value):
    return struct.pack(">I", value)


HELLO = frame(SETTINGS) + frame(SETTINGS, 1)
CALL = do(START) + do(SEND, 0) + do(END, 0)
ANSWER = head(1) + frame(DATA, 0, 1, b"\0\0\0\0\1x")
SEEDS = {
    "answer": CALL + say(HELLO, ANSWER, trailers(1)) + do(START) + say(head(3, flags=END_STREAM)),
    "head_alone": CALL + say(HELLO, trailers(1, (b":status", b"200"), (b"grpc-status", b"14"))),
    "goaway": 3 * CALL + say(HELLO, ANSWER, frame(GOAWAY, 0, 0, number(1) + number(0)))
    + do(START) + say(HELLO),
    "goaway_kept": CALL + say(HELLO, ANSWER, trailers(1)) + do(START)
    + say(frame(GOAWAY, 0, 0, number(1) + number(0))) + do(CLOSE),
    "refused": 2 * do(START) + say(HELLO, frame(RESET, 0, 1, number(7)), frame(RESET, 0, 3, number(8))),
    "reset_within": do(START) + say(HELLO, ANSWER, frame(RESET, 0, 1, number(2))),
    "two_heads": do(START) + say(HELLO, head(1), head(1), head(1)),
    "interim": do(START) + say(HELLO, head(1, literal(b":status", b"100")), ANSWER, trailers(1)),
    "large_head": do(START) + say(HELLO, head(1, OK + 3 * literal(b"a", 120 * b"x"))),
    "large_trailers": do(START) + say(HELLO, ANSWER, trailers(1, *[(b"a", 120 * b"x")] * 6)),
    "windows": do(START) + say(HELLO, frame(WINDOW, 0, 1, number(0x7fffffff)),
                               frame(WINDOW, 0, 0, number(0x7fffffff))),
    "small_windows": do(START) + say(frame(SETTINGS, 0, 0, b"\0\x04" + number(5))) + do(SEND)
    + do(END) + say(frame(WINDOW, 0, 1, number(100)), frame(SETTINGS, 0, 0, b"\0\x04" + number(1 << 16)))
    + do(READ),
    "streams": 4 * do(START) + say(frame(SETTINGS, 0, 0, b"\0\x03" + number(1))) + 3 * do(START)
    + do(CANCEL, 2) + say(HELLO),
    "no_streams": do(START) + say(frame(SETTINGS, 0, 0, b"\0\x03" + number(0))) + 2 * do(START),
    "after_end": do(START) + say(HELLO, ANSWER, trailers(1), frame(DATA, 0, 1, b"x"), trailers(1)),
    "paused": do(START, PAUSES) + say(HELLO, ANSWER, *[frame(DATA, 0, 1, 1000 * b"x")] * 20)
    + do(RESUME) + say(trailers(1)),
    "cancelled": b"".join(do(START, habit) for habit in (AT_HEAD, AT_PIECE, OTHERS, RESTARTS))
    + say(HELLO, *[head(1 + 2 * i) + frame(DATA, 0, 1 + 2 * i, b"x") + trailers(1 + 2 * i)
                   for i in range(4)]),
    "push": do(START) + say(frame(SETTINGS), frame(PUSH, END_HEADERS, 1, number(2) + request_head(b"/pushed")),
                            ANSWER, trailers(1)),
    "parts": do(START) + say(HELLO, frame(HEADERS, 0, 1, OK), frame(CONTINUATION, END_HEADERS, 1, b""),
                             frame(DATA, PADDED | END_STREAM, 1, b"\x04abcd\0\0\0\0"),
                             frame(PING, 0, 0, b"12345678")),
    "no_http2": do(START) + say(b"HTTP/1.1 400 Bad Request\r\n\r\n") + do(START) + do(CLOSE),
    "lost": do(START) + do(SEND, 1) + say(HELLO, ANSWER) + do(CLOSE) + do(START, RESTARTS) + do(CLOSE),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (FOLDER / name).write_bytes(data)
