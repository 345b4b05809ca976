#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each bug that is planted into a copy of the core is found, by the invariant (or one of them) and
within the number of seeds that its patch in planted/ names. So it is known that the simulator sees, and how far.

    test_planted.py [SEEDS [NUMBER...]]   with SEEDS: says where each is found within so many, only
"""

import glob
import os
import re
import subprocess
import sys

FOLDER = os.path.join(os.environ.get("SHOAL_SOURCE_DIR", "."), "tests", "sim", "planted")
BUILD = os.environ.get("SHOAL_BUILD_DIR", "build/release")


def search(number, seeds):
    """(invariant, seed) of the first seed that finds it; None: none of them does."""
    environment = dict(os.environ, SHOAL_PLANT=str(number), SHOAL_SEED="1",
                       SHOAL_SIM_SEEDS=str(seeds))
    result = subprocess.run([os.path.join(BUILD, "tests", "sim", "planted")], env=environment,
                            capture_output=True, check=False)
    said = (result.stdout + result.stderr).decode(errors="replace")
    seed = re.search(r"SHOAL_SEED=(\d+)", said)
    name = re.search(r"^broken: (\w+)", said, re.MULTILINE)
    if result.returncode == 0:
        return None
    return (name.group(1) if name else "CHECK"), int(seed.group(1)) if seed else 0


def main():
    with open(os.path.join(BUILD, "tests", "sim", "planted.copy", "mesh", "core", "left_out"),
              encoding="utf-8") as file:
        left_out = file.read()
    seeds_given = int(sys.argv[1]) if len(sys.argv) > 1 else None
    only = {int(number) for number in sys.argv[2:]}
    failures = 0
    if left_out:
        print(f"does not apply to the core any more; adapt it:\n{left_out}")
        failures = 1
    patches = sorted(glob.glob(os.path.join(FOLDER, "*.patch")))
    for patch in patches:
        number = int(os.path.basename(patch)[:2])
        if only and number not in only:
            continue
        with open(patch, encoding="utf-8") as file:
            wanted, seeds = re.search(r"^Found: (\S+) within (\d+) seeds$", file.read(),
                                      re.MULTILINE).groups()
        found = search(number, seeds_given or int(seeds))
        as_said = found is not None and found[0] in wanted.split("/")
        failures += not as_said
        where = f"{found[0]}, seed {found[1]}" if found else "not found"
        print(f"{'ok  ' if as_said else 'FAIL'} {os.path.basename(patch):40} {where} "
              f"(said: {wanted} within {seeds})", flush=True)
    print(f"{len(patches)} planted bugs")
    assert search(0, 5) is None, "without a bug something is found"
    sys.exit(1 if failures else 0)


main()
