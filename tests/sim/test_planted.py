#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each bug that is planted into a copy of the core is found, by the invariant (or one of them) and
within the number of seeds that its patch in planted/ names. So it is known that the simulator sees,
and how far. A run ends with the first seed that finds its bug; SHOAL_JOBS of them run at a time, at
most as many as there are processors.

    test_planted.py [--of FOLDER] [SEEDS [NUMBER...]]   searches so many seeds instead
"""

import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import time

OF = "sim"
if sys.argv[1:2] == ["--of"]:
    OF = sys.argv.pop(2)
    del sys.argv[1]
FOLDER = os.path.join(os.environ.get("SHOAL_SOURCE_DIR", "."), "tests", OF, "planted")
CORE = {"sim": "mesh", "gateway": "gateway"}[OF]
BUILD = os.environ.get("SHOAL_BUILD_DIR", "build/release")


def jobs():
    processors = len(os.sched_getaffinity(0))
    return max(1, min(int(os.environ.get("SHOAL_JOBS") or processors), processors))


def search(number, seeds):
    """(invariant, seed) of the first seed that finds it; None: none of them does."""
    environment = dict(os.environ, SHOAL_PLANT=str(number), SHOAL_SEED="1",
                       SHOAL_SIM_SEEDS=str(seeds))
    result = subprocess.run([os.path.join(BUILD, "tests", OF, "planted")], env=environment,
                            capture_output=True, check=False)
    output = (result.stdout + result.stderr).decode(errors="replace")
    seed = re.search(r"SHOAL_SEED=(\d+)", output)
    name = re.search(r"^broken: (\w+)", output, re.MULTILINE)
    if result.returncode == 0:
        return None
    return (name.group(1) if name else "CHECK"), int(seed.group(1)) if seed else 0


def search_bug(patch, seeds_given):
    """(whether it is found as the patch says, a line for the reader)."""
    number = int(os.path.basename(patch)[:2])
    with open(patch, encoding="utf-8") as file:
        wanted, seeds = re.search(r"^Found: (\S+) within (\d+) seeds$", file.read(),
                                  re.MULTILINE).groups()
    began = time.monotonic()
    found = search(number, seeds_given or int(seeds))
    as_said = found is not None and found[0] in wanted.split("/")
    where = f"{found[0]}, seed {found[1]}" if found else "not found"
    return as_said, (f"{'ok  ' if as_said else 'FAIL'} {os.path.basename(patch):48} {where:16} "
                     f"(said: {wanted} within {seeds}) {time.monotonic() - began:6.1f} s")


def main():
    with open(os.path.join(BUILD, "tests", OF, "planted.copy", CORE, "core", "left_out"),
              encoding="utf-8") as file:
        left_out = file.read()
    seeds_given = int(sys.argv[1]) if len(sys.argv) > 1 else None
    only = {int(number) for number in sys.argv[2:]}
    failures = 0
    if left_out:
        print(f"does not apply to the core any more; adapt it:\n{left_out}")
        failures = 1
    patches = [patch for patch in sorted(glob.glob(os.path.join(FOLDER, "*.patch")))
               if not only or int(os.path.basename(patch)[:2]) in only]
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        sound = pool.submit(search, 0, 5)
        for as_said, line in pool.map(lambda patch: search_bug(patch, seeds_given), patches):
            failures += not as_said
            print(line, flush=True)
    print(f"{len(patches)} planted bugs")
    assert sound.result() is None, "without a bug something is found"
    sys.exit(1 if failures else 0)


main()
