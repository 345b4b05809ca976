# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/peer (frames between nodes) and corpus/id_inject (messages that an id is put into).

    python3 tests/fuzz/peer_seeds.py
"""

import pathlib

from field_path_seeds import field, run, varint

FOLDER = pathlib.Path(__file__).parent / "corpus"


def number(tag, value):
    return field(tag, 0, varint(value))


PAIR = run(1, b"x-key") + run(2, b"value")
TRIED = run(1, b"node-b") + number(2, 1700000000000) + number(3, 1)
CALL = (number(1, 1 << 14) + run(2, b"/x.Y/Z") + run(3, b"model") + number(4, 77) + number(5, 2) +
        number(6, 2000000) + number(7, 5) + run(8, TRIED) + run(8, TRIED) + run(9, PAIR))
OPEN = CALL + number(10, 2)
MESSAGE = number(1, 1 << 14) + number(2, 1) + number(4, 5)
FIGURES = (number(1, 131072) + number(2, 4096) + number(3, (1 << 63) - 1) + number(4, 3) +
           number(5, 1) + number(6, 2000) + number(7, 1))
ANSWER = (number(1, 1 << 14) + number(2, 1) + number(3, 13) + run(4, b"why") + number(5, 1) +
          number(6, 5) + run(7, PAIR) + run(8, PAIR) + run(9, FIGURES))
# A message of one frame each, and how it is cut.
ALONE = {
    "hello": b"\0" + run(1, number(1, 1) + run(2, b"node-a") + run(3, b"node-b") + number(4, 42)),
    "call": b"\0" + run(2, CALL) + run(15, b"hello"),
    "call-cut": b"\5" + run(2, CALL) + run(15, b"hello"),
    "payload-first": b"\3" + run(15, b"hello") + run(2, CALL),
    "part": b"\0" + run(3, number(1, 1 << 14)) + run(15, b"more"),
    "answer": b"\0" + run(4, ANSWER) + run(15, b"hello"),
    "cancel": b"\0" + run(5, number(1, 1 << 14)),
    "ensure": b"\0" + run(6, run(1, b"model") + number(2, 42) + number(3, 2) + number(4, 3) +
                          number(5, 1 << 40)),
    "call-open": b"\0" + run(2, OPEN) + run(15, b"hello"),
    "message": b"\0" + run(7, MESSAGE + number(3, 1)) + run(15, b"hello"),
    "message-initial": b"\4" + run(7, MESSAGE + run(5, PAIR) + run(5, PAIR)) + run(15, b"hello"),
    "half-close": b"\0" + run(7, number(1, 1 << 14) + number(3, 1)),
    "credit": b"\0" + run(8, number(1, 1 << 14) + number(2, 131072)),
    "hello-clock": b"\0" + run(1, number(1, 2) + run(2, b"a") + run(3, b"b") + number(5, 1)),
    "clock": b"\0" + run(9, number(1, 42) + number(2, 1700000000000) + number(3, 1700000000001) + number(4, 1)),
    "call-empty": b"\0" + run(2, CALL.replace(number(7, 5), b"") + number(10, 3)),
    "call-awaited": b"\0" + run(2, CALL.replace(number(7, 5), b"") + number(10, 4)),
    "shape-beyond": b"\0" + run(2, number(10, 5)),
    "two-kinds": b"\0" + run(5, b"") + run(3, b""),
    "no-kind": b"\0" + run(15, b"hello"),
    "hop-beyond": b"\0" + run(2, number(5, 3)),
    "no-utf8": b"\0" + run(2, run(3, b"\xff")),
}
FRAMES = {name: run(1, content[1:]) for name, content in ALONE.items()}
PEER = {name: content[:1] + FRAMES[name] for name, content in ALONE.items()} | {
    "together": b"\7" + FRAMES["call"] + FRAMES["cancel"] + FRAMES["answer"] + FRAMES["part"],
    "together-cut": b"\0" + (FRAMES["call"] + FRAMES["call-open"])[:-1],
    "together-bad": b"\0" + FRAMES["credit"] + FRAMES["two-kinds"],
    "no-frame": b"\0" + FRAMES["call"] + run(2, CALL),
    "nothing": b"\0",
}
ID = {
    "there": b"\0\0\3" + run(1, b"former") + run(2, b"else"),
    "not-there": b"\0\3\3" + run(2, b"else"),
    "nested": b"\1\5\2" + run(1, run(1, b"a") + run(2, b"b")) + run(1, run(2, b"c")),
    "nested-not-there": b"\2\0\1" + run(1, run(2, b"c")) + run(2, b"d"),
    "longer": b"\1\0\xff" + run(1, run(1, b"a")) + run(2, bytes(200)),
    "empty": b"\3\0\1",
    "cut": b"\0\0\1" + run(1, b"abc")[:-1],
}

if __name__ == "__main__":
    for folder, seeds in (("peer", PEER), ("id_inject", ID)):
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (FOLDER / folder / name).write_bytes(content)
        print(f"{len(seeds)} seeds in {FOLDER / folder}")
