# SPDX-License-Identifier: Apache-2.0
"""Clients of REST that ask and do not read: binary answers are lent from the arena, so each holds a
slot until it is sent.

Proves: a client that takes nothing holds its slot for `send_timeout_ms` at most, over TCP
and unix sockets; while others are refused, by either protocol, it loses it sooner; it is
disconnected and counted (`http_cut`); its neighbours are served; and one that reads late, but
within its time, gets all of its answer.
ctest: timeout=240 presets=dev
"""

import socket
import unittest

import shoal_fixture
from shoal_attacks import INFER, X, infer_bytes
from shoal_client import Client, failure
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_http2 import Http2
from shoal_rest import Rest, port_of, tensor

SLOTS = 2  # and as many answers of this size fit into the arena
ANSWER_BYTES = 12 << 20  # more than sockets buffer
HOUR_MS = 3600000


class Reader:
    """A connection that asks for a large answer and reads when it is told to."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(WAIT_SECONDS)
        self.socket.connect(address)
        body, headers = Rest(0).infer_body(
            [tensor("x", "UINT8", [ANSWER_BYTES], binary_data_size=ANSWER_BYTES)],
            bytes(ANSWER_BYTES), parameters={"binary_data_output": True})
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        self.socket.sendall(f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n{head}"
                            f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def is_whole(self):
        """Reads to the answer's end, or the connection's."""
        got = self.socket.recv(1 << 16)
        while b"\r\n\r\n" not in got:
            got += self.socket.recv(1 << 16)
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n")
                      if line.startswith(b"Content-Length:"))
        left = length - len(body)
        while left > 0:
            try:
                got = self.socket.recv(1 << 20)
            except ConnectionError:
                return False
            if not got:
                return False
            left -= len(got)
        return True


class TestRestReaders(unittest.TestCase):
    def serve(self, **keys):
        config = node(pipeline("echo", stage("libecho.so"), slots=SLOTS), message_mib=16,
                      http=["127.0.0.1:0", "unix:http.sock"], **keys)
        self.shoald = self.enterContext(Shoald(config))
        self.client = self.enterContext(Client(self.shoald.target))
        self.rest = self.enterContext(Rest(port_of(self.shoald)))
        return ("127.0.0.1", port_of(self.shoald))

    def wait_cut(self, count):
        wait_until(lambda: self.shoald.stat()["http_cut"] == count, f"{count} that are cut")
        self.shoald.wait_all_returned("echo")

    def check_served(self):
        self.client.infer_raw("echo", X)
        self.assertEqual(self.rest.infer("echo", tensor("x", "INT64", [1], [7])).data(), [7])

    def hold(self, address, count=SLOTS):
        """So many readers, each with an answer that it has not read."""
        readers = []
        for _ in range(count):
            readers.append(self.enterContext(Reader(address)))
            self.shoald.wait_stat("echo", lambda stat: stat["replies_ok"] == len(readers),
                                  "an answer")
        return readers

    def test_time_is_over(self):
        address = self.serve(send_timeout_ms=300, http_write_timeout_ms=HOUR_MS)
        readers = self.hold(address)
        self.wait_cut(SLOTS)
        self.check_served()
        for reader in readers:
            self.assertFalse(reader.is_whole())

    def test_unix_socket(self):
        self.serve(send_timeout_ms=300, http_write_timeout_ms=HOUR_MS)
        readers = self.hold(str(self.shoald.folder / "http.sock"))
        self.wait_cut(SLOTS)
        self.check_served()
        self.assertFalse(readers[0].is_whole())

    def test_others_are_served(self):
        """Neither time-out is near: the caller that holds the slots is disconnected because others
        are refused."""
        address = self.serve(send_timeout_ms=HOUR_MS, http_write_timeout_ms=HOUR_MS)
        self.hold(address)
        code, text = failure(self.client.start_raw("echo", X))
        self.assertEqual(code.name, "RESOURCE_EXHAUSTED", text)
        wait_until(lambda: self.client.start_raw("echo", X).exception() is None, "a call by gRPC")
        self.wait_cut(SLOTS)
        self.check_served()

    def test_others_over_rest_are_served(self):
        address = self.serve(send_timeout_ms=HOUR_MS, http_write_timeout_ms=HOUR_MS)
        self.hold(address)
        wait_until(lambda: self.rest.infer("echo", tensor("x", "INT64", [1], [7])).code == 200,
                   "a call over HTTP")
        self.wait_cut(SLOTS)

    def test_grpc_readers_make_room_for_rest(self):
        """The other way round: refusals over HTTP are seen where gRPC callers hold the slots."""
        self.serve(send_timeout_ms=HOUR_MS)
        with Http2(str(self.shoald.socket), window=0) as hog:
            hog.ask(INFER, infer_bytes(self.client), count=SLOTS)
            self.shoald.wait_stat("echo", lambda stat: stat["slots_used"] == SLOTS, "all slots")
            wait_until(lambda: self.rest.infer("echo", tensor("x", "INT64", [1], [7])).code == 200,
                       "a call over HTTP")
            self.assertEqual(self.shoald.stat()["http_cut"], 0)

    def test_node_that_stops(self):
        """It does not wait for them longer than for others."""
        address = self.serve(send_timeout_ms=HOUR_MS, http_write_timeout_ms=HOUR_MS,
                             drain_timeout_ms=100)
        readers = self.hold(address)
        self.shoald.drain()
        self.shoald.check_end()
        self.assertFalse(readers[0].is_whole())

    def test_late_reader_gets_all(self):
        address = self.serve(http_write_timeout_ms=HOUR_MS)
        for reader in self.hold(address):
            self.assertTrue(reader.is_whole())
        self.shoald.wait_all_returned("echo")
        self.assertEqual(self.shoald.stat()["http_cut"], 0)


if __name__ == "__main__":
    shoal_fixture.main()
