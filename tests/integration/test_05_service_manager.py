# SPDX-License-Identifier: Apache-2.0
"""shoald notifies the service manager that it serves, reloads, stops, and that its loop runs.

The test is the manager: it binds the datagram socket that $NOTIFY_SOCKET names, as systemd does.
Whether systemd accepts the unit is a matter of `./dev package`. ctest: timeout=120 presets=dev
"""

import ctypes
import os
import pathlib
import signal
import socket
import struct
import tempfile
import time
import unittest

import shoal_fixture
from shoal_client import Client
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until

ECHO = node(pipeline("echo", stage("libecho.so"), slots=16), message_mib=1)
X = ("x", "INT32", [1], struct.pack("<i", 1))
LIBC = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


def trace(request, thread):
    LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if LIBC.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


class Manager:
    def __init__(self, folder, address=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address or str(folder / "notify"))
        self.name = address.replace("\0", "@") if address else str(folder / "notify")
        self.said = []

    def environment(self, **more):
        return {"NOTIFY_SOCKET": self.name, **more}

    def next(self, seconds=WAIT_SECONDS):
        """The lines of one message as a dictionary; None: nothing has come."""
        self.socket.settimeout(seconds)
        try:
            message = self.socket.recv(65536).decode()
        except TimeoutError:
            return None
        self.said.append(message)
        return dict(line.split("=", 1) for line in message.split("\n"))

    def wait(self, *wanted):
        """Reads on until a message has all of these lines. Signs of life may never end."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            message = self.next()
            late = message is None or time.monotonic() > deadline
            assert not late, f"{wanted} was never said; said: {self.said[-20:]}"
            lines = [f"{key}={value}" for key, value in message.items()]
            if all(line in lines for line in wanted):
                return message


class TestServiceManager(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="shoal-test.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def manager(self, address=None):
        manager = Manager(self.folder, address)
        self.addCleanup(manager.socket.close)
        return manager

    def start(self, manager, config=ECHO, **variables):
        return Shoald(config, env=manager.environment(**variables))

    def test_a_life(self):
        manager = self.manager()
        with self.start(manager) as shoald:
            self.assertEqual(manager.next(), {"STATUS": "0 of 1 pipelines serve"})
            self.assertEqual(manager.next(), {"READY": "1", "STATUS": "1 of 1 pipelines serve"})
            for pid in shoal_fixture.children(shoald.pid):
                environment = shoal_fixture.read_proc(pid, "environ")
                self.assertNotIn("NOTIFY_SOCKET", environment)
            shoald.signal(signal.SIGHUP)
            reloading = manager.next()
            self.assertEqual(reloading["RELOADING"], "1")
            self.assertGreater(int(reloading["MONOTONIC_USEC"]), 0)
            self.assertEqual(manager.next()["READY"], "1")
            self.assertEqual(shoald.terminate(), 0)
            self.assertEqual(manager.next(), {"STOPPING": "1", "STATUS": "draining"})
        self.assertIsNone(manager.next(seconds=0.001), "it has said more")

    def test_refusal(self):
        manager = self.manager(f"\0shoal-test-{os.getpid()}")
        broken = node(pipeline("echo", stage("libwrong_abi_version.so")), message_mib=1)
        shoald = self.start(manager, broken).start()
        self.addCleanup(shoald.discard)
        self.assertEqual(shoald.wait_exit(), 2)
        said = manager.wait("STOPPING=1")
        self.assertIn('cannot start: pipeline "echo"', said["STATUS"])
        self.assertFalse(any("READY" in message for message in manager.said))

    def test_watchdog_is_the_loop(self):
        """Only the loop's thread is stopped: calls are answered, signs of life are not given."""
        manager = self.manager()
        with self.start(manager, WATCHDOG_USEC="200000") as shoald, Client(shoald.target) as client:
            for _ in range(3):
                manager.wait("WATCHDOG=1")
            trace(SEIZE, shoald.pid)
            trace(INTERRUPT, shoald.pid)
            os.waitpid(shoald.pid, WALL)
            while manager.next(seconds=0.001) is not None:
                pass
            self.assertIsNone(manager.next(seconds=1))
            client.infer_raw("echo", X)
            trace(DETACH, shoald.pid)
            manager.wait("WATCHDOG=1")

    def test_watchdog_of_another_process(self):
        manager = self.manager()
        with self.start(manager, WATCHDOG_USEC="2000", WATCHDOG_PID="1"):
            manager.wait("READY=1")
        self.assertNotIn("WATCHDOG=1", manager.said)

    def test_a_manager_that_does_not_read(self):
        """Its queue fills; calls are answered, and it hears the last state once it reads again."""
        manager = self.manager()
        with self.start(manager, WATCHDOG_USEC="2000") as shoald, Client(shoald.target) as client:
            probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

            def is_full():
                try:
                    probe.sendto(b"X=1", manager.name)
                except BlockingIOError:
                    return True
                return False
            wait_until(is_full, "the queue to fill")
            shoald.signal(signal.SIGHUP)
            client.infer_raw("echo", X)
            wait_until(lambda: shoald.stat()["pipelines"][0]["reloads"] == 1, "the reload")
            manager.wait("READY=1", "STATUS=1 of 1 pipelines serve")
            probe.close()

    def test_values_that_mean_nothing(self):
        for variables, event in (
                ({"NOTIFY_SOCKET": "vsock:2:1234"}, "refused variable=NOTIFY_SOCKET"),
                ({"NOTIFY_SOCKET": "/" + "x" * 200}, "refused variable=NOTIFY_SOCKET"),
                ({"NOTIFY_SOCKET": "/nowhere/at/all"}, "unheard error="),
                ({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "soon"},
                 "refused variable=WATCHDOG_USEC")):
            with Shoald(ECHO, env=variables) as shoald:
                shoald.wait_log(f"service_manager_{event}")


if __name__ == "__main__":
    shoal_fixture.main()
