# SPDX-License-Identifier: Apache-2.0
"""Streams that nobody reads, and what they hold in the nodes that pass them on: two nodes of one
mesh, each with a runtime, and a model that one of them has. For the test and for `./dev abuse`."""

import contextlib
import re
import threading

import grpc

from shoal_fixture import WAIT_SECONDS, Shoald, read_proc, wait_until
from shoal_http2 import Http2
from shoal_meshes import Etcd
from shoal_registry import LOADED, Registrar
from shoal_runtime import Runtime

STREAMS = 60
MESSAGE = bytes(100_000)
LIMIT_KIB = 256  # of each stream, on each node
LEFT_KIB = 64    # of each, when all have ended
LOOKS = 3        # without anything new, between which calls come and go
# An allocator that keeps nothing: resident memory is what is held.
AT_ONCE = {"MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
MODEL = {"mm-model-id": "m"}


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", read_proc(pid, "status")).group(1))


class UnreadMesh:
    """`here` has the model, `elsewhere` passes its calls on to it."""

    def __init__(self, env=None):
        self.env = env
        self.stack = contextlib.ExitStack()
        self.lock = threading.Lock()
        self.begun = self.passed = 0  # streams in the runtime; messages, of either writer
        self.before = {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            etcd = stack.enter_context(Etcd())
            nodes = {name: self.start_node(stack, etcd, name) for name in ("node-a", "node-b")}
            first = nodes["node-a"].registrar
            first.register("m")
            first.ensure("m", sync=True)
            at, = {copy.location for copy in first.wait_status("m", LOADED).modelCopyInfos}
            self.here = nodes.pop(at)
            self.elsewhere, = nodes.values()
            self.nodes = {"here": self.here, "elsewhere": self.elsewhere}
            wait_until(self.is_known, "the other node to know the copy")
            self.here.runtime.streams.update({"s/Pour": self.pour, "s/Ignore": self.ignore})
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *details):
        return self.stack.__exit__(*details)

    def start_node(self, stack, etcd, name):
        runtime = stack.enter_context(Runtime(threads=2 * STREAMS, options=(("grpc.http2.bdp_probe", 0),)))
        shoald = stack.enter_context(Shoald(
            {"message_mib": 1, "send_timeout_ms": 0, "mesh": {
                "instance": name, "runtime": runtime.address, "store": f"etcd:{etcd.url}",
                "peers": ["127.0.0.1:0"], "address": "127.0.0.1"}}, env=self.env))
        shoald.runtime = runtime
        shoald.registrar = stack.enter_context(Registrar(shoald))
        return shoald

    def is_known(self):
        with contextlib.suppress(grpc.RpcError):
            self.call()
            return True
        return False

    # ---- the runtime ----

    def note(self, begun=0, passed=0):
        with self.lock:
            self.begun += begun
            self.passed += passed

    def pour(self, requests, context):
        next(requests)
        self.note(begun=1)
        while context.is_active():
            self.note(passed=1)
            yield MESSAGE

    def ignore(self, requests, context):
        gone = threading.Event()
        if context.add_callback(gone.set):
            next(requests)
            self.note(begun=1)
            gone.wait()
        yield from ()

    # ---- callers ----

    def call(self):
        for node in self.nodes.values():
            node.registrar.channel.unary_unary("/x.Y/Z")(b"hello", timeout=WAIT_SECONDS,
                                                         metadata=tuple(MODEL.items()))

    @contextlib.contextmanager
    def answers(self, entry):
        """Callers do not read what the runtime pours out."""
        self.begin()
        with Http2(str(entry.socket)) as caller:
            caller.ask("/s/Pour", b"x", count=STREAMS, **MODEL)
            self.wait_still()
            yield

    @contextlib.contextmanager
    def requests(self, entry):
        """The runtime does not read what callers write."""
        self.begin()
        ended = threading.Event()

        def write():
            while not ended.is_set():
                self.note(passed=1)
                yield MESSAGE
        with grpc.insecure_channel(entry.target) as channel:
            calls = [channel.stream_stream("/s/Ignore")(write(), metadata=tuple(MODEL.items()))
                     for _ in range(STREAMS)]
            try:
                self.wait_still()
                yield
                assert not any(call.done() for call in calls), "streams have ended by themselves"
            finally:
                ended.set()
                for call in calls:
                    call.cancel()

    # ---- what they hold ----

    def begin(self):
        for _ in range(LOOKS):
            self.call()
        self.begun = self.passed = 0
        self.before = {name: resident_kib(node.pid) for name, node in self.nodes.items()}

    def wait_still(self):
        """Until all streams have begun, and nothing moves while other calls come and go."""
        last, same = [None], [0]

        def is_still():
            before, last[0] = last[0], self.passed
            for _ in range(20):
                self.call()
            same[0] = same[0] + 1 if before == last[0] else 0
            return self.begun == STREAMS and same[0] >= LOOKS
        wait_until(is_still, lambda: f"a standstill: {self.begun} streams, {self.passed} messages")

    def held_kib(self):
        """Of a stream, by node."""
        return {name: (resident_kib(node.pid) - self.before[name]) / STREAMS
                for name, node in self.nodes.items()}

    def wait_held(self, most_kib):
        def is_less():
            self.call()
            return max(self.held_kib().values()) <= most_kib
        wait_until(is_less, lambda: f"at most {most_kib} KiB for each of {STREAMS} streams: "
                                    f"{self.held_kib()}")
        return self.held_kib()
