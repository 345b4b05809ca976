# SPDX-License-Identifier: Apache-2.0
"""Users of a node's HTTP do not hold up each other.

Thousands of idle sockets on REST and metrics, and large JSON in a row: probes, scrapes and small
requests are answered all the same. Seen by the order of answers and by counters, not by time.
ctest: timeout=240
"""

import contextlib
import resource
import select
import unittest

import shoal_fixture
from shoal_attacks import idle_sockets, large_json, raise_descriptors
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_rest import ANY_PORT, Rest, tensor

IDLE_EACH = 1000
LARGE_COUNT = 4
LARGE_ELEMENTS = 7_000_000  # 14 MB of JSON


def start(case, **keys):
    """A node with all that HTTP serves; the ports by service."""
    config = node(pipeline("echo", stage("libecho.so"), slots=16), message_mib=16, http=ANY_PORT,
                  metrics=ANY_PORT, probes=ANY_PORT, **keys)
    case.shoald = case.enterContext(Shoald(config))
    return {service: int(case.shoald.wait_log(
        rf"http_listening address=\S+ port=(\d+) service={service} tls=no")[1])
        for service in ("http", "metrics", "probes")}


class TestNeighbours(unittest.TestCase):
    def figure(self, name):
        return self.shoald.stat()[name]

    def assert_all_answer(self, ports):
        for service, path in (("probes", "/live"), ("probes", "/ready"), ("metrics", "/metrics"),
                              ("http", "/v2/health/live")):
            with Rest(ports[service]) as client:
                self.assertEqual(client.get(path).code, 200, (service, path))

    def test_idle_crowd(self):
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, raise_descriptors())
        ports = start(self)
        with Rest(ports["probes"]) as kept:
            self.assertEqual(kept.get("/live").code, 200)
            for service in ("http", "metrics"):
                idle_sockets(self.enterContext(contextlib.ExitStack()), ports[service], IDLE_EACH)
            self.assert_all_answer(ports)
            wait_until(lambda: self.figure("http_evicted") > 0, "idle connections to give way")
            self.assertEqual(self.figure("http_refused"), 0)
            # the oldest connection of all, but of another service: it has not given way
            self.assertEqual(kept.get("/live").code, 200)

    def test_large_bodies(self):
        ports = start(self)
        before = self.figure("http_large_bodies")
        with Rest(ports["http"]) as small, Rest(ports["probes"]) as probe:
            large = [self.enterContext(Rest(ports["http"])) for _ in range(LARGE_COUNT)]
            body = large_json(LARGE_ELEMENTS)
            for one in large:
                one.send("POST", "/v2/models/echo/infer", body)
            wait_until(lambda: self.figure("http_large_bodies") == before + LARGE_COUNT,
                       "all large bodies to be there")
            self.assertEqual(probe.get("/live").code, 200)
            self.assertEqual(small.infer("echo", tensor("x", "INT8", [1], [1])).data(), [1])
            self.assertEqual(select.select([large[-1].connection.sock], [], [], 0)[0], [],
                             "the last large one was answered before")
            for one in large:
                self.assertEqual(one.receive().code, 200)
        self.assertEqual(self.figure("http_large_refused"), 0)

    def test_too_many_large_bodies(self):
        """One that is being read, and one that waits: one more gets 429."""
        ports = start(self, http_large_kib=1, http_large_waiting=1)
        large = [self.enterContext(Rest(ports["http"])) for _ in range(LARGE_COUNT)]
        body = large_json(LARGE_ELEMENTS)
        for one in large:
            one.send("POST", "/v2/models/echo/infer", body)
        codes = [one.receive().code for one in large]
        self.assertEqual(set(codes), {200, 429}, codes)
        wait_until(lambda: self.figure("http_large_refused") == codes.count(429), "the counter")


if __name__ == "__main__":
    shoal_fixture.main()
