# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: what is in flight is finished within the grace time, nothing new is taken, exit code 0.

The grace time is an hour where requests are to finish, so that a drain which waits for the wrong
thing does not pass by running out of it; it is short where the grace is to run out.

ctest: timeout=240 presets=dev
"""

import collections
import signal
import socket
import subprocess
import sys
import threading
import unittest

import shoal_fixture
from shoal_client import Client, failure, said
from shoal_fixture import SOURCE, Shoald, node, pipeline, stage, wait_until

HOUR_MS = 3600 * 1000
CALLERS = 6


def puppet_node(grace_ms, *more, **keys):
    return node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}, **keys), slots=32),
                *more, message_mib=1, drain_timeout_ms=grace_ms)


class TestDrain(unittest.TestCase):
    def start(self, config):
        self.shoald = self.enterContext(Shoald(config))
        self.client = self.enterContext(Client(self.shoald.target))

    def hold(self, name):
        future = self.client.tell(f"hold {name}")
        wait_until((self.shoald.folder / f"{name}.held").exists, "the request to be running")
        return future

    def test_in_flight_is_finished(self):
        self.start(puppet_node(HOUR_MS))
        held = self.hold("a")
        waiting = [self.client.tell(f"echo {i}") for i in range(10)]
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 10, "10 to wait")
        self.shoald.drain()
        code, text = failure(self.client.tell("echo too-late"))
        self.assertEqual(code.name, "UNAVAILABLE", text)
        with Client(self.shoald.target) as newcomer:
            code, text = failure(newcomer.tell("echo too-late"))
            self.assertEqual(code.name, "UNAVAILABLE", text)
        self.assertFalse(held.done() or any(future.done() for future in waiting))
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(said(held.result()), "hold a")
        self.assertEqual([said(future.result()) for future in waiting],
                         [f"echo {i}" for i in range(10)])
        self.shoald.check_end()
        self.assertNotIn("echo too-late", (self.shoald.folder / "runs").read_text())
        self.assertIn("left_in_flight=0", self.shoald.stderr)

    def test_batch_does_not_wait_for_company(self):
        self.start(puppet_node(HOUR_MS, batch_size=8, batch_wait="fixed", batch_wait_ms=60000))
        future = self.client.tell("echo lonely")
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["items"] == 1,
                              "the request to wait for company")
        self.assertFalse(future.done())
        self.shoald.drain()
        self.assertEqual(said(future.result()), "echo lonely")
        self.shoald.check_end()

    def test_nothing_in_flight(self):
        self.start(puppet_node(HOUR_MS))
        self.client.tell("echo x").result()
        self.shoald.drain()
        self.shoald.check_end()

    def test_after_every_method(self):
        """Earlier questions of any number do not hold up the end."""
        self.start(puppet_node(HOUR_MS))
        for method in ("ServerLive", "ServerReady", "ServerMetadata"):
            self.client.call(method)
        for method in ("ModelReady", "ModelMetadata"):
            self.client.call(method, name="puppet")
        clients = [self.enterContext(Client(self.shoald.target)) for _ in range(10)]
        for client in clients:
            client.call("ModelMetadata", name="puppet")
        self.shoald.drain()
        self.shoald.check_end()

    def test_silent_connection(self):
        """A silent connection."""
        self.start(puppet_node(HOUR_MS))
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(str(self.shoald.socket))
            self.client.call("ServerLive")
            self.shoald.drain()
            self.shoald.check_end()

    def test_grace_runs_out(self):
        """Then the rest gets UNAVAILABLE, and a worker that does not come back is killed."""
        self.start(puppet_node(300, pipeline("echo", stage("libecho.so"), slots=8)))
        held = self.hold("a")
        waiting = [self.client.tell(f"echo {i}") for i in range(5)]
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 5, "5 to wait")
        self.shoald.drain()
        for future in [held, *waiting]:
            code, text = failure(future)
            self.assertEqual(code.name, "UNAVAILABLE", text)
        self.shoald.check_end()
        self.assertIn("left_in_flight=6", self.shoald.stderr)

    def test_no_grace(self):
        self.start(puppet_node(0))
        held = self.hold("a")
        self.shoald.drain()
        self.assertEqual(failure(held)[0].name, "UNAVAILABLE")
        self.shoald.check_end()

    def test_callers_that_go_on(self):
        """They get UNAVAILABLE, and nothing else, until long after the node has gone."""
        self.start(puppet_node(HOUR_MS))
        answered, codes, gone = collections.Counter(), collections.Counter(), threading.Event()

        def call(number):
            with Client(self.shoald.target) as client:
                while not gone.is_set():
                    future = client.tell("echo x")
                    code = future.code()
                    counter, key = (answered, number) if code.name == "OK" else (codes, code.name)
                    counter[key] += 1
        callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            wait_until(lambda: len(answered) == CALLERS, "all callers to be answered")
            self.shoald.drain()
            self.shoald.check_end()
        finally:
            gone.set()
            for caller in callers:
                caller.join()
        self.assertEqual(set(codes), {"UNAVAILABLE"}, codes)

    def test_client_that_does_not_read(self):
        """Its reply never gets through; after the grace time that no longer matters."""
        script = ("import sys; sys.path[:0] = [sys.argv[1]]\n"
                  "from shoal_client import Client\n"
                  "client = Client(sys.argv[2])\n"
                  "data = bytes(15 << 20)\n"
                  "while True:\n"
                  "    client.infer_raw('echo', ('x', 'INT8', [len(data)], data))\n"
                  "    print('answered', flush=True)\n")
        self.start(node(pipeline("echo", stage("libecho.so"), slots=8, arena_mib=64),
                        message_mib=16, drain_timeout_ms=500))
        with subprocess.Popen([sys.executable, "-c", script, SOURCE / "tests" / "integration",
                               self.shoald.target], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as caller:
            self.assertEqual(caller.stdout.readline(), b"answered\n")
            caller.send_signal(signal.SIGSTOP)
            self.shoald.drain()
            self.shoald.check_end()
            caller.kill()

    def test_signals_while_draining(self):
        """SIGHUP changes nothing; SIGINT after SIGTERM is the second of its kind."""
        self.start(puppet_node(HOUR_MS))
        held = self.hold("a")
        self.shoald.drain()
        self.shoald.signal(signal.SIGHUP)
        self.shoald.wait_log("reload_ignored")
        self.assertEqual(failure(self.client.tell("echo x"))[0].name, "UNAVAILABLE")
        self.assertFalse(held.done())
        self.shoald.signal(signal.SIGINT)
        self.assertEqual(failure(held)[0].name, "UNAVAILABLE")
        self.assertEqual(self.shoald.wait_exit(), 130, self.shoald.stderr)

    def test_worker_dies_while_draining(self):
        """Its items are still run again."""
        self.start(puppet_node(HOUR_MS))
        held = self.hold("a")
        crash = self.client.tell("crash-once b")
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 1, "1 to wait")
        self.shoald.drain()
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(said(held.result()), "hold a")
        self.assertEqual(said(crash.result()), "crash-once b")
        self.shoald.check_end()


if __name__ == "__main__":
    shoal_fixture.main()
