# SPDX-License-Identifier: Apache-2.0
"""Requests of callers that left are not run, and their resources come back.

Callers cancel, run out of time or are killed, with requests in the queue and in a modelet; each
test ends by finding every slot and block free again. The modelet shows through files what it runs.
ctest: timeout=180 presets=dev
"""

import contextlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

import shoal_fixture
from shoal_client import Client, failure, said
from shoal_fixture import SOURCE, Shoald, free_port, node, pipeline, stage, wait_until

PORT = free_port()
PING, GOAWAY, ACK = 6, 7, 1


class TestCancellation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config = node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=8),
                      pipeline("echo", stage("libecho.so"), slots=8, arena_mib=64),
                      message_mib=16)
        cls.shoald = cls.enterClassContext(Shoald(config, ["--listen", f"127.0.0.1:{PORT}"]))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def cue(self, name):
        return self.shoald.folder / name

    def wait_cue(self, name):
        wait_until(self.cue(name).exists, f"{name}; the log:\n{self.shoald.stderr}")

    def runs(self):
        return self.cue("runs").read_text().splitlines()

    def test_cancelled_in_the_queue(self):
        """It is not run, and its slot comes back."""
        before = self.shoald.pipeline_stat("puppet")
        held = self.client.tell("hold queue")
        self.wait_cue("queue.held")
        waiting = [self.client.tell(f"echo queued-{i}") for i in range(7)]
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 7, "7 to wait")
        for future in waiting[:6]:
            future.cancel()
        self.shoald.wait_stat("puppet", lambda stat: stat["cancelled"] == before["cancelled"] + 6,
                              "the cancellations to arrive")
        self.cue("queue.go").touch()
        self.assertEqual(said(held.result()), "hold queue")
        self.assertEqual(said(waiting[6].result()), "echo queued-6")
        self.assertEqual([run for run in self.runs() if "queued" in run], ["echo queued-6"])
        stat = self.shoald.wait_all_returned("puppet")
        self.assertEqual(stat["stages"][0]["items_cancelled"]
                         - before["stages"][0]["items_cancelled"], 6)

    def test_cancelled_while_running(self):
        """A modelet that asks learns of it, and may give up."""
        future = self.client.tell("linger run")
        self.wait_cue("run.held")
        future.cancel()
        self.wait_cue("run.gave_up")
        self.shoald.wait_all_returned("puppet")

    def test_cancelled_while_running_unasked(self):
        """One that does not ask runs to its end, for nobody."""
        future = self.client.tell("hold deaf")
        self.wait_cue("deaf.held")
        future.cancel()
        self.assertEqual(failure(future)[0].name, "CANCELLED")
        self.cue("deaf.go").touch()
        self.assertEqual(said(self.client.tell("echo next").result()), "echo next")
        self.shoald.wait_all_returned("puppet")

    def test_deadline_while_running(self):
        def runs():
            """On a busy machine the deadline may come before the call has."""
            future = self.client.tell("linger deadline", timeout=0.5)
            self.assertEqual(failure(future)[0].name, "DEADLINE_EXCEEDED")
            return self.cue("deadline.held").exists()
        wait_until(runs, lambda: f"a call to run; the log:\n{self.shoald.stderr}")
        self.wait_cue("deadline.gave_up")
        self.shoald.wait_all_returned("puppet")

    def test_killed_client(self):
        """Of a caller that is killed, nothing is left."""
        script = ("import sys; sys.path[:0] = [sys.argv[1]]\n"
                  "from shoal_client import Client\n"
                  "client = Client(sys.argv[2])\n"
                  "lingers = client.tell('linger killed')\n"
                  "sys.stdin.readline()\n"
                  "client.tell('echo orphan').result()\n")
        for target in (self.shoald.target, f"127.0.0.1:{PORT}"):
            with self.subTest(target):
                for name in ("killed.held", "killed.gave_up"):
                    self.cue(name).unlink(missing_ok=True)
                with subprocess.Popen([sys.executable, "-c", script,
                                       SOURCE / "tests" / "integration", target],
                                      stdin=subprocess.PIPE) as caller:
                    self.wait_cue("killed.held")
                    caller.stdin.write(b"go on\n")
                    caller.stdin.flush()
                    self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 1,
                                          "its other request to wait")
                    caller.kill()
                self.wait_cue("killed.gave_up")
                self.shoald.wait_all_returned("puppet")
                self.assertNotIn("echo orphan", self.runs())

    def test_client_that_does_not_read(self):
        """Its reply holds its slot until it goes away."""
        script = ("import sys; sys.path[:0] = [sys.argv[1]]\n"
                  "from shoal_client import Client\n"
                  "client = Client(sys.argv[2], [('grpc.http2.lookahead_bytes', 4096)])\n"
                  "data = bytes(15 << 20)\n"
                  "while True:\n"
                  "    client.infer_raw('echo', ('x', 'INT8', [len(data)], data))\n"
                  "    print('answered', flush=True)\n")
        with subprocess.Popen([sys.executable, "-c", script, SOURCE / "tests" / "integration",
                               self.shoald.target], stdout=subprocess.PIPE) as caller:
            self.assertEqual(caller.stdout.readline(), b"answered\n")
            caller.send_signal(signal.SIGSTOP)
            self.assertEqual(said(self.client.tell("echo meanwhile").result()), "echo meanwhile")
            caller.kill()
        self.shoald.wait_all_returned("echo")

    def test_cancel_storm(self):
        """Cancellations at any moment: nothing is lost, nobody else is harmed."""
        for i in range(60):
            futures = [self.client.tell(f"echo storm-{i}-{k}") for k in range(8)]
            for k, future in enumerate(futures):
                if (i + k) % 3 == 0:
                    future.cancel()
            for k, future in enumerate(futures):
                if future.code().name == "OK":
                    self.assertEqual(said(future.result()), f"echo storm-{i}-{k}")
                else:
                    self.assertIn(future.code().name, ("CANCELLED", "RESOURCE_EXHAUSTED"))
        self.shoald.wait_all_returned("puppet")


class Proxy(threading.Thread):
    """Passes one connection on, and counts the HTTP/2 frames that pass, by direction and type."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.target = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.seen = []
        self.start()

    def run(self):
        client, _ = self.listener.accept()
        self.listener.close()
        server = socket.create_connection(("127.0.0.1", self.port))
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        threading.Thread(target=self.pass_on, args=(client, server, "client", len(preface)),
                         daemon=True).start()
        self.pass_on(server, client, "server", 0)

    def pass_on(self, source, sink, who, skip):
        with source, sink, contextlib.suppress(OSError):  # closed by the other direction
            pending = b""
            while data := source.recv(65536):
                sink.sendall(data)
                pending += data
                if skip:
                    if len(pending) < skip:
                        continue
                    pending, skip = pending[skip:], 0
                while len(pending) >= 9:
                    size, kind, flags = struct.unpack(">IBB", b"\0" + pending[:5])
                    if len(pending) < 9 + size:
                        break
                    self.seen.append((who, kind, flags))
                    pending = pending[9 + size:]

    def count(self, who, kind, acknowledgement=False):
        return sum(1 for frame in self.seen
                   if frame[:2] == (who, kind) and bool(frame[2] & ACK) == acknowledgement)


class TestKeepalive(unittest.TestCase):
    """Pings in both directions, seen on the wire."""

    config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1)

    def test_silent_client_is_pinged(self):
        port = free_port()
        with Shoald({**self.config, "keepalive_time_ms": 1000},
                    ["--listen", f"127.0.0.1:{port}"]):
            proxy = Proxy(port)
            with Client(proxy.target) as client:
                self.assertTrue(client.call("ServerReady").ready)
                wait_until(lambda: proxy.count("server", PING) >= 3, "pings of the server")
                self.assertTrue(client.call("ServerReady").ready)

    def test_pinging_client_is_not_punished(self):
        """One that pings every 6 s, without calls, keeps its connection."""
        wait_until(lambda: pinging.proxy.count("client", PING) >= pinging.already + 4
                   or pinging.proxy.count("server", GOAWAY), "four pings of the client")
        self.assertEqual(pinging.proxy.count("server", GOAWAY), 0, "the client was sent away")
        self.assertTrue(pinging.client.call("ServerReady").ready)


class Pinging:
    """A client that pings every 6 s: four pings take longer than all tests here, so it begins
    before them, and is judged after them."""

    def __init__(self):
        port = free_port()
        unittest.enterModuleContext(Shoald(TestKeepalive.config, ["--listen", f"127.0.0.1:{port}"]))
        self.proxy = Proxy(port)
        self.client = unittest.enterModuleContext(Client(self.proxy.target, [
            ("grpc.keepalive_time_ms", 6000), ("grpc.keepalive_timeout_ms", 20000),
            ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]))
        assert self.client.call("ServerReady").ready
        self.already = self.proxy.count("client", PING)


pinging = None


def setUpModule():
    global pinging
    pinging = Pinging()


if __name__ == "__main__":
    shoal_fixture.main()
