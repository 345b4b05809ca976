# SPDX-License-Identifier: Apache-2.0
"""grpc.health.v1: what Check says, and what Watch sends as things change.

A Watch stream is read by a thread into a list, and the test waits for what must appear there.
ctest: timeout=180
"""

import os
import signal
import threading
import unittest

import grpc

import shoal_fixture
from shoal_client import Client, failure
from shoal_fixture import Shoald, node, pipeline, stage, wait_until

HEALTH = "grpc.health.v1.Health"
STATES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class Watch:
    """A stream of states, and how it ended."""

    def __init__(self, client, service):
        request, stub = client.stub("Watch", HEALTH, "unary_stream")
        self.states = []
        self.end = None
        self.stream = stub(request(service=service))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for response in self.stream:
                self.states.append(STATES[response.status])
            self.end = grpc.StatusCode.OK
        except grpc.RpcError as error:
            self.end = error.code()

    def wait(self, *states):
        wait_until(lambda: self.states == list(states) or len(self.states) > len(states),
                   lambda: f"{states}, there are {self.states}")
        assert self.states == list(states), f"{self.states}, not {states}"

    def wait_end(self):
        return wait_until(lambda: self.end, "the end of the stream")


class TestHealth(unittest.TestCase):
    def setUp(self):
        config = node(pipeline("puppet", stage("libpuppet.so", params={
                          "folder": ".", "open": "when-broken"}), slots=8),
                      pipeline("echo", stage("libecho.so"), slots=8), message_mib=1,
                      drain_timeout_ms=3600 * 1000)
        self.shoald = self.enterContext(Shoald(config))
        self.client = self.enterContext(Client(self.shoald.target))

    def ask(self, service):
        request, stub = self.client.stub("Check", HEALTH)
        return stub.future(request(service=service), timeout=shoal_fixture.WAIT_SECONDS)

    def check(self, service):
        return STATES[self.ask(service).result().status]

    def test_check(self):
        for service in ("", "puppet", "echo"):
            self.assertEqual(self.check(service), "SERVING", repr(service))
        code, text = failure(self.ask("nobody"))
        self.assertEqual(code.name, "NOT_FOUND", text)
        self.assertIn('"nobody"', text)
        code, text = failure(self.ask("n" * 1000))
        self.assertIn(code.name, ("INVALID_ARGUMENT", "NOT_FOUND"), text)

    def test_watch_says_the_state_at_once(self):
        for service, state in (("", "SERVING"), ("echo", "SERVING"), ("nobody", "SERVICE_UNKNOWN")):
            watch = Watch(self.client, service)
            watch.wait(state)
            watch.stream.cancel()
            self.assertEqual(watch.wait_end().name, "CANCELLED")

    def test_drain(self):
        """SIGTERM: NOT_SERVING while what is in flight still runs; with the node the streams end."""
        node_watch = Watch(self.client, "")
        echo_watch = Watch(self.client, "echo")
        node_watch.wait("SERVING")
        echo_watch.wait("SERVING")
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the request to be running")
        self.shoald.signal(signal.SIGTERM)
        node_watch.wait("SERVING", "NOT_SERVING")
        echo_watch.wait("SERVING", "NOT_SERVING")
        self.assertFalse(held.done())
        (self.shoald.folder / "a.go").touch()
        held.result()
        self.assertEqual(node_watch.wait_end().name, "UNAVAILABLE")
        self.assertEqual(echo_watch.wait_end().name, "UNAVAILABLE")
        self.assertEqual(self.shoald.wait_exit(), 0, self.shoald.stderr)

    def test_many_watchers_that_go_away(self):
        watches = [Watch(self.client, "echo") for _ in range(100)]
        for watch in watches:
            watch.wait("SERVING")
        for watch in watches:
            watch.stream.cancel()
        for watch in watches:
            watch.wait_end()
        self.assertEqual(self.check("echo"), "SERVING")

    def test_stage_without_workers(self):
        """A pipeline that cannot serve because its workers die is not SERVING until it can."""
        watch = Watch(self.client, "puppet")
        watch.wait("SERVING")
        (self.shoald.folder / "broken").touch()
        os.kill(self.shoald.workers("puppet")[0].pid, signal.SIGKILL)
        watch.wait("SERVING", "NOT_SERVING")
        self.assertEqual(self.check("echo"), "SERVING", "the other pipeline")
        (self.shoald.folder / "broken").unlink()
        watch.wait("SERVING", "NOT_SERVING", "SERVING")


if __name__ == "__main__":
    shoal_fixture.main()
