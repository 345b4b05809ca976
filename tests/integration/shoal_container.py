# SPDX-License-Identifier: Apache-2.0
"""A container of a ServingRuntime, for tests: a program that shoald starts by a manifest. By words in
its arguments:

    serve=ADDRESS   serves mmesh.ModelRuntime there; a model's calls answer what the process is
    calls=ADDRESS   serves the same models' calls there, and no ModelRuntime
    fork            has a child, and a process that has left its group and its parent
    stubborn        ignores SIGTERM
    flood           writes lines without end
    crash           says why, and ends with exit code 3
    failing         says FAILING when it is asked first
    open=FILE       says STARTING while there is no such file
    gate=FIFO       each call takes a byte of it, and answers how many were there at once at most
"""

import json
import os
import signal
import sys
import threading


def leave_behind():
    """A grandchild in a session of its own, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
    os.wait()


def flood():
    while True:
        os.write(1, b"a line of a flood, and many more of them\n" * 50)


def serve(address, managed=None):
    """`managed`: the server that the models are loaded through."""
    from shoal_contract import FAILING, STARTING  # takes its time
    from shoal_runtime import MIB, Runtime
    gates = [os.open(word.removeprefix("gate="), os.O_RDWR) for word in sys.argv[1:] if word.startswith("gate=")]
    files = [word.removeprefix("open=") for word in sys.argv[1:] if word.startswith("open=")]
    needed = int(os.environ.get("MODEL_SERVER_MEM_REQ_BYTES", 64 * MIB))

    class Told(Runtime):
        inside, most, counting = 0, 0, threading.Lock()

        def pass_gate(self, fifo):
            with self.counting:
                self.inside += 1
                self.most = max(self.most, self.inside)
                print("inside:", self.inside, flush=True)
            os.read(fifo, 1)
            with self.counting:
                self.inside -= 1

        def runtimeStatus(self, request, context):
            status = super().runtimeStatus(request, context)
            if "failing" in sys.argv:
                sys.argv.remove("failing")
                status.status = FAILING
            if any(not os.path.exists(file) for file in files):
                status.status = STARTING
            return status

        def infer(self, request, context):
            super().infer(request, context)
            for fifo in gates:
                self.pass_gate(fifo)
            loaded = self.requests("loadModel")[-1]
            return json.dumps({"pid": os.getpid(), "args": sys.argv[1:], "env": dict(os.environ),
                               "folder": os.getcwd(), "path": loaded.modelPath, "key": loaded.modelKey,
                               "most": self.most, "address": self.address}).encode()
    told = Told(address, serves=managed is None, capacityInBytes=needed)
    if managed is not None:
        told.held, told.asked = managed.held, managed.asked
    return told


def main():
    words = sys.argv[1:]
    if "crash" in words:
        print("I cannot go on: no licence", flush=True)
        sys.exit(3)
    if "stubborn" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "fork" in words:
        leave_behind()
        if os.fork() == 0:
            signal.pause()
    if "flood" in words:
        threading.Thread(target=flood, daemon=True).start()
    kept = [serve(word.removeprefix("serve=")) for word in words if word.startswith("serve=")]
    kept += [serve(word.removeprefix("calls="), kept[0]) for word in words if word.startswith("calls=")]
    while True:
        signal.pause()
        assert kept is not None


if __name__ == "__main__":
    main()
