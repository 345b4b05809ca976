#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Runs the Promela models in model/ through Spin: every interleaving of the protocol's steps at small
sizes, with deaths between any two of them. The models as they stand must have no error in their whole
state space.

    test_model.py [--full]      --full: larger sizes too, for some minutes and gigabytes; and each
                                planted mistake (a MUTANT_ macro) must be found, or the models prove
                                nothing

ctest: timeout=600
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model")

# model, sizes, what it shows. MORTALS is a bit set of seats: shm 1 coordinator, 2 and 4 workers,
# 8 repairer; bell 1 and 2 workers, 4 pusher; in client_region worker 0 may die.
PROOFS = [
    ("shm", "RINGS DEATHS=1 REQUESTS=2 MORTALS=2", "one ring in full, two requests, a worker dies"),
    ("shm", "DEATHS=1 REQUESTS=1 MORTALS=15", "slots and blocks, anybody dies"),
    ("shm", "RINGS BACKS=1 DEATHS=1 REQUESTS=1 MORTALS=2",
     "one ring in full, an object is handed back, a worker dies"),
    ("bell", "SLOW DEATHS=0 ITEMS=2", "bell and former, nobody sleeps while work waits"),
    ("bell", "SLOW COMPANY DEATHS=0 ITEMS=3", "a former waits for company, the other one is busy"),
    ("bell", "COMPANY WORKERS=1 DEATHS=2 ITEMS=2 MORTALS=5",
     "a former waits for company, worker and pusher die"),
    ("client_region", "SLOW LANE_ITEMS=0 CLIENT_ITEMS=2", "a client, nobody sleeps while its work waits"),
    ("client_region", "SLOW PASS LANE_ITEMS=0 CLIENT_ITEMS=2", "the same of a later stage"),
    ("client_region", "COMPANY SLOW LANE_ITEMS=0 CLIENT_ITEMS=3", "a client, a former waits for company"),
    ("client_region", "DEATHS=1 LANE_ITEMS=0 CLIENT_ITEMS=1", "a client, a worker dies"),
    ("wait", "SLOTS=2 CALLS=2", "calls that wait for a slot, none while one is free"),
    ("stream", "DEATHS=1", "an answer in pieces, its worker dies"),
    ("stream", "DEATHS=1 USES=2", "two answers in pieces, a worker dies"),
]
PROOFS_FULL = [
    ("stream", "DEATHS=2", "an answer in pieces, two workers die"),
    ("stream", "DEATHS=1 CONDEMNS=1", "an answer in pieces, a worker dies and the lane is condemned"),
    ("shm", "RINGS DEATHS=2 REQUESTS=1 MORTALS=10", "one ring in full, worker and repairer die"),
    ("shm", "BACKS=1 DEATHS=1 REQUESTS=1 MORTALS=10",
     "slots and blocks, an object is handed back, worker or repairer dies"),
    ("bell", "DEATHS=1 ITEMS=1 MORTALS=5", "bell and former, worker or pusher dies"),
    ("bell", "SLOW DEATHS=1 ITEMS=2 MORTALS=4", "bell and former, nobody sleeps though a pusher dies"),
    ("shm", "RINGS BACKS=2 DEATHS=1 REQUESTS=1 MORTALS=2",
     "one ring in full, an object is handed back twice, a worker dies"),
    ("shm", "RINGS DEATHS=2 REQUESTS=2 MORTALS=10", "one ring in full, two requests, two deaths"),
    ("shm", "DEATHS=2 REQUESTS=1 MORTALS=10", "slots and blocks, worker and repairer die"),
    ("shm", "DEATHS=1 REQUESTS=2 MORTALS=15", "slots and blocks, two requests, anybody dies"),
    ("bell", "DEATHS=0 ITEMS=2", "bell and former, two items"),
    ("bell", "DEATHS=2 ITEMS=1 MORTALS=5", "bell and former, worker and pusher die"),
    ("bell", "COMPANY DEATHS=0 ITEMS=2", "a former waits for company, two workers"),
    ("bell", "COMPANY DEATHS=1 ITEMS=2 MORTALS=1", "the same, one of them dies"),
    ("client_region", "SLOW LANE_ITEMS=1 CLIENT_ITEMS=1", "a client and the lane's own work"),
    ("wait", "SLOTS=2 CALLS=3", "calls that wait for a slot, one more"),
]
MUTANTS = [
    ("shm", "RINGS DEATHS=1 REQUESTS=1 MORTALS=0", "CELL_FIRST",
     "push fills the cell before the word"),
    ("shm", "RINGS DEATHS=2 REQUESTS=1 MORTALS=10", "NO_TURN",
     "a stale cell passes for the cell of a later push"),
    ("shm", "DEATHS=1 REQUESTS=1 MORTALS=2", "DROP_BEFORE_CLAIM",
     "pop empties the cell before it claims the object"),
    ("shm", "DEATHS=1 REQUESTS=1 MORTALS=1", "CURRENT_WORD",
     "repair changes the word that is there, not the one it judged"),
    ("shm", "DEATHS=1 REQUESTS=1 MORTALS=1", "NO_WAITING_PASS",
     "repair forgets the pushes that the dead one owed"),
    ("shm", "DEATHS=1 REQUESTS=1 MORTALS=2", "NO_UNNAMED_BLOCKS",
     "repair leaves blocks that no payload names"),
    ("shm", "DEATHS=1 REQUESTS=1 MORTALS=2", "BLOCKS_AFTER_PUSH",
     "repair gives blocks back when it has pushed their slot"),
    ("bell", "DEATHS=0 ITEMS=1", "NO_LOOK_BEFORE_SLEEP", "a worker sleeps without a second look"),
    ("bell", "SLOW DEATHS=0 ITEMS=2", "LEAVE_WITHOUT_LOOK",
     "a former leaves without a look at the ring"),
    ("bell", "DEATHS=1 ITEMS=1 MORTALS=4", "NO_NOTIFY", "repair wakes nobody"),
    ("bell", "DEATHS=1 ITEMS=1 MORTALS=4", "RING_ONLY", "repair wakes only whose flag is set"),
    ("bell", "DEATHS=1 ITEMS=1 MORTALS=1", "ROLE_BEFORE_SEAT NO_STALE_FORMER",
     "repair takes the role before it empties the seat, and looks at no other"),
    ("bell", "DEATHS=2 ITEMS=1 MORTALS=5", "NO_STALE_FORMER",
     "repair leaves the role to one who died before"),
    ("bell", "DEATHS=1 ITEMS=2 MORTALS=1", "SEAT_ALONE",
     "an appointment counts though another sits in the seat"),
    ("bell", "COMPANY WORKERS=1 DEATHS=0 ITEMS=2", "NO_OFFER",
     "a role is taken back from one who has accepted it, and sleeps"),
    ("bell", "COMPANY WORKERS=1 DEATHS=0 ITEMS=2", "NO_LOOK_FOR_COMPANY",
     "a former sleeps with an open batch without a second look"),
    ("bell", "SLOW DEATHS=1 ITEMS=2 MORTALS=4", "KEEP_OFFERS",
     "repair leaves the role offered to one who is busy"),
    ("client_region", "SLOW LANE_ITEMS=0 CLIENT_ITEMS=1", "OWN_BELL_ONLY", "workers sleep on their own bells"),
    ("client_region", "SLOW LANE_ITEMS=0 CLIENT_ITEMS=2", "NO_ARM",
     "a worker that leaves the role forgets the client's bell"),
    ("client_region", "SLOW LANE_ITEMS=0 CLIENT_ITEMS=2", "ARM_AFTER_LOOK",
     "a worker that leaves the role looks at the ring before it sets the client's bell"),
    ("client_region", "SLOW LANE_ITEMS=0 CLIENT_ITEMS=2", "HUSH_WITHOUT_ROLE",
     "a client's bell is cleared by one who has left the role"),
    ("client_region", "COMPANY SLOW LANE_ITEMS=0 CLIENT_ITEMS=2", "NO_PASSING_ON",
     "a wake that was meant for a former with an open batch ends with another"),
    ("client_region", "SLOW LANE_ITEMS=1 CLIENT_ITEMS=1", "BLIND",
     "the coordinator takes an offer back and forgets that client regions may have work"),
    ("client_region", "DEATHS=1 LANE_ITEMS=0 CLIENT_ITEMS=1", "NO_AWAKENING",
     "repair of the lane wakes nobody"),
    ("stream", "DEATHS=1", "COUNT_AFTER_PUSH", "a piece is counted after it was pushed"),
    ("stream", "DEATHS=1", "SLOTS_BEFORE_BLOCKS", "repair ends the request before it pushes owed pieces"),
    ("stream", "DEATHS=1", "RESULTS_FIRST", "an end does not wait for the pieces before it"),
    ("stream", "DEATHS=1", "NO_LOCK", "two threads take pieces at a time"),
    ("stream", "DEATHS=0 CONDEMNS=1", "END_WITHOUT_LOCK", "a condemned request ends amid a piece"),
    ("stream", "DEATHS=0 USES=2", "IGNORE_GENERATION", "counts of a slot's earlier use are not told apart"),
    ("wait", "SLOTS=1 CALLS=2", "RING_BEFORE_FREE", "a request rings before it frees its slot"),
    ("wait", "SLOTS=1 CALLS=2", "NO_FENCE_IN_RING", "the ring reads the flag before the slot is seen"),
    ("wait", "SLOTS=1 CALLS=2", "PREPARE_AFTER_LOOK", "the thread looks before it prepares its bell"),
    ("wait", "SLOTS=1 CALLS=2", "WAKE_BEFORE_ENTRY", "a call wakes the thread before it is listed"),
    ("wait", "SLOTS=1 CALLS=2", "RING_ON_ENTRY", "a call wakes the thread only if its flag is set"),
    ("wait", "SLOTS=2 CALLS=3", "PASS_THOSE_WHO_WAIT", "a call takes a slot while others wait"),
]
# Spin searches depth first; a path is at most so many steps long.
DEPTH_MAX = 3000000


def verify(model, sizes, mutant=None, large=False):
    """Runs one verification; returns (errors, states, seconds, output)."""
    folder = tempfile.mkdtemp(prefix="shoal-model-")
    began = time.monotonic()
    try:
        macros = ["-D" + word for word in sizes.split()]
        if mutant:
            macros += ["-DMUTANT_" + name for name in mutant.split()]
        source = os.path.join(MODELS, model + ".pml")
        subprocess.run(["spin", "-a", *macros, source], cwd=folder, check=True,
                       capture_output=True, text=True)
        # -O1: what -O2 makes faster is less than what it takes to compile
        compiler = [*(["ccache"] if shutil.which("ccache") else []), "cc"]
        subprocess.run([*compiler, "-O1", "-w", "-DSAFETY", "-DVECTORSZ=2048", "-DMEMLIM=12000",
                        # half the memory, but 1.6 times as long
                        *(["-DCOLLAPSE"] if large else []),
                        # mutants: the order of search in which most are found sooner
                        *(["-DREVERSE"] if mutant else []), "-c", "pan.c"],
                       cwd=folder, check=True)
        subprocess.run(["cc", "-o", "pan", "pan.o"], cwd=folder, check=True)
        # -w: its table has 2^N places; the kernel clears each page of it
        run = subprocess.run(["./pan", "-E", f"-m{DEPTH_MAX}", "-w24" if large else "-w22"], cwd=folder,
                             capture_output=True, text=True)
        output = run.stdout + run.stderr
        errors = re.search(r"errors: (\d+)", output)
        states = re.search(r"([\d.e+]+) states, stored", output)
        complete = ("Search not completed" not in output
                    and "max search depth too small" not in output)
        if errors is None or states is None or (not complete and errors.group(1) == "0"):
            return None, 0, time.monotonic() - began, output
        return int(errors.group(1)), int(float(states.group(1))), time.monotonic() - began, output
    except subprocess.CalledProcessError as failure:
        return None, 0, time.monotonic() - began, f"{failure}\n{failure.stdout}\n{failure.stderr}"
    finally:
        shutil.rmtree(folder)


def reason(output):
    found = re.search(r"assertion violated [^\n]*?(?= \(at depth)", output)
    return found.group(0) if found else "an error"


def run_proof(proof):
    model, sizes, what = proof
    errors, states, seconds, output = verify(model, sizes, large=proof in PROOFS_FULL)
    line = f"{model:4} {sizes:38} {states:>10} states {seconds:6.1f} s  {what}"
    if errors == 0:
        return True, "ok    " + line
    return False, "ERROR " + line + "\n" + output


def run_mutant(mutant):
    model, sizes, name, what = mutant
    errors, states, seconds, output = verify(model, sizes, name)
    line = f"{model:4} {name:32} {states:>10} states {seconds:6.1f} s  {what}"
    if errors:
        return True, f"found {line}: {reason(output)}"
    return False, "MISSED " + line + ("" if errors == 0 else "\n" + output)


def main():
    parser = argparse.ArgumentParser(description="Verify the models of src/shm with Spin")
    parser.add_argument("--full", action="store_true", help="larger sizes and planted mistakes, too")
    arguments = parser.parse_args()
    if shutil.which("spin") is None:
        print("spin is not installed: package spin", file=sys.stderr)
        return 1
    jobs = [(run_proof, proof) for proof in PROOFS]
    if arguments.full:
        jobs += [(run_proof, proof) for proof in PROOFS_FULL]
        jobs += [(run_mutant, mutant) for mutant in MUTANTS]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for good, line in pool.map(lambda job: job[0](job[1]), jobs):
            print(line, flush=True)
            bad += not good
    print(f"{len(jobs) - bad} of {len(jobs)} as they must be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
