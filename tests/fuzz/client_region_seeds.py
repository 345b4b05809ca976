# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/client_region: programs of fuzz_client_region.c, step by step (client_region_steps.h).

    python3 tests/fuzz/client_region_seeds.py

The files named seed-* are made here; others there are finds of the fuzzer, which stay as they are.
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "client_region"

LATER_STAGE, DECLARES, WAITS = 1, 2, 4
(SUBMIT, TURN, TAKE, LANE, LEAVES, ARRIVES, WRITES, LATER, FORGES, PUNCHES,
 CEASES) = range(11)
(PLAIN, TWO, STRINGS, STRINGS_CUT, PARAMETERS, LARGE, EMPTY, CANCELLED, LATE,
 OTHER_PLACE) = range(10)
COPIES, FORWARDS, FAILS, MANY, FAILS_BATCH = range(5)
(SLOT_WORD, CELL, HEAD, TAIL, BLOCK_WORD, DESCRIPTOR, SLOT_FIELD, STAGE, SEAT, HEADER, BLOCK,
 ANYWHERE) = range(12)
ANY, BIT, NEAR, NEAR_GENERATION, COPY, SMALL_VALUE, WORD, FULL_CELL = range(8)

SERVED = [(SUBMIT, PLAIN, COPIES), (LANE,), (TURN,), (TAKE,)]
AFRESH = [(LEAVES,), (ARRIVES,)]
KINDS = [(SUBMIT, kind, answer) for kind in range(10) for answer in range(5)]


def each(steps, *after):
    return [part for step in steps for part in (step, *after)]


SEEDS = {
    "served": (0, SERVED * 3),
    "kinds": (0, each(KINDS, (TURN,), (TAKE,))),
    "kinds-declared": (DECLARES, each(KINDS, (TURN,), (TAKE,))),
    "kinds-later": (LATER_STAGE | DECLARES, each(KINDS, (TURN,), (LANE,), (TAKE,))),
    "batches": (0, each([(SUBMIT, kind, answer) for answer in range(5) for kind in (0, 1, 2, 4)],
                        (LANE,)) + [(TURN,)] * 6 + [(TAKE,)]),
    "waits": (WAITS, SERVED + [(LEAVES,), (ARRIVES,)] + SERVED * 2),
    "many": (0, [(SUBMIT, LARGE, MANY)] * 8 + [(TURN,), (TAKE,)] * 4 + SERVED),
    "comes-and-goes": (0, (SERVED + [(SUBMIT, PLAIN, COPIES), (LEAVES,), (ARRIVES,)]) * 4),
    "ceases": (0, SERVED + [(SUBMIT, PLAIN, COPIES)] * 3 + [(TURN,), (CEASES,), (TURN,), (TAKE,), (LEAVES,),
                                                            (ARRIVES,)] + SERVED),
    "ceases-later": (LATER_STAGE | WAITS, [(SUBMIT, PLAIN, COPIES)] * 3 + [(LANE,), (TURN,), (CEASES,)]
                     + [(SUBMIT, PLAIN, COPIES)] * 2 + [(TURN,), (TAKE,), (LEAVES,)]),
    "ceases-refused": (LATER_STAGE, [(LEAVES,), (WRITES, HEADER, 0, 0, 0, BIT, 3), (ARRIVES,), (CEASES,),
                                     (TURN,)]),
    "later": (0, [(SUBMIT, PLAIN, COPIES), (LATER, 12, SLOT_WORD, 7, BIT, 32) + (0,) * 8, (TURN,)]
              + SERVED),
    "holes": (0, SERVED + each([(PUNCHES, page, 0) for page in range(8)], *SERVED)),
    # the two smallest classes of blocks change places, with their counts: a plan of the same size
    "plan": (0, [(LEAVES,), (WRITES, HEADER, 0, 112, 0, ANY, 4, 0, 0, 0, 18, 0, 0, 0),
                 (WRITES, HEADER, 0, 160, 0, ANY, 0, 32, 0, 0, 0, 0, 0, 0),
                 (WRITES, HEADER, 0, 168, 0, ANY, 0, 8, 0, 0, 0, 0, 0, 0), (ARRIVES,)]
             + [(SUBMIT, PLAIN, MANY), (TURN,)] * 3),
    # a fresh region's first request lies in block 0: its tensor's data, and at 64 its table
    "table": (0, [part for at in (64, 72, 80, 88) for bit in (0, 13)
                  for part in AFRESH + [(SUBMIT, PLAIN, COPIES), (WRITES, BLOCK, 0, at, 0, BIT, bit),
                                        (TURN,)]]),
    "beyond": (0, [(SUBMIT, PLAIN, COPIES), (WRITES, BLOCK, 0, 80, 0, ANY, 0, 32, 0, 0, 0, 0, 0, 0),
                   (WRITES, BLOCK, 0, 88, 0, ANY, 0, 4, 0, 0, 0, 0, 0, 0), (TURN,)]),
    "payload": (0, [part for at in range(0, 32, 8) for bit in (0, 17, 46)
                    for part in AFRESH + [(SUBMIT, PLAIN, FORWARDS),
                                          (WRITES, DESCRIPTOR, 0, at, BIT, bit), (TURN,)]]),
    "spare-twice": (0, [(SUBMIT, PLAIN, MANY), (WRITES, DESCRIPTOR, 0, 32, ANY) + (20, 0) * 4,
                        (WRITES, DESCRIPTOR, 0, 48, ANY, 4, 0, 0, 0, 0, 0, 0, 0), (TURN,), (TAKE,)]),
    # a small block in the ring of large ones
    "small-for-large": (0, [(SUBMIT, PLAIN, MANY), (WRITES, BLOCK_WORD, 3, WORD, 1, 0, 2, 0, 1),
                            (WRITES, CELL, 7, 0, FULL_CELL, 1, 0, 2, 0, 1, 0, 3, 0), (TURN,)]),
}
for name, target in (("word", SLOT_WORD), ("cell", CELL), ("head", HEAD), ("tail", TAIL),
                     ("block", BLOCK_WORD), ("descriptor", DESCRIPTOR), ("field", SLOT_FIELD),
                     ("bell", STAGE), ("header", HEADER), ("data", BLOCK)):
    SEEDS[f"written-{name}"] = (0, SERVED + [(SUBMIT, TWO, MANY), (WRITES, target, 0, 0, 0, ANY)
                                             + (7,) * 8, (TURN,), (TAKE,)] + SERVED)
for name, place in (("stage", 0), ("result", 2), ("error", 3), ("free", 4)):
    SEEDS[f"forged-{name}"] = (0, SERVED + [(SUBMIT, PLAIN, COPIES), (FORGES, 7, place, 1, 2), (TURN,),
                                            (FORGES, 7, place, 1, 1), (TURN,), (TAKE,)] + SERVED)

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (kind, steps) in SEEDS.items():
        (FOLDER / f"seed-{name}").write_bytes(
            bytes([kind]) + bytes(byte for step in steps for byte in step))
    print(f"{len(SEEDS)} seeds in {FOLDER}")
