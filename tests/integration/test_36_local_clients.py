# SPDX-License-Identifier: Apache-2.0
"""The socket of local clients takes hellos, and answers everything else: for messages of any
content, size and attachment, the sender gets the reason for the refusal, the log says so too, and a
client that behaves is served before, meanwhile and after. And nothing is kept of clients that have
gone, however they went: descriptors, mappings, memory.

The clients here speak the messages of src/ipc/local.h by hand. tests/unit/test_worker_hostile.c
covers their regions.

ctest: timeout=240 presets=dev
"""

import mmap
import os
import re
import signal
import socket
import struct
import time
import unittest

import shoal_fixture
from shoal_client import Client
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, read_proc, stage, wait_until

VERSION = 1
HELLO = struct.Struct("<IIQ64s")
NOTE = struct.Struct("<II")
WORD = struct.Struct("<6I16Iq256s")
WELCOME, REFUSED, DEATH = 1, 2, 3
NOTE_TAKEN, NOTE_DRAINING = 1, 2
(INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED,
 FAILED_PRECONDITION) = 3, 5, 7, 8, 9
SESSIONS_MAX = 256
CLIENTS = 8
NOBODY = 65534
LARGE_MIB = 256
TURNS = 4
COME_AND_GO = 700
FLOOD = 2000
LINES_MAX = 100  # of one event in ten seconds
KILLED = 100
KEPT_BYTES_MAX = 64 << 20  # what a sanitizer's allocator may keep; a leaked region each would be more


def hello(pipeline_name=b"echo", version=VERSION, slots=0, message_bytes=0):
    return HELLO.pack(version, slots, message_bytes, pipeline_name)


class Word:
    """The node's answer; `closed` if it says nothing more."""

    def __init__(self, connection):
        data, self.fds, *_ = socket.recv_fds(connection, WORD.size + 1, 4)
        self.closed = data == b""
        self.type = self.status = None
        self.text = ""
        if not self.closed:
            fields = WORD.unpack(data)
            assert fields[0] == VERSION
            self.type, self.status = fields[1:3]
            self.text = fields[-1].split(b"\0")[0].decode()

    def close(self):
        for fd in self.fds:
            os.close(fd)


class TestSocket(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("echo", stage("libecho.so", workers=2), local_clients=CLIENTS, local_slots=4,
                     local_mib=1),
            pipeline("large", stage("libecho.so"), local_clients=2, local_mib=LARGE_MIB),
            pipeline("closed", stage("libecho.so")), event_log_lines=0)))
        cls.path = f"{cls.shoald.counters}.local"

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(WAIT_SECONDS)
        connection.connect(self.path)
        self.addCleanup(connection.close)
        return connection

    def say(self, message, fds=()):
        """On a new connection; returns it, and the answer."""
        connection = self.connect()
        socket.send_fds(connection, [message], fds)
        return connection, Word(connection)

    def check_refused(self, answer, connection, status, text):
        self.assertEqual((answer.closed, answer.type, answer.status, answer.fds),
                         (False, REFUSED, status, []))
        self.assertRegex(answer.text, text)
        self.assertTrue(Word(connection).closed)
        self.shoald.wait_log(f"warn shoald local_client_refused uid={os.getuid()} pid={os.getpid()} "
                             f"why=\".*{text}")

    def serve_one(self):
        """A client that behaves; places of those that have left are free in time."""
        def look():
            connection, answer = self.say(hello())
            answer.close()
            connection.close()
            return answer.type == WELCOME or self.assertEqual(answer.status, RESOURCE_EXHAUSTED)
        wait_until(look, lambda: f"a welcome; the log:\n{self.shoald.stderr}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.shoald.pid}/fd"))

    def test_hello(self):
        connection, answer = self.say(hello())
        self.assertEqual((answer.type, len(answer.fds)), (WELCOME, 1))
        size = os.fstat(answer.fds[0]).st_size
        self.assertLess(size, 2 << 20)
        with self.assertRaises(OSError):
            os.ftruncate(answer.fds[0], size + 4096)
        with self.assertRaises(OSError):
            os.ftruncate(answer.fds[0], 4096)
        answer.close()
        connection.close()
        self.shoald.wait_log(f"local_client_left pipeline=echo uid={os.getuid()} pid={os.getpid()} why=\"closed")

    def test_others_are_heard_while_a_region_is_made(self):
        def look():
            large = self.connect()
            said = len(self.shoald.lines)
            large.send(hello(b"large"))
            for _ in range(TURNS):  # one after the other: the loop turns meanwhile
                nobody, answer = self.say(hello(b"nobody"))
                nobody.close()
                self.assertEqual(answer.status, NOT_FOUND)
            answer = Word(large)
            answer.close()
            large.close()  # its place is the next try's
            if answer.type != WELCOME:
                return self.assertEqual(answer.status, RESOURCE_EXHAUSTED)  # the last try's place
            self.shoald.wait_log("local_client pipeline=large")
            heard = [re.search(" (local_client|local_client_refused) ", line) for line in self.shoald.lines[said:]]
            return [found[1] for found in heard if found] == ["local_client_refused"] * TURNS + ["local_client"]
        wait_until(look, lambda: "others to be turned away between a hello and its welcome")

    def test_left_while_its_region_is_made(self):
        for _ in range(4):  # more than there are places
            connection = self.connect()
            connection.send(hello(b"large"))
            connection.close()
        self.serve_one()
        self.test_others_are_heard_while_a_region_is_made()

    def test_every_other_length(self):
        for length in [*range(1, 200), 512, 4096, 60000]:
            if length == HELLO.size:
                continue
            with self.subTest(length):
                connection, answer = self.say(b"\x01" * length)
                self.check_refused(answer, connection, INVALID_ARGUMENT,
                                   f"a message of {length} bytes instead of {HELLO.size}")
        self.serve_one()

    def test_wrong_hellos(self):
        for message, status, text in (
                (hello(version=9), FAILED_PRECONDITION, "speaks version 1, this client 9"),
                (hello(b"x" * 64), INVALID_ARGUMENT, "name without an end"),
                (hello(b"nobody"), NOT_FOUND, 'no pipeline "nobody"|no pipeline'),
                (hello(b""), NOT_FOUND, "serves no pipeline"),
                (hello(b"closed"), FAILED_PRECONDITION, "set local_clients"),
                (hello(message_bytes=1 << 63), INVALID_ARGUMENT, "a fifth of local_mib"),
                (hello(message_bytes=(1 << 64) - 1), INVALID_ARGUMENT, "a fifth of local_mib"),
                (hello(version=0xffffffff), FAILED_PRECONDITION, "this client 4294967295"),
                (b"\xff" * HELLO.size, INVALID_ARGUMENT, "name without an end")):
            with self.subTest(text):
                connection, answer = self.say(message)
                self.check_refused(answer, connection, status, text)
        for wish in (hello(slots=0xffffffff), hello(slots=1), hello(message_bytes=1)):
            connection, answer = self.say(wish)
            self.assertEqual(answer.type, WELCOME, answer.text)
            answer.close()
            connection.close()
        self.serve_one()

    def test_second_message(self):
        for message, why in ((hello(), f"a message of {HELLO.size} bytes instead of {NOTE.size}"),
                             (b"x", "a message of 1 bytes"),
                             (NOTE.pack(VERSION, 7), "note 7"),
                             (NOTE.pack(VERSION, NOTE_DRAINING), "note 2"),
                             (NOTE.pack(9, NOTE_TAKEN), "note 1")):
            connection, answer = self.say(hello())
            self.assertEqual(answer.type, WELCOME, answer.text)
            connection.send(message)
            self.assertTrue(Word(connection).closed)
            answer.close()
            self.shoald.wait_log(f"warn shoald local_client_dropped pipeline=echo .*sent nonsense: {why}")
            self.serve_one()
        connection, answer = self.say(hello())
        answer.close()
        connection.send(NOTE.pack(VERSION, NOTE_TAKEN))
        connection.send(NOTE.pack(VERSION, NOTE_TAKEN))
        self.assertTrue(Word(connection).closed)
        self.serve_one()

    def test_descriptors_attached(self):
        """Descriptors that come with a message are closed."""
        before = self.descriptors()
        with open("/dev/null") as file:
            for count in range(1, 9):
                for message in (b"x", hello(b"nobody"), hello(), b"x" * 1000):
                    connection, answer = self.say(message, [file.fileno()] * count)
                    self.assertIn(answer.type, (REFUSED, WELCOME))
                    answer.close()
                    connection.close()
        wait_until(lambda: self.descriptors() <= before,
                   lambda: f"{before} descriptors, as before, instead of {self.descriptors()}")
        self.serve_one()

    def test_half_closed(self):
        connection = self.connect()
        connection.shutdown(socket.SHUT_WR)
        self.assertTrue(Word(connection).closed)
        self.shoald.wait_log('local_client_left pipeline="" uid=.*why="closed its socket"')
        connection = self.connect()
        connection.shutdown(socket.SHUT_RD)
        connection.send(hello())
        self.assertTrue(Word(connection).closed)
        connection, answer = self.say(b"")  # reads like the end
        self.assertTrue(answer.closed)
        self.serve_one()

    def test_many_silent_sessions(self):
        """The connection that has been silent for longest makes room."""
        silent = [self.connect() for _ in range(SESSIONS_MAX + 44)]
        self.serve_one()
        for connection in silent[:44]:
            answer = Word(connection)
            self.assertEqual((answer.type, answer.status), (REFUSED, RESOURCE_EXHAUSTED))
            self.assertTrue(Word(connection).closed)
        self.shoald.wait_log("local_client_refused .*256 sessions")
        silent[-1].send(hello())
        answer = Word(silent[-1])
        self.assertEqual(answer.type, WELCOME, answer.text)
        answer.close()
        for connection in silent:
            connection.close()
        self.serve_one()

    def test_as_many_as_there_may_be(self):
        served = []
        while True:
            connection, answer = self.say(hello())
            if answer.type != WELCOME:
                break
            answer.close()
            served.append(connection)
        self.check_refused(answer, connection, RESOURCE_EXHAUSTED, f"its {CLIENTS} local clients")
        self.assertLessEqual(len(served), CLIENTS)
        for connection in served:
            connection.close()
        self.serve_one()

    @unittest.skipIf(os.getuid() != 0, "only root can be somebody else")
    def test_foreign_user(self):
        """Even if somebody has opened the way to the socket."""
        def connect_as_nobody():
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(WAIT_SECONDS)
                try:
                    connection.connect(self.path)
                except PermissionError:
                    return 1
                answer = Word(connection)
                return 2 if (answer.type, answer.status) == (REFUSED, PERMISSION_DENIED) else 3

        os.chmod(self.shoald.folder, 0o755)
        self.assertEqual(self.in_child(connect_as_nobody), 1)
        os.chmod(self.path, 0o666)
        self.assertEqual(self.in_child(connect_as_nobody), 2)
        os.chmod(self.path, 0o600)
        self.shoald.wait_log(f"warn shoald local_client_refused uid={NOBODY} pid=\\d+ why=\"only root and "
                             "the node's own user")

    def in_child(self, act):
        """Its exit code, or the signal that ended it as a negative number."""
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                code = act()
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    # ---- what is kept ----

    def held(self):
        """Of the daemon and of each worker: descriptors, mapped regions, mappings, bytes mapped."""
        def of(pid):
            maps = read_proc(pid, "maps")
            return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                    "regions": len(re.findall("memfd:shoal-region", maps)),
                    "bytes": sum(int(kib) << 10 for kib in
                                 re.findall(r"^(?:RssShmem|VmSize):\s*(\d+) kB$",
                                            read_proc(pid, "status"), re.MULTILINE))}
        pids = [self.shoald.pid, *(worker.pid for worker in self.shoald.workers())]
        return {pid: of(pid) for pid in pids}

    def served(self):
        return self.shoald.pipeline_stat("echo")["local_welcomed"]

    def come_and_die(self):
        """Killed with its region mapped and written into."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(WAIT_SECONDS)
            connection.connect(self.path)
            connection.send(hello())
            answer = Word(connection)
            if answer.type == WELCOME:
                region = mmap.mmap(answer.fds[0], 0)
                region[4096:8192] = os.urandom(4096)
            os.kill(os.getpid(), signal.SIGKILL)

    def check_as_before(self, before):
        def look():
            now = self.held()
            return now.keys() == before.keys() and all(
                now[pid]["descriptors"] <= before[pid]["descriptors"]
                and now[pid]["regions"] == before[pid]["regions"]
                and now[pid]["bytes"] < before[pid]["bytes"] + KEPT_BYTES_MAX for pid in before)
        wait_until(look, lambda: f"before {before}, after all have gone {self.held()}")

    def test_nothing_is_kept(self):
        for _ in range(CLIENTS):
            self.serve_one()
        workers = [worker.pid for worker in self.shoald.workers()]
        wait_until(lambda: all(self.held()[pid]["regions"] == 1 for pid in workers),
                   "the workers to have nothing but their lane's")
        before = self.held()
        first = self.served()
        while self.served() < first + COME_AND_GO:
            for _ in range(CLIENTS):
                connection, answer = self.say(hello())
                answer.close()
                connection.close()
            with self.connect() as connection:  # gone before it is answered
                connection.send(hello())
        while self.served() < first + COME_AND_GO + KILLED:
            self.assertEqual(self.in_child(self.come_and_die), -signal.SIGKILL)
        self.check_as_before(before)
        self.serve_one()
        with Client(self.shoald.target) as client:
            answer = client.infer_raw("echo", ("x", "INT8", [1], b"\x07"))
        self.assertEqual(answer.raw_output_contents[0], b"\x07")


class TestFlood(unittest.TestCase):
    def test_refused_client_in_a_loop_cannot_fill_the_log(self):
        """Its lines are limited; together with the count of the others they are all."""
        shoald = self.enterContext(Shoald(node(
            pipeline("closed", stage("libecho.so")),
            pipeline("echo", stage("libecho.so"), local_clients=1))))
        began = time.monotonic()
        for _ in range(FLOOD):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(WAIT_SECONDS)
                connection.connect(f"{shoald.counters}.local")
                connection.send(hello(b"closed"))
                self.assertEqual(Word(connection).status, FAILED_PRECONDITION)
        periods = 1 + (time.monotonic() - began) // 10

        def seen():
            lines = [line for line in list(shoald.lines) if "warn shoald local_client_refused" in line]
            told = re.findall(r"warn shoald log_left_out event=local_client_refused lines=(\d+) seconds=10",
                              shoald.stderr)
            return len(lines), sum(map(int, told))
        wait_until(lambda: sum(seen()) == FLOOD, lambda: f"{FLOOD} lines written or left out: {seen()}")
        self.assertLessEqual(seen()[0], LINES_MAX * periods)
        wait_until(lambda: shoald.stat()["log_left_out"] == seen()[1],
                   lambda: f"the counter: {shoald.stat()['log_left_out']}, {seen()}")
        self.assertEqual(shoald.pipeline_stat("closed")["local_refused"], FLOOD)


if __name__ == "__main__":
    shoal_fixture.main()
