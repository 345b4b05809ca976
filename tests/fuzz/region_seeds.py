# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/region: programs of fuzz_region.c, step by step (region_steps.h).

    python3 tests/fuzz/region_seeds.py

The files named seed-* are made here; others there are finds of the fuzzer, which stay as they are.
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "region"

(SUBMIT, WORK, GATHER, DIE, AUDIT, FAIL_STAGE, CANCEL, GIVE_BACK, ATTACH, LOOK, WAKE, WRITE, FORGE,
 SWAP, TEXT, FORGE_PIECE) = range(16)
SMALL, MIDDLE, LARGE, OTHER_OUTPUT, CUT = range(5)
LATE = 0xf0
PIECES, SLOW = 5, 10  # callers, with any kind
FORWARDS, COPIES, FAILS, STOPS_FIRST, STOPS_LAST, EMITS, STOPS_EMITTING = range(7)
(SLOT_WORD, CELL, HEAD, TAIL, BLOCK_WORD, DESCRIPTOR, SLOT_FIELD, STAGE, SEAT, HEADER, BLOCK,
 ANYWHERE, PIECE) = range(13)
ANY, BIT, NEAR, NEAR_GENERATION, COPY, SMALL_VALUE, WORD, FULL_CELL = range(8)
RESULTS, ERRORS, FREE = 2, 3, 4

SERVED = [(SUBMIT, SMALL), (WORK, 0, FORWARDS), (WORK, 2, FORWARDS), (GATHER,)]
IN_BOTH = [(SUBMIT, SMALL), (SUBMIT, MIDDLE), (SUBMIT, SMALL), (WORK, 0, FORWARDS),
           (WORK, 1, STOPS_LAST)]
STREAMED = [(SUBMIT, PIECES + SMALL), (WORK, 0, FORWARDS), (WORK, 2, EMITS, 4), (GATHER,)]
EMITTED = [(SUBMIT, PIECES + SMALL), (WORK, 0, FORWARDS), (WORK, 2, STOPS_EMITTING, 3)]

SEEDS = {
    "served": SERVED * 3,
    "kinds": [(SUBMIT, kind) for kind in (SMALL, MIDDLE, LARGE, OTHER_OUTPUT, CUT, LATE)]
    + [(WORK, 0, COPIES), (WORK, 1, FORWARDS), (WORK, 0, FAILS)] * 2 + [(WORK, 2, COPIES)] * 6
    + [(GATHER,), (LOOK, 0), (GIVE_BACK, 0)],
    "full": [(SUBMIT, LARGE)] * 12 + [(WORK, 0, COPIES)] * 12 + [(WORK, 2, FORWARDS)] * 12
    + [(GATHER,)] + SERVED,
    "deaths": IN_BOTH + [(DIE, 1), (WORK, 1, STOPS_FIRST), (DIE, 1), (DIE, 0), (WAKE, 0),
                         (WORK, 2, FORWARDS), (GATHER,), (AUDIT, 3)],
    "slow": IN_BOTH + [(AUDIT, 0)] * 6 + [(WORK, 0, FORWARDS), (AUDIT, 3)] * 3,
    "gone": IN_BOTH + [(CANCEL, 0), (FAIL_STAGE, 0), (FAIL_STAGE, 1), (GATHER,), (ATTACH,)],
    "lost": SERVED + [(SUBMIT, SMALL), (WRITE, CELL, 0, 1, ANY)] + [(WORK, 0, FORWARDS),
                                                                    (AUDIT, 1)] * 6,
    "header": [(WRITE, HEADER, 0, at, BIT, 1) for at in (0, 8, 16, 40)] + [(ATTACH,), (LOOK, 1)],
    "swapped": IN_BOTH + [(WORK, 2, FORWARDS), (SWAP, 0, 1), (GATHER,)],
    "death-amid-lies": IN_BOTH + [(WRITE, SLOT_WORD, 1, NEAR_GENERATION, 1),
                                  (WRITE, BLOCK_WORD, 2, BIT, 24), (DIE, 1), (GATHER,)],
    "text": [(SUBMIT, SMALL), (WORK, 0, FAILS), (TEXT, 0, 255, 200), (GATHER,)],
    "times": [(SUBMIT, SMALL), (WRITE, SLOT_FIELD, 0, 16, 0, ANY) + (255,) * 8,
              (WRITE, SLOT_FIELD, 0, 24, 0, ANY) + (255,) * 8, (WORK, 0, FAILS), (GATHER,)],
    "cell-beyond": [(SUBMIT, SMALL), (WRITE, CELL, 0, 0, FULL_CELL, 1, 1, 0, 0, 1, 0, 255, 255),
                    (WORK, 0, FORWARDS), (GATHER,)],
    "tensor-beyond": IN_BOTH + [(WORK, 2, FORWARDS), (WRITE, BLOCK, 0, 72, 0, ANY) + (255,) * 2 + (0,) * 6,
                                (GATHER,)],
}
SEEDS |= {
    "streamed": STREAMED * 3,
    "streams": [(SUBMIT, caller + kind) for caller in (0, PIECES, SLOW)
                for kind in (SMALL, MIDDLE, LARGE, OTHER_OUTPUT)] + [(WORK, 0, FORWARDS)] * 8
    + [(WORK, 2, EMITS, count) for count in (0, 1, 2, 9, 39, 10)] * 2 + [(GATHER,)],
    "stream-dies": EMITTED + [(DIE, 2), (GATHER,)] + EMITTED + [(GATHER,), (DIE, 2)] + STREAMED,
    "stream-gone": EMITTED + [(CANCEL, 0), (FAIL_STAGE, 1), (AUDIT, 3), (DIE, 2), (GATHER,)],
    "piece-of-nobody": EMITTED + [(FORGE_PIECE, 0, 99, 1, 1, 0, 0, 4), (GATHER,)],
    "piece-twice": EMITTED + [(FORGE_PIECE, 0, 0, 1, 0, 0, 0, 4), (GATHER,)],
    "piece-ahead": EMITTED + [(FORGE_PIECE, 1, 0, 1, 1, 200, 1, 4), (GATHER,)],
    "piece-held": EMITTED + [(GATHER,), (FORGE_PIECE, 0, 0, 1, 1, 0, 0, 1), (AUDIT, 3), (DIE, 2)],
    "pieces-fill-the-ring": EMITTED + [(FORGE_PIECE, i, 0, 1, 1, 0, 0, 4) for i in range(40)] + [(GATHER,)],
    "count-beyond": EMITTED + [(WRITE, SLOT_FIELD, 0, 72, 1, SMALL_VALUE, 255), (DIE, 2), (GATHER,)],
    "written-piece": EMITTED + [(WRITE, PIECE, 0, 20, ANY) + (255,) * 8, (GATHER,)],
}
for name, place in (("result", RESULTS), ("error", ERRORS), ("free", FREE), ("stage", 1)):
    SEEDS[f"forged-{name}"] = IN_BOTH + [(FORGE, 0, place, 1, 2), (GATHER,), (FORGE, 2, place, 1, 2),
                                         (FORGE, 2, place, 1, 2), (GATHER,)] + SERVED
for name, target in (("cell", CELL), ("head", HEAD), ("tail", TAIL), ("block", BLOCK_WORD),
                     ("descriptor", DESCRIPTOR), ("stage", STAGE), ("seat", SEAT), ("data", BLOCK)):
    SEEDS[f"written-{name}"] = IN_BOTH + [(WRITE, target, 0, 0, 0, ANY) + (7,) * 8, (GATHER,)] + SERVED

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, steps in SEEDS.items():
        (FOLDER / f"seed-{name}").write_bytes(bytes(byte for step in steps for byte in step))
    print(f"{len(SEEDS)} seeds in {FOLDER}")
