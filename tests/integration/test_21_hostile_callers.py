# SPDX-License-Identifier: Apache-2.0
"""One caller that takes all of a resource: connections, descriptors, slots of answers that it
does not take, streams. The others are served all the same, or again as soon as there is room.

All callers are real sockets, the hostile ones speak HTTP/2 by themselves (shoal_http2.py). Nothing
is timed: each wait is for what is sure to happen. ctest: timeout=240
"""

import contextlib
import errno
import http.client
import os
import re
import threading
import time
import unittest

import shoal_attacks
import shoal_fixture
from shoal_attacks import INFER, X, AcceptFails, Limited, infer_bytes
from shoal_client import INFERENCE, Client, failure
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_http2 import MAX_CONCURRENT_STREAMS, Http2
from shoal_rest import ANY_PORT, Rest, port_of

LIVE = f"/{INFERENCE}/ServerLive"


class TestConnections(unittest.TestCase):
    def test_too_many(self):
        """Of 200 connections of one machine it keeps eight, which is half of a quarter of 64
        descriptors; another machine is served meanwhile, and this one when it has closed its
        own."""
        config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1)
        with Limited(config, 64) as shoald:
            address = ("127.0.0.1", shoald.port)
            crowd = [Http2(address) for _ in range(200)]
            shoald.wait_node(lambda stat: stat["grpc_refused"] == 192, "192 refused")
            self.assertEqual(shoald.stat()["grpc_connections"], 8)
            self.assertEqual(sum(one.is_open() for one in crowd), 8)
            with Http2(address, source=("127.0.0.2", 0)) as other:
                self.assertNotEqual(other.wait_end(other.ask(LIVE)), b"")
            for one in crowd:
                one.socket.close()
            shoald.wait_node(lambda stat: stat["grpc_connections"] == 0, "all closed")
            with Client(shoald.target) as client:
                self.assertEqual(client.infer_raw("echo", X).raw_output_contents[0], bytes(4))

    def test_limits_of_the_configuration(self):
        config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1,
                      connections_max=5, connections_per_peer_max=3)
        with Limited(config, 1024) as shoald:
            address = ("127.0.0.1", shoald.port)
            crowd = [Http2(address, source=(f"127.0.0.{1 + i % 3}", 0)) for i in range(15)]
            shoald.wait_node(lambda stat: stat["grpc_refused"] == 10, "10 refused")
            self.assertEqual(sum(one.is_open() for one in crowd), 5)
            crowd += [Http2(address, source=("127.0.0.9", 0))]
            shoald.wait_node(lambda stat: stat["grpc_refused"] == 11, "11 refused")
            for one in crowd:
                one.socket.close()
            shoald.wait_node(lambda stat: stat["grpc_connections"] == 0, "all closed")
            crowd = [Http2(address) for _ in range(4)]
            shoald.wait_node(lambda stat: stat["grpc_refused"] == 12, "12 refused")
            for one in crowd:
                one.socket.close()

    def test_streams_of_the_configuration(self):
        for keys, streams in (({}, 256), ({"streams_per_connection_max": 3}, 3)):
            config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1, **keys)
            with self.subTest(streams), Limited(config, 1024) as shoald, \
                    Http2(("127.0.0.1", shoald.port)) as caller:
                self.assertEqual(caller.read_settings()[MAX_CONCURRENT_STREAMS], streams)

    def test_lack_of_descriptors(self):
        """None is left: the node says that it is not ready, and goes on when there are some
        again."""
        config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1, http=ANY_PORT)
        with Limited(config, 1024) as shoald:
            with Rest(port_of(shoald)) as rest, Client(shoald.target) as client:
                client.infer_raw("echo", X)
                self.assertEqual(rest.get("/v2/health/ready").code, 200)
                shoald.limit(8)
                with Http2(("127.0.0.1", shoald.port)) as waits:
                    wait_until(lambda: rest.get("/v2/health/ready").code == 503, "not ready")
                    self.assertFalse(client.call("ServerReady").ready)
                    client.infer_raw("echo", X)  # connected clients are served
                    shoald.limit(1024)
                    self.assertNotEqual(waits.wait_end(waits.ask(LIVE)), b"")
                wait_until(lambda: rest.get("/v2/health/ready").code == 200, "ready again")
            self.assertGreater(shoald.stat()["grpc_lacks"], 0)
            shoald.wait_log("grpc_not_accepting")
            shoald.wait_log("grpc_accepting")

    def test_lack_of_files_or_memory(self):
        """The machine has no more of them: the same, and both listeners try again until it has."""
        for number in (errno.ENFILE, errno.ENOMEM):
            config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1,
                          http=ANY_PORT)
            with self.subTest(errno.errorcode[number]), AcceptFails(config) as shoald:
                self.check_lack(shoald, number)

    def check_lack(self, shoald, number):
        port = port_of(shoald)
        with Rest(port) as rest, Client(shoald.target) as client:
            client.infer_raw("echo", X)
            self.assertEqual(rest.get("/v2/health/ready").code, 200)
            shoald.fail_accept(number)
            new = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
            with contextlib.closing(new), Http2(("127.0.0.1", shoald.port)) as waits:
                new.request("GET", "/v2/health/live")
                asked = waits.ask(LIVE)
                wait_until(lambda: rest.get("/v2/health/ready").code == 503, "not ready")
                self.assertFalse(client.call("ServerReady").ready)
                shoald.wait_node(lambda stat: stat["grpc_lacks"] > 2 < stat["http_not_accepting"],
                                 "more than one try of each")
                client.infer_raw("echo", X)  # connected clients are served
                self.assertEqual(rest.get("/v2/health/ready").code, 503)
                shoald.relieve()
                self.assertNotEqual(waits.wait_end(asked), b"")
                self.assertEqual(new.getresponse().status, 200)
            wait_until(lambda: rest.get("/v2/health/ready").code == 200, "ready again")
        why = re.escape(os.strerror(number))
        shoald.wait_log(f'grpc_not_accepting why="{why}"')
        shoald.wait_log(f'http_not_accepting errno={number} why="{why}"')
        shoald.wait_log("grpc_accepting")


class TestFloods(unittest.TestCase):
    """Streams by the ten thousand, in ways that the limit of concurrent streams does not stop. Such
    a caller is disconnected; another caller is served all the time; memory is given back."""

    config = node(pipeline("echo", stage("libecho.so"), slots=64), message_mib=1)
    MEMORY_KIB = 200 << 10  # more than an attack may take, far less than 100,000 streams do

    def flood(self, attack, streams):
        with Limited(self.config, 1024) as shoald, Client(shoald.target) as client:
            client.infer_raw("echo", X)
            before = self.memory_kib(shoald, "VmRSS")
            times = []
            with Http2(("127.0.0.1", shoald.port), acknowledge=False) as hostile:
                sender = threading.Thread(target=shoal_attacks.send_flood,
                                          args=(hostile, attack, streams))
                sender.start()
                while sender.is_alive() or shoald.stat()["grpc_cut"] == 0:
                    begun = time.monotonic()
                    client.infer_raw("echo", X)
                    times.append(time.monotonic() - begun)
                sender.join()
            shoald.wait_node(lambda stat: stat["grpc_connections"] == 1, "the end of the attack")
            highest = self.memory_kib(shoald, "VmHWM")
            print(f"calls={len(times)} longest_ms={1000 * max(times):.0f} memory_kib={before} "
                  f"highest_kib={highest} now_kib={self.memory_kib(shoald, 'VmRSS')}", flush=True)
            if not shoal_fixture.sanitized():
                self.assertLess(highest - before, self.MEMORY_KIB)
                wait_until(lambda: self.memory_kib(shoald, "VmRSS") - before < self.MEMORY_KIB / 2,
                           "memory to be given back")

    @staticmethod
    def memory_kib(shoald, name):
        status = shoal_fixture.read_proc(shoald.pid, "status")
        return int(re.search(rf"{name}:\s+(\d+)", status).group(1))

    def test_again_and_again(self):
        """One that is cut connects and floods anew, from another address since its own has to wait:
        it gets no further than the first time. (Each time 256 streams further would be 200 MiB in
        the end.)"""
        attack = shoal_attacks.settings_never_acknowledged
        with Limited(self.config, 1024) as shoald:
            before = self.memory_kib(shoald, "VmRSS")
            for cut in range(1, 61):
                with contextlib.suppress(OSError), \
                        Http2(("127.0.0.1", shoald.port), source=(f"127.0.1.{cut}", 0),
                              acknowledge=False) as hostile:
                    shoal_attacks.send_flood(hostile, attack, 100_000)
                shoald.wait_node(lambda stat, cut=cut: stat["grpc_cut"] == cut, f"cut {cut}")
            if not shoal_fixture.sanitized():
                self.assertLess(self.memory_kib(shoald, "VmHWM") - before, self.MEMORY_KIB)

    def test_address_has_to_wait(self):
        """New connections from the address of a flood wait for a second after it; connected clients
        from there, and others, have not. On a machine that stands still for that second nobody
        waits, so it is tried until somebody does."""
        attack = shoal_attacks.settings_never_acknowledged
        address, source = ("127.0.0.1", ("127.0.0.2", 0))
        with Limited(self.config, 1024) as shoald, \
                Http2((address, shoald.port), source=source) as old, Client(shoald.target) as client:
            self.assertNotEqual(old.wait_end(old.ask(LIVE)), b"")
            for cut in range(1, 21):
                began = time.monotonic()
                with contextlib.suppress(OSError), \
                        Http2((address, shoald.port), source=source, acknowledge=False) as hostile:
                    shoal_attacks.send_flood(hostile, attack, 100_000)
                shoald.wait_node(lambda stat, cut=cut: stat["grpc_cut"] == cut, f"cut {cut}")
                with Http2((address, shoald.port), source=source) as new:
                    asked = new.ask(LIVE)
                    self.assertNotEqual(old.wait_end(old.ask(LIVE)), b"")
                    client.infer_raw("echo", X)
                    self.assertNotEqual(new.wait_end(asked), b"")
                    seconds = time.monotonic() - began
                shoald.wait_published()
                if shoald.stat()["grpc_held"] > 0:
                    break
            self.assertGreaterEqual(seconds, 1)
            self.assertEqual(shoald.stat()["grpc_held"], 1)

    def test_settings_never_acknowledged(self):
        self.flood(shoal_attacks.settings_never_acknowledged, 100_000)

    def test_rapid_reset(self):
        self.flood(shoal_attacks.rapid_reset, 500_000)

    def test_half_sent_messages(self):
        self.flood(shoal_attacks.half_sent_messages, 50_000)


class TestAnswersNotTaken(unittest.TestCase):
    """A caller with a closed window asks for as many answers as there are slots, and takes none."""

    def config(self, **keys):
        return node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1, **keys)

    def fill(self, shoald, caller, client):
        """A slot is free only when its answer has been sent, which is after the client has it."""
        shoald.wait_published()
        shoald.wait_stat("echo", lambda stat: stat["slots_used"] == 0, "no slot in use")
        caller.ask(INFER, infer_bytes(client), count=8)
        shoald.wait_stat("echo", lambda stat: stat["slots_used"] == 8, "all slots in use")

    def test_others_are_served(self):
        """Others are refused for a moment only; the caller that holds the slots is disconnected."""
        with Limited(self.config(send_timeout_ms=3600000), 1024) as shoald:
            with Client(shoald.target) as client:
                client.infer_raw("echo", X)
                with Http2(("127.0.0.1", shoald.port), window=0) as hog:
                    self.fill(shoald, hog, client)
                    code, text = failure(client.start_raw("echo", X))
                    self.assertEqual(code.name, "RESOURCE_EXHAUSTED", text)
                    wait_until(lambda: client.start_raw("echo", X).exception() is None,
                               "a call that is served")
                    wait_until(lambda: not hog.is_open(), "the hog's end")
                shoald.wait_all_returned("echo")
                shoald.wait_node(lambda stat: stat["grpc_cut"] == 1, "one that was cut")
                client.infer_raw("echo", X)  # over its old connection

    def test_time_is_over(self):
        with Limited(self.config(send_timeout_ms=300), 1024) as shoald:
            with Client(shoald.target) as client, \
                    Http2(("127.0.0.1", shoald.port), window=0) as hog:
                self.fill(shoald, hog, client)
                wait_until(lambda: not hog.is_open(), "the hog's end")
                shoald.wait_all_returned("echo")
                client.infer_raw("echo", X)

    def test_unix_socket(self):
        """Its connections cannot be distinguished: the calls end, the connection does not."""
        with Shoald(self.config(send_timeout_ms=300)) as shoald, Client(shoald.target) as client, \
                Http2(str(shoald.socket), window=0) as hog:
            self.fill(shoald, hog, client)
            shoald.wait_all_returned("echo")
            self.assertTrue(hog.is_open())
            client.infer_raw("echo", X)
            wait_until(lambda: shoald.stat()["grpc_cut"] == 8, "eight calls that were ended")

    def test_slow_reader_is_left_alone(self):
        """A caller that takes an answer late, but within its time, gets it."""
        with Limited(self.config(), 1024) as shoald, Client(shoald.target) as client, \
                Http2(("127.0.0.1", shoald.port), window=0) as slow:
            last = slow.ask(INFER, infer_bytes(client), count=2)
            shoald.wait_stat("echo", lambda stat: stat["slots_used"] == 2, "two slots in use")
            slow.open_window(last - 2)
            slow.open_window(last)
            self.assertNotEqual(slow.wait_end(last), b"")
            shoald.wait_all_returned("echo")


if __name__ == "__main__":
    shoal_fixture.main()
