# SPDX-License-Identifier: Apache-2.0
"""Callers that neither wait nor retry while a node is replaced. They reconnect when they are asked
to: by GOAWAY, and by `Connection: close`."""

import http.client
import json
import struct
import threading

from shoal_client import Client, said
from shoal_fixture import WAIT_SECONDS, wait_until

X = ("x", "INT32", [1], struct.pack("<i", 7))
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [7]}]})


class Callers:
    """Threads that call until told to stop, and what went wrong for them."""

    def __init__(self, *loops):
        self.stop = threading.Event()
        self.done = [0] * len(loops)
        self.failed = []
        self.threads = [threading.Thread(target=self.run, args=(i, loop), daemon=True)
                        for i, loop in enumerate(loops)]

    def run(self, index, loop):
        try:
            for _ in loop(self.stop):
                self.done[index] += 1
        except Exception as error:  # noqa: BLE001: all that happens to a caller is its failure
            self.failed.append(f"caller {index} after {self.done[index]} calls: {error!r}")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(WAIT_SECONDS)

    def wait_progress(self):
        before = list(self.done)
        wait_until(lambda: self.failed or all(now > then + 5 for now, then in zip(self.done, before)),
                   lambda: f"each caller to be answered: {self.done}, {self.failed}")


def grpc_calls(target):
    def loop(stop):
        with Client(target) as client:
            while not stop.is_set():
                assert client.infer_raw("echo", X).raw_output_contents[0] == X[3]
                yield
    return loop


def grpc_connects(target):
    """Each call on a connection of its own, so that at most times there is none."""
    def loop(stop):
        while not stop.is_set():
            with Client(target) as client:
                assert client.infer_raw("echo", X).raw_output_contents[0] == X[3]
            yield
    return loop


def rest_calls(port):
    def loop(stop):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        while not stop.is_set():
            client.request("POST", "/v2/models/echo/infer", BODY, {"Content-Type": "application/json"})
            answer = client.getresponse()
            body = answer.read()
            assert answer.status == 200, (answer.status, body)
            yield
        client.close()
    return loop


def rest_connects(port):
    """The same over HTTP."""
    def loop(stop):
        while not stop.is_set():
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
            client.request("POST", "/v2/models/echo/infer", BODY,
                           {"Content-Type": "application/json", "Connection": "close"})
            answer = client.getresponse()
            body = answer.read()
            assert answer.status == 200, (answer.status, body)
            client.close()
            yield
    return loop


def slow_calls(target, ms):
    """Of a pipeline `puppet`: calls that are under way for long."""
    def loop(stop):
        with Client(target) as client:
            while not stop.is_set():
                assert said(client.tell(f"slow {ms}").result()) == f"slow {ms}"
                yield
    return loop
