# SPDX-License-Identifier: Apache-2.0
"""An honest caller in a process of its own, to see what an attack does to it.

    neighbour.py infer TARGET MODEL DATATYPE    or    neighbour.py probe PORT PATH

A call is due every INTERVAL_SECONDS, independent of those before it, and its time is counted
from then: so a service that stands still for a second spoils a second's calls, not one. Each line
on stdin begins a phase, to which calls belong that are due in it; at its end the figures of all
phases are printed as JSON. `late_ms` is the caller's own share: how late it was to start them.
"""

import concurrent.futures
import http.client
import json
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

INTERVAL_SECONDS = 0.01
CALLS_MAX = 64  # at a time; further ones wait, which counts
CALL_SECONDS = 20  # longer than any stall that was ever seen


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[max(0, (len(ordered) * percent + 99) // 100 - 1)] if ordered else 0


def infer_calls(target, model, datatype):
    import grpc
    from shoal_client import Client, bytes_element

    client = Client(target)
    tensor = (("say", "BYTES", [1], bytes_element("echo x")) if datatype == "BYTES"
              else ("x", datatype, [1], bytes(4)))
    request, stub = client.stub("ModelInfer")
    message = request(**client.infer_fields(model, [tensor]))

    def call():
        try:
            stub(message, timeout=CALL_SECONDS, metadata=(("shoal-caller", "neighbour"),))
            return "OK"
        except grpc.RpcError as error:
            return error.code().name
    return call


def probe_calls(port, path):
    """Each over a connection of its own, as orchestrators ask."""
    def call():
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=CALL_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return "OK" if answer.status == 200 else str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()
    return call


class Phase:
    def __init__(self):
        self.seconds = []
        self.late = []
        self.failed = {}

    def add(self, seconds, outcome):
        self.seconds.append(seconds)
        if outcome != "OK":
            self.failed[outcome] = self.failed.get(outcome, 0) + 1

    def figures(self):
        return {"calls": len(self.seconds), "failed": sum(self.failed.values()),
                "failures": self.failed, "late_ms": 1e3 * percentile(self.late, 99),
                **{f"{name}_ms": 1e3 * percentile(self.seconds, percent)
                   for name, percent in (("p50", 50), ("p99", 99), ("longest", 100))}}


class Neighbour:
    def __init__(self, call):
        self.call = call
        self.phases = {}
        self.begun = []  # phases, and since when
        self.over = threading.Event()
        self.lock = threading.Lock()

    def read_phases(self):
        for line in sys.stdin:
            phase = self.phases.setdefault(line.strip(), Phase())
            self.begun.append((time.monotonic(), phase))
        self.over.set()

    def phase_at(self, moment):
        return next((phase for began, phase in reversed(self.begun) if began <= moment), None)

    def make_call(self, due):
        begun = time.monotonic()
        outcome = self.call()
        phase = self.phase_at(due)
        if phase is not None:
            with self.lock:
                phase.add(time.monotonic() - due, outcome)
                phase.late.append(begun - due)

    def run(self):
        self.call()  # connects
        print("ready", flush=True)
        threading.Thread(target=self.read_phases, daemon=True).start()
        due = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CALLS_MAX) as pool:
            while not self.over.wait(max(0, due - time.monotonic())):
                pool.submit(self.make_call, due)
                due += INTERVAL_SECONDS
        print(json.dumps({name: phase.figures() for name, phase in self.phases.items()}), flush=True)


def main():
    kind, *arguments = sys.argv[1:]
    Neighbour({"infer": infer_calls, "probe": probe_calls}[kind](*arguments)).run()


if __name__ == "__main__":
    main()
