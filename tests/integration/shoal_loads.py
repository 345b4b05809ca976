# SPDX-License-Identifier: Apache-2.0
"""Loads and unloads models at a steady rate, by what `shoalctl model` says to a node."""

import socket
import struct
import threading
import time

# ipc/control.h: version, verb, limit, flags, from, pipeline, id, path, key; version, status, text.
REQUEST, ANSWER = struct.Struct("<IIIIQ64s128s1024s4096s"), struct.Struct("<II512s")
VERSION, LOAD, UNLOAD = 4, 2, 3
TIMEOUT_S = 60


def ask_node(control, verb, name, path=""):
    """Asks at the control socket, without starting a program each time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
        call.settimeout(TIMEOUT_S)
        call.connect(control)
        call.send(REQUEST.pack(VERSION, verb, 0, 0, 0, b"", name.encode(), path.encode(), b""))
        _, status, text = ANSWER.unpack(call.recv(ANSWER.size))
    if status != 0:
        raise RuntimeError(f"{name}: {text.rstrip(bytes(1)).decode()}")


class Loads(threading.Thread):
    """While the block runs: loads a model so many times a second, and unloads the one before."""

    def __init__(self, control, path, rate):
        super().__init__(daemon=True)
        self.control, self.path, self.rate = control, path, rate
        self.ends = threading.Event()
        self.count = 0
        self.failed = None

    def run(self):
        begun = time.monotonic()
        try:
            while not self.ends.wait(max(0, begun + self.count / self.rate - time.monotonic())):
                ask_node(self.control, LOAD, f"other-{self.count}", self.path)
                self.count += 1
                if self.count > 1:
                    ask_node(self.control, UNLOAD, f"other-{self.count - 2}")
            if self.count:
                ask_node(self.control, UNLOAD, f"other-{self.count - 1}")
        except (OSError, RuntimeError) as error:
            self.failed = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.join()
