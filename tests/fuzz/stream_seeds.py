# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/stream: programs of fuzz_stream.c, step by step.

    python3 tests/fuzz/stream_seeds.py
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "stream"

BYTES, REQUEST, WORK, GATHER, SENT, HALF_CLOSE, GONE, CANCEL, POSTS = range(9)
WANTS_END, CHANGED, UNKNOWN = 1, 2, 4
OUTPUT, WITHOUT, FAILING = range(3)

ANSWERED = [(REQUEST, 0, 0), (WORK, 3, OUTPUT), (GATHER,)]
# A ModelInferRequest: name, id, one input, one raw content.
MESSAGE = (b"\x0a\x01x\x1a\x01q\x2a\x0c\x0a\x01x\x12\x05UINT8\x1a\x00"
           b"\x3a\x10" + bytes(16))

SEEDS = {
    "answered": ANSWERED + [(SENT, 0)] * 4 + [(HALF_CLOSE, 0), (POSTS,)],
    "ends": [(REQUEST, 0, flags) for flags in (0, WANTS_END, UNKNOWN)]
    + [(WORK, 2, WITHOUT), (WORK, 0, WITHOUT), (WORK, 1, FAILING), (GATHER,)] * 2,
    "calls": [(REQUEST, call, WANTS_END + 16 * call) for call in (0, 1, 2, 1, 0)]
    + [(WORK, count, OUTPUT) for count in (5, 0, 9, 2, 1)] + [(GATHER,)]
    + [(HALF_CLOSE, 1), (SENT, 1), (SENT, 2), (POSTS,)],
    "unread": [(REQUEST, 0, 0), (WORK, 31, OUTPUT), (GATHER,), (SENT, 0), (GATHER,)] + ANSWERED,
    "cancelled": [(REQUEST, 0, 0), (REQUEST, 0, 1), (WORK, 4, OUTPUT), (CANCEL, 0), (GATHER,), (POSTS,)],
    "gone": ANSWERED + [(GONE, 0)] + ANSWERED + [(CANCEL, 0), (GATHER,), (POSTS,)],
    "changed": [(REQUEST, 0, CHANGED, where, 0xff) for where in range(0, 60, 3)] + [(WORK, 1, OUTPUT),
                                                                                    (GATHER,)] * 4,
    "bytes": [(BYTES, 0, len(MESSAGE), *MESSAGE, 3), (WORK, 2, OUTPUT), (GATHER,),
              (BYTES, 1, 2, 0xff, 0xff, 0), (BYTES, 2, 0, 0)],
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, steps in SEEDS.items():
        (FOLDER / f"seed-{name}").write_bytes(bytes(byte for step in steps for byte in step))
    print(f"{len(SEEDS)} seeds in {FOLDER}")
