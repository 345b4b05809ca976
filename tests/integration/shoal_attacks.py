# SPDX-License-Identifier: Apache-2.0
"""Attacks that the integration tests and `./dev abuse` (tests/abuse) share: floods of streams,
bombs, crowds of sockets, callers with names, daemons under limits, logs that nobody reads, threads
that are stopped. The tests look at counters and order, `./dev abuse` measures what another caller
sees.
"""

import contextlib
import fcntl
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import zlib

import shoal_fixture
from shoal_client import INFERENCE, Client, bytes_element
from shoal_fixture import WAIT_SECONDS, Shoald, read_proc, stage, wait_until
from shoal_http2 import (DATA, END_HEADERS, HEADERS, RST_STREAM, frame, grpc_message,
                         request_headers)

INFER = f"/{INFERENCE}/ModelInfer"
X = ("x", "INT32", [1], bytes(4))
MIB = 1 << 20


class NotPossible(Exception):
    """This machine does not allow it."""


# ---- daemons ----

class Limited(Shoald):
    """A daemon on a free port, that may open only so many descriptors."""

    def __init__(self, config, descriptors):
        self.port = shoal_fixture.free_port()
        super().__init__(config, listen=[f"127.0.0.1:{self.port}"])
        self.target = f"127.0.0.1:{self.port}"
        self.command = ["prlimit", f"--nofile={descriptors}:{descriptors}", *self.command]

    def limit(self, descriptors):
        subprocess.run(["prlimit", f"--pid={self.pid}", f"--nofile={descriptors}:"], check=True)

    def wait_node(self, condition, what):
        return wait_until(lambda: condition(self.stat()), lambda: f"{what}: {self.stat()}")


class AcceptFails(Limited):
    """A daemon whose every accept fails while the test says so, as for want of what the machine
    has."""

    PROGRAM = shoal_fixture.BUILD / "tests" / "integration" / "accept_fails"

    def __init__(self, config):
        super().__init__(config, 1024)
        self.failing = self.folder / "accept_fails"
        self.command = [self.PROGRAM, self.failing, *self.command]

    def fail_accept(self, number):
        part = self.folder / "accept_fails.part"
        part.write_text(str(number))
        part.rename(self.failing)

    def relieve(self):
        self.failing.unlink()


class Unread(Shoald):
    """Its log goes into the smallest pipe there is, and is read only while `reads` is set."""

    PIPE_BYTES = 4096

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.reads = threading.Event()
        self.reads.set()

    def read(self, stream):
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, self.PIPE_BYTES)
        while self.reads.wait() and (data := stream.readline()):
            self.lines.append(data.decode(errors="replace").rstrip("\n"))
        stream.close()


def rascal(**keys):
    return stage("librascal.so", params={"folder": ".", **keys.pop("params", {})}, **keys)


def puppet(**keys):
    return stage("libpuppet.so", params={"folder": "."}, **keys)


def limit_descriptors(pid, count):
    """The soft limit of a process; 0: as many as the hard one allows."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count or hard, hard))


def raise_descriptors():
    """This process's own; returns what it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    return soft, hard


# ---- callers ----

class Caller(Client):
    """Names its caller with every call."""

    def __init__(self, target, name):
        super().__init__(target)
        self.metadata = (("shoal-caller", name),)

    def tell(self, text, model="p", timeout=WAIT_SECONDS):
        request, stub = self.stub("ModelInfer")
        fields = self.infer_fields(model, [("say", "BYTES", [1], bytes_element(text))])
        return stub.future(request(**fields), timeout=timeout, metadata=self.metadata)


def infer_bytes(client):
    fields = client.infer_fields("echo", [X])
    return client.type("inference.ModelInferRequest")(**fields).SerializeToString()


# ---- floods: each takes a connection (Http2) and yields what to send, in pieces ----

def settings_never_acknowledged(hostile, streams):
    """For a connection made with acknowledge=False."""
    block = request_headers(INFER)
    for _ in range(streams // 500):
        yield b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in hostile.streams(500))


def rapid_reset(hostile, streams):
    block = request_headers(INFER)
    reset = (8).to_bytes(4, "big")
    for _ in range(streams // 500):
        yield b"".join(frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, reset)
                       for stream in hostile.streams(500))


def half_sent_messages(hostile, streams):
    block = request_headers(INFER)
    part = grpc_message(bytes(2000))[:1000]
    for _ in range(streams // 100):
        yield b"".join(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, part)
                       for stream in hostile.streams(100))


def send_flood(hostile, attack, streams):
    """Sends it whole, or until it is disconnected; how many streams were begun."""
    with contextlib.suppress(OSError):
        for data in attack(hostile, streams):
            hostile.send(data)
    return hostile.next_stream // 2


def bomb(inflated_bytes, form="gzip"):
    """A gRPC message, marked as compressed, of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if form == "gzip" else 15)
    zeros = bytes(MIB)
    packed = b"".join(packer.compress(zeros) for _ in range(inflated_bytes // MIB)) + packer.flush()
    return b"\1" + len(packed).to_bytes(4, "big") + packed


# ---- HTTP ----

def idle_sockets(stack, port, count):
    """Connections on which nothing is ever said, until the stack is left."""
    for _ in range(count):
        stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_SECONDS))


def large_json(elements, datatype=b"INT8"):
    """The body of a request with a tensor of shape [elements], two bytes for each."""
    return (b'{"inputs":[{"name":"x","datatype":"%s","shape":[%d],"data":[' % (datatype, elements)
            + b"1," * (elements - 1) + b"1]}]}")


# ---- processes ----

# Stops threads of another process, and no other one of it, by tracing them, until it is killed.
STAND_STILL = """
import ctypes, sys
SEIZE, INTERRUPT = 0x4206, 0x4207
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
done = [ptrace(SEIZE, int(task), None, None) or ptrace(INTERRUPT, int(task), None, None)
        for task in sys.argv[1:]]
print("refused" if any(done) else "stopped", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def stands_still(pid, chosen):
    """Threads of a daemon whose names `chosen` takes do not run within the block; gives the
    tracer's process."""
    tasks = [task for task in os.listdir(f"/proc/{pid}/task")
             if chosen(read_proc(f"{pid}/task/{task}", "comm").strip())]
    assert tasks, "there are no such threads"
    with subprocess.Popen([sys.executable, "-c", STAND_STILL, *tasks], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as tracer:
        try:
            if tracer.stdout.readline() != b"stopped\n":
                raise NotPossible("no ptrace here")
            yield tracer
        finally:
            tracer.kill()


def library_stands_still(pid):
    """The same for gRPC's threads, and those that step gRPC's queues."""
    return stands_still(pid, lambda name: name == "shoald:front" or
                        not name.startswith(("shoald", "jemalloc")))


def own_group():
    """Path of this process's memory cgroup, and the name of its limit; None: there is none."""
    for line in read_proc("self", "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        roots = {"memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                 "": ("/sys/fs/cgroup", "memory.max")}
        if controllers in roots:
            root, name = roots[controllers]
            group = pathlib.Path(root + path)
            if (group / name).exists():
                return group, name
    return None


@contextlib.contextmanager
def memory_group(limit_bytes):
    """A cgroup with so much memory, that is empty again when the block is left."""
    found = own_group()
    if found is None:
        raise NotPossible("no memory cgroup can be seen here")
    parent, name = found
    group = parent / f"shoal-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(limit_bytes))
    except OSError as error:
        if group.exists():
            group.rmdir()
        raise NotPossible(f"no cgroup can be made here: {error}") from error
    try:
        yield group
    finally:
        wait_until(lambda: (group / "cgroup.procs").read_text() == "", "the group to be empty")
        group.rmdir()


# Has the program see limits of version 2: it is in the group NAME/inner of a real hierarchy, so its
# /proc shows what the kernel does; the files of limits are ours, since the kernel gives the
# controller for memory to one version only.
IN_GROUP_2 = """set -e
mkdir -p "$1" && mount -t cgroup2 none "$1" && mkdir -p "$1/$2/inner"
echo $$ >"$1/$2/inner/cgroup.procs"
umount "$1"
mount -t tmpfs none /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$2/inner"
echo max >/sys/fs/cgroup/memory.max
echo "$3" >"/sys/fs/cgroup/$2/memory.max"
echo max >"/sys/fs/cgroup/$2/inner/memory.max"
shift 3
exec "$@"
"""
REMOVE_GROUP_2 = 'mount -t cgroup2 none "$1" && rmdir "$1/$2/inner" "$1/$2" && umount "$1"'
UNSHARE = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]


@contextlib.contextmanager
def memory_group_2(limit_bytes, folder):
    """Words to start a program with; it is in a cgroup of version 2 around which there is a
    limit."""
    name = f"shoal-test-{os.getpid()}"
    words = [*UNSHARE, IN_GROUP_2, "sh", str(folder), name, str(limit_bytes)]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise NotPossible(f"no cgroup of version 2 can be made here: {tried.stderr}")
    try:
        yield words
    finally:
        wait_until(lambda: subprocess.run([*UNSHARE, REMOVE_GROUP_2, "sh", str(folder), name],
                                          capture_output=True, check=False).returncode == 0,
                   "the group to be empty")


def in_group(group, shoald):
    shoald.command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh",
                      *shoald.command]
    return shoald


def hang_up_amid_a_reload(shoald, gate):
    """Three SIGHUPs while the first one's reload waits at its gate; returns when the last
    generation serves."""
    gate.touch()
    shoald.signal(signal.SIGHUP)
    shoald.wait_log("reloading pipeline=p generation=2")
    for _ in range(3):
        shoald.signal(signal.SIGHUP)
    shoald.wait_log("reload_held")
    gate.unlink()
    shoald.wait_log("pipeline_serving pipeline=p .*generation=3")
