# SPDX-License-Identifier: Apache-2.0
"""A node whose listening sockets the service manager keeps is replaced without a failed call.

The test is the manager: it binds the sockets and passes them as sd_listen_fds(3) has them, and
restarts shoald while clients call that neither wait nor retry. They reconnect when they are asked
to: by GOAWAY, and by `Connection: close`. ctest: timeout=240
"""

import fcntl
import json
import os
import pathlib
import signal
import socket
import tempfile
import unittest

import shoal_fixture
from shoal_attacks import puppet
from shoal_callers import Callers, grpc_calls, grpc_connects, rest_calls, rest_connects
from shoal_client import Client, said
from shoal_dashboard import Dashboard
from shoal_fixture import WAIT_SECONDS, Shoald, is_alive, node, pipeline, stage

RESTARTS = 20
CALLERS = 4


def listening(family, address):
    """High enough that no shell uses its number."""
    plain = socket.socket(family)
    plain.bind(address)
    plain.listen(512)
    high = fcntl.fcntl(plain.fileno(), fcntl.F_DUPFD, 100)
    os.set_inheritable(high, True)
    plain.close()
    return socket.socket(fileno=high)


class Activated(Shoald):
    def __init__(self, config, sockets, **options):
        super().__init__(config, listen=options.pop("listen"), **options)
        self.pass_fds = [one.fileno() for one in sockets]
        numbers = " ".join(f"{3 + i}<&{one.fileno()}" for i, one in enumerate(sockets))
        self.command = ["bash", "-c", f'exec {numbers}; export LISTEN_PID=$$ '
                        f'LISTEN_FDS={len(sockets)}; exec "$0" "$@"', *self.command]

    def check_nothing_left(self):
        left = [worker for worker in self.all_workers() if is_alive(worker.pid)]
        assert not left, f"still alive after shoald: {left}"


class TestActivation(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.path = self.folder / "s"
        self.grpc = listening(socket.AF_INET, ("127.0.0.1", 0))
        self.rest = listening(socket.AF_INET, ("127.0.0.1", 0))
        self.unix = listening(socket.AF_UNIX, str(self.path))
        self.sockets = [self.grpc, self.rest, self.unix]
        for one in self.sockets:
            self.addCleanup(one.close)
        self.target = f"127.0.0.1:{self.grpc.getsockname()[1]}"
        self.port = self.rest.getsockname()[1]

    def shoald(self, *pipelines, **keys):
        pipelines = pipelines or [pipeline("echo", stage("libecho.so"), slots=64)]
        config = node(*pipelines, http=f"127.0.0.1:{self.port}", **keys)
        return Activated(config, self.sockets, listen=[self.target, f"unix:{self.path}"])

    def test_restarts_fail_no_call(self):
        self.restart([grpc_calls(self.target)] * CALLERS + [grpc_calls(f"unix:{self.path}")] +
                     [rest_calls(self.port)] * CALLERS)

    def test_a_lone_caller_that_keeps_no_connection(self):
        """The node takes no last call that it then refuses."""
        for caller in rest_connects(self.port), grpc_connects(self.target):
            with self.subTest(caller):
                self.restart([caller])

    def restart(self, loops):
        shoald = self.shoald()
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        with Callers(*loops) as callers:
            for _ in range(RESTARTS):
                callers.wait_progress()
                self.assertEqual(shoald.terminate(), 0, shoald.stderr)
                self.assertNotIn("late_calls_refused", shoald.stderr)
                shoald.start().wait_ready()
            callers.wait_progress()
        self.assertEqual(callers.failed, [])
        print(f"{RESTARTS} restarts, {sum(callers.done)} calls, {len(callers.failed)} failed")
        self.assertEqual(shoald.terminate(), 0)
        self.assertTrue(self.path.exists(), "the socket's file is the manager's")

    def test_long_calls_are_finished(self):
        """A call that runs while clients are asked to reconnect is answered by the old node."""
        shoald = self.shoald(pipeline("p", puppet(), slots=8))
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        with Client(self.target) as client:
            call = client.tell("slow 1000", "p")
            shoald.wait_stat("p", lambda stat: stat["slots_used"] == 1, "the call to run")
            shoald.signal(signal.SIGTERM)
            self.assertEqual(said(call.result()), "slow 1000")
        self.assertEqual(shoald.wait_exit(), 0)

    def test_pages_of_the_dashboard_move(self):
        """The old node ends them at once, while it still serves, and accepts no more."""
        pages = listening(socket.AF_INET, ("127.0.0.1", 0))
        self.addCleanup(pages.close)
        self.sockets.append(pages)
        port = pages.getsockname()[1]
        shoald = self.shoald(pipeline("p", puppet(), slots=8), dashboard=f"127.0.0.1:{port}")
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        with Client(self.target) as client, Dashboard(port).stream() as stream:
            self.assertEqual(stream.sample()["stat"]["pid"], shoald.pid)
            call = client.tell("slow 1000", "p")
            shoald.wait_stat("p", lambda stat: stat["slots_used"] == 1, "the call to run")
            old = shoald.pid
            shoald.signal(signal.SIGTERM)
            while stream.sample() is not None:
                pass
            self.assertFalse(call.done())
            waiting = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
            self.addCleanup(waiting.close)
            waiting.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertEqual(said(call.result()), "slow 1000")
        self.assertEqual(shoald.wait_exit(), 0)
        shoald.start().wait_ready()
        with waiting.makefile("rb") as answer:
            sample = next(line for line in answer if line.startswith(b"data: "))
        self.assertEqual(json.loads(sample[6:])["stat"]["pid"], shoald.pid)
        self.assertNotEqual(shoald.pid, old)
        self.assertEqual(shoald.terminate(), 0)

    def test_a_socket_of_no_address_is_reported(self):
        self.sockets.append(listening(socket.AF_INET, ("127.0.0.1", 0)))
        with self.shoald() as shoald:
            shoald.wait_log("sockets_unused count=1")
            for worker in shoald.workers():
                links = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{worker.pid}/fd").iterdir()]
                own = {f"socket:[{os.fstat(one.fileno()).st_ino}]" for one in self.sockets}
                self.assertFalse(own & set(links), "a worker has a listening socket")


if __name__ == "__main__":
    shoal_fixture.main()
