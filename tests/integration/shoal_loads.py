# SPDX-License-Identifier: Apache-2.0
"""Loads and unloads models at a steady rate, by what `shoalctl model` says to a node."""

import json
import socket
import threading
import time

VERSION, LOAD, UNLOAD = 5, "model load", "model unload"  # ipc/control.h
PACKET_BYTES = 8192
TIMEOUT_S = 60


def request(verb, **members):
    return json.dumps({"version": VERSION, "verb": verb, **members}).encode()


def say_node(control, message):
    """The answer to a packet at the control socket, without starting a program."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as call:
        call.settimeout(TIMEOUT_S)
        call.connect(control)
        call.send(message)
        packet, fds, _, _ = socket.recv_fds(call, PACKET_BYTES, 1)
    if not fds:
        return json.loads(packet)
    with open(fds[0], encoding="utf-8") as file:
        file.seek(0)
        return json.load(file)


def ask_node(control, verb, name, path=""):
    answer = say_node(control, request(verb, id=name, path=path))
    if answer["status"] != "OK":
        raise RuntimeError(f"{name}: {answer['error']}")


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
