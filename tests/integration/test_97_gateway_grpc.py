# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol over gRPC through the gateway, before nodes of shoald and before
servers of grpcio that misbehave as they are told.

Proves: unary calls and streams pass with their metadata, from grpcio and from the package shoal,
also with TLS on both sides; another server is tried until an answer begins, and not afterwards;
deadlines and cancellations reach the server; refusals are gRPC's statuses; a route rewrites the
model's name, and admits no other; a client that does not read stops its server.

ctest: timeout=240
"""

import concurrent.futures
import http.client
import os
import queue
import signal
import socket
import ssl
import struct
import sys
import threading
import unittest

import grpc

from shoal_certificates import Certificates
from shoal_client import CHANNEL_OPTIONS, INFERENCE, Client, failure
from shoal_fixture import (SOURCE, WAIT_SECONDS, Shoald, free_port, main, node, pipeline, stage,
                           wait_until)
from shoal_streams import Stream, emission, is_final, words
from test_97_gateway import Gateway
from test_97_model_server import RARELY, Foreign

sys.path.insert(0, str(SOURCE / "clients" / "python"))
import shoal  # noqa: E402

Code = grpc.StatusCode
INPUT = ("x", "INT32", [1], b"\x01\x02\x03\x04")
OFTEN = {"scrape_ms_min": 10, "scrape_ms_max": 50}


class Case(unittest.TestCase):
    def gateway(self, *servers, files=None, **keys):
        gateway = Gateway(servers, files, **{**OFTEN, **keys})
        self.addCleanup(gateway.close)
        gateway.wait_up(*servers)
        return gateway

    def client(self, gateway, options=()):
        return self.enterContext(Client(f"127.0.0.1:{gateway.port}", options))

    def wait_figure(self, gateway, name, value):
        wait_until(lambda: gateway.figures()[name] == value,
                   lambda: f"{name} to be {value}, not {gateway.figures()[name]}")


class Nodes(Case):
    def node(self, name):
        metrics, port = free_port(), free_port()
        shoald = self.enterContext(Shoald(
            node(pipeline("echo", stage("libecho.so"), slots=8, arena_mib=16),
                 pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=4),
                 pipeline("probe", stage("libprobe.so"), slots=4),
                 metrics=f"127.0.0.1:{metrics}", message_mib=4),
            listen=[f"127.0.0.1:{port}"]))
        shoald.wait_ready()
        shoald.name, shoald.port = name, metrics
        shoald.keys = {"grpcPort": str(port)}
        return shoald

    def test_calls_and_streams(self):
        gateway = self.gateway(self.node("one"), access_log=1)
        client = self.client(gateway)
        self.assertTrue(client.call("ServerLive").live and client.call("ServerReady").ready)
        self.assertEqual(client.call("ServerMetadata").name, "shoal-gateway")
        self.assertTrue(client.call("ModelReady", name="echo").ready)
        self.assertEqual(client.call("ModelMetadata", name="echo").name, "echo")
        large = ("x", "INT32", [750_000], b"\1\2\3\4" * 750_000)
        for tensor in (INPUT, large, INPUT):
            self.assertEqual(client.infer_raw("echo", tensor).raw_output_contents[0], tensor[3])
        self.assertIn("nobody", failure(client.start_raw("nobody", INPUT))[1])
        self.assertEqual(failure(client.start_raw("nobody", INPUT))[0], Code.NOT_FOUND)
        self.assertEqual(failure(client.start("ModelConfig", name="echo"))[0], Code.UNIMPLEMENTED)
        stream = Stream(client)
        for count in (300, 2):
            stream.send("probe", emission(count))
            answers = [stream.read() for _ in range(count + 1)]
            self.assertEqual([words(answer)[1] for answer in answers[:count]], list(range(count)))
            self.assertTrue(is_final(answers[-1]))
        self.assertEqual(stream.read_all(), [])
        calls = [client.start_raw("echo", INPUT) for _ in range(8)]
        self.assertEqual({call.result().raw_output_contents[0] for call in calls}, {INPUT[3]})
        with shoal.Client(f"127.0.0.1:{gateway.port}", timeout=WAIT_SECONDS) as ours:
            self.assertTrue(ours.ready("echo"))
            self.assertEqual(list(ours.infer("echo", {"x": [1, 2]})), [1, 2])
        self.wait_figure(gateway, "requests_open", 0)
        self.assertEqual(gateway.figures()["cut_short_total"], 0)
        self.assertRegex(gateway.read_log(), r'ModelInfer" model="echo" endpoint="one" status=0')

    def test_the_client_leaves(self):
        one = self.node("one")
        gateway = self.gateway(one)
        client = self.client(gateway)
        wait = ("probe", "INT64", [3], struct.pack("<3q", 10, 0, 0))  # until its caller is gone
        call = client.start_raw("probe", wait)
        self.wait_figure(gateway, "requests_open", 1)
        call.cancel()
        one.wait_all_returned("probe")
        late = failure(client.start_raw("probe", wait, timeout=0.3))
        self.assertEqual(late[0], Code.DEADLINE_EXCEEDED)
        one.wait_all_returned("probe")
        self.wait_figure(gateway, "requests_open", 0)

    def test_a_node_ends(self):
        one, two = self.node("one"), self.node("two")
        gateway = self.gateway(one, two)
        client = self.client(gateway)
        self.assertEqual(len(client.infer_raw("echo", INPUT).outputs), 1)
        one.signal(signal.SIGTERM)
        for _ in range(20):
            self.assertEqual(client.infer_raw("echo", INPUT).raw_output_contents[0], INPUT[3])
        self.assertEqual(one.wait_exit(), 0)
        one.code = 0


class Fake(Foreign):
    """A server of grpcio that answers as `behave` says; messages are bytes."""

    def __init__(self, name, credentials=None):
        super().__init__(name)
        self.calls, self.behave = [], lambda message, context: message
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        self.server.add_generic_rpc_handlers((self,))
        port = (self.server.add_secure_port("127.0.0.1:0", credentials) if credentials
                else self.server.add_insecure_port("127.0.0.1:0"))
        self.keys = {"grpcPort": str(port)}
        self.server.start()

    def service(self, details):
        def call(message, context):
            self.calls.append((message, context))
            return self.behave(message, context)
        if details.method.endswith("ModelStreamInfer"):
            return grpc.stream_stream_rpc_method_handler(call)
        return grpc.unary_unary_rpc_method_handler(call)

    def close(self):
        self.server.stop(None)
        super().close()


def frame(kind, flags, stream, data=b""):
    return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data


def fields(*pairs):
    """A block of HPACK: literals, without an index."""
    def text(value):
        if len(value) < 127:
            return bytes([len(value)]) + value
        rest, more = len(value) - 127, b"\x7f"
        while rest >= 128:
            more, rest = more + bytes([rest % 128 + 128]), rest // 128
        return more + bytes([rest]) + value
    return b"".join(b"\0" + text(name) + text(value) for name, value in pairs)


SETTINGS, HEAD = frame(4, 0, 0), fields((b":status", b"200"), (b"content-type", b"application/grpc"))
DATA, HEADERS, RST, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


class Hostile(Foreign):
    """Says these bytes to every connection for gRPC once a call has come, and waits for its end."""

    def __init__(self, name, said, reads=True):
        super().__init__(name)
        self.said, self.reads, self.ended = said, reads, queue.SimpleQueue()
        self.closed = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.keys = {"grpcPort": str(self.listener.getsockname()[1])}
        threading.Thread(target=self.accept_all, daemon=True).start()

    def accept_all(self):
        while True:
            try:
                link = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        with link:
            try:
                got = b""
                while len(got) < 150 and (more := link.recv(65536)):  # longer than what is not a call
                    got += more
                link.sendall(self.said)
                if not self.reads:
                    self.closed.wait()
                while link.recv(65536):
                    pass
            except ConnectionError:
                pass
        self.ended.put(True)

    def close(self):
        self.closed.set()
        self.listener.close()
        super().close()


class Link:
    """A client's connection, frame by frame."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)

    def ask(self, stream, method, message, flags=END_STREAM):
        head = fields((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"),
                      (b":path", f"/{INFERENCE}/{method}".encode()), (b"te", b"trailers"),
                      (b"content-type", b"application/grpc"))
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, head) + frame(
            DATA, flags, stream, struct.pack(">BI", 0, len(message)) + message))

    def hear(self, kind, stream):
        """The payload of the next frame of that kind and stream; others are skipped."""
        while True:
            high, low, found, _, at = struct.unpack(">BHBBI", self.file.read(9))
            payload = self.file.read(high << 16 | low)
            if (found, at) == (kind, stream):
                return payload

    def close(self):
        self.file.close()
        self.socket.close()


def fail(code, text="as told"):
    def behave(_, context):
        context.abort(code, text)
    return behave


def named(name):
    """A ModelInferRequest with a model's name and a version."""
    return b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12\x011"


def padded(message, count):
    """The message with so many random bytes more, of a field of its own."""
    length = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14 & 127 | 128, count >> 21])
    return message + b"\x3a" + length + os.urandom(count)


class Fakes(Case):
    def start(self, *names, **keys):
        self.fakes = [Fake(name) for name in names]
        for fake in self.fakes:
            self.addCleanup(fake.close)
        gateway = self.gateway(*self.fakes, **keys)
        self.connect(gateway)
        return gateway

    def connect(self, gateway):
        self.link = self.enterContext(
            grpc.insecure_channel(f"127.0.0.1:{gateway.port}", options=CHANNEL_OPTIONS))

    def ask(self, message=named("echo"), method="ModelInfer", **keys):
        return self.link.unary_unary(f"/{INFERENCE}/{method}").future(
            message, timeout=WAIT_SECONDS, **keys)

    def stream(self):
        requests = queue.SimpleQueue()
        call = self.link.stream_stream(f"/{INFERENCE}/ModelStreamInfer")(
            iter(requests.get, None), timeout=WAIT_SECONDS)
        self.addCleanup(requests.put, None)
        return requests, call

    def test_metadata_passes(self):
        def behave(message, context):
            context.send_initial_metadata((("x-first", "1"), ("x-data-bin", b"\0\xff")))
            context.set_trailing_metadata((("x-last", "2"),))
            return message
        self.start("one")
        self.fakes[0].behave = behave
        call = self.ask(metadata=(("x-mine", "3"), ("x-gateway-inference-fairness-id", "4")))
        self.assertEqual(call.result(), named("echo"))
        first, last = dict(call.initial_metadata()), dict(call.trailing_metadata())
        self.assertEqual((first["x-first"], first["x-data-bin"], last["x-last"]),
                         ("1", b"\0\xff", "2"))
        context = self.fakes[0].calls[0][1]
        seen = dict(context.invocation_metadata())
        self.assertEqual((seen["x-mine"], seen["x-request-id"]), ("3", first["x-request-id"]))
        self.assertNotIn("x-gateway-inference-fairness-id", seen)
        # By the wall clock, which may be adjusted meanwhile; without a deadline it is infinite.
        self.assertLess(context.time_remaining(), WAIT_SECONDS + 1)

    def test_another_server_is_tried(self):
        gateway = self.start("one", "two")
        for code in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED):
            for good, bad in (self.fakes, self.fakes[::-1]):
                bad.behave = fail(code)
                for _ in range(3):
                    self.assertEqual(self.ask().result(), named("echo"))
                bad.behave = lambda message, _: message
        self.assertGreaterEqual(gateway.figures()["retried_total"], 1)
        for fake in self.fakes:
            fake.behave = fail(Code.UNAVAILABLE)
        call = self.ask()
        self.assertEqual(failure(call), (Code.RESOURCE_EXHAUSTED,
                                         "every model server in reach is busy"))
        self.assertIn("grpc-retry-pushback-ms", dict(call.trailing_metadata()))
        for fake in self.fakes:
            fake.behave = fail(Code.INTERNAL)  # an answer like others
        self.assertEqual(failure(self.ask()), (Code.INTERNAL, "as told"))

    def test_a_shut_port_does_not_hide_busy_servers(self):
        one, shut = Fake("one"), Foreign("shut")
        for server in (one, shut):
            self.addCleanup(server.close)
        one.behave, shut.keys = fail(Code.UNAVAILABLE), {"grpcPort": str(free_port())}
        gateway = self.gateway(one, shut)
        self.connect(gateway)

        def is_shut():  # the first call may go to either
            self.assertEqual(failure(self.ask())[0], Code.RESOURCE_EXHAUSTED)
            return gateway.figures()["ports_shut_total"] > 0
        wait_until(is_shut, gateway.read_log)
        self.assertEqual(failure(self.ask())[0], Code.RESOURCE_EXHAUSTED)

    def test_refusals(self):
        gateway = self.start("one", body_mib_max=1)
        for message, code in ((b"", Code.INVALID_ARGUMENT), (b"\xff", Code.INVALID_ARGUMENT),
                              (named("a") + named("b"), Code.INVALID_ARGUMENT),
                              (named("\0"), Code.INVALID_ARGUMENT),
                              (b"\x12\x011", Code.INVALID_ARGUMENT),
                              (named("a") + b"\x22\x80\x80\x80\x01" + bytes(2 << 20),
                               Code.RESOURCE_EXHAUSTED)):
            self.assertEqual(failure(self.ask(message))[0], code)
        self.assertEqual(failure(self.ask(compression=grpc.Compression.Gzip,
                                          message=named("a") + b"\x22\x7f" + bytes(127)))[0],
                         Code.UNIMPLEMENTED)
        self.assertEqual(failure(self.ask(method="Nothing"))[0], Code.UNIMPLEMENTED)
        self.assertEqual(self.fakes[0].calls, [])
        self.fakes[0].server.stop(None).wait(WAIT_SECONDS)
        self.assertEqual(failure(self.ask())[0], Code.UNAVAILABLE)
        self.wait_figure(gateway, "requests_open", 0)
        self.wait_figure(gateway, "bodies_bytes", 0)

    def test_a_gateway_that_stops_is_not_ready(self):
        """It takes no more connections, but requests of those that it has."""
        gateway = self.start("one")
        self.fakes[0].behave = lambda messages, _: messages
        link = Link(gateway.port)
        self.addCleanup(link.close)
        link.ask(1, "ModelStreamInfer", named("echo"), 0)
        link.hear(DATA, 1)
        plain = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_SECONDS)
        self.addCleanup(plain.close)
        for code in (200, 503):
            plain.request("GET", "/health")
            answer = plain.getresponse()
            self.assertEqual((answer.status, answer.read()), (code, b'{"endpoints":1}'))
            if code == 200:
                gateway.process.send_signal(signal.SIGTERM)
                link.hear(GOAWAY, 0)
        link.ask(3, "ServerReady", b"")
        self.assertEqual(link.hear(DATA, 3), bytes(5))
        link.socket.sendall(frame(DATA, END_STREAM, 1))
        self.assertEqual(gateway.process.wait(WAIT_SECONDS), 0)

    def test_reports_in_trailers(self):
        """The page is read once: the queue is known from answers."""
        gateway = self.start("one", **RARELY)
        for waiting, is_error in ((7, False), (12, False), (3, True)):
            entry = b"\x0a\x10requests_waiting\x11" + struct.pack("<d", waiting)
            report = b"\x42" + bytes([len(entry)]) + entry

            def behave(message, context, report=report, is_error=is_error):
                context.set_trailing_metadata((("endpoint-load-metrics-bin", report),))
                if is_error:
                    context.abort(Code.INTERNAL, "with a report")
                return message
            self.fakes[0].behave = behave
            call = self.ask()
            self.assertEqual(call.code(), Code.INTERNAL if is_error else Code.OK)
            self.assertNotIn("endpoint-load-metrics-bin", dict(call.trailing_metadata()))
            self.wait_figure(gateway, 'endpoint_waiting{endpoint="one"}', waiting)

    def test_a_port_that_refuses(self):
        """It takes neither HTTP from its server nor gRPC from others."""
        gateway = self.start("one", "two")
        self.fakes[0].server.stop(None).wait(WAIT_SECONDS)
        wait_until(lambda: self.ask().result() == named("echo")
                   and gateway.figures()["ports_shut_total"] > 0, gateway.read_log)
        served = set()
        while served != {"one", "two"}:
            status, headers, body = gateway.chat(text=os.urandom(64).hex())
            self.assertEqual(status, 200, body)
            served.add(headers["X-Served-By"])
        self.assertEqual(gateway.figures()["ejected_total"], 0)

    def test_servers_without_grpc(self):
        """A client's choice of gRPC must not take servers of HTTP from other clients."""
        one = Foreign("one")
        self.addCleanup(one.close)
        gateway = self.gateway(one)
        self.connect(gateway)
        for _ in range(8):
            self.assertEqual(failure(self.ask())[0], Code.UNAVAILABLE)
        self.assertEqual(gateway.figures()["ejected_total"], 0)

    def test_hostile_servers(self):
        answer = frame(HEADERS, END_HEADERS, 1, HEAD) + frame(DATA, 0, 1, bytes(5))
        large = fields((b"grpc-status", b"0"), (b"x-large", b"x" * 60_000))
        parts = [large[at:at + 16_000] for at in range(0, len(large), 16_000)]
        flood = b"".join(frame(CONTINUATION, 0, 1) for _ in range(2000))
        for name, said in {
                "no HTTP/2": b"HTTP/1.1 400 Bad Request\r\n\r\n",
                "GOAWAY": SETTINGS + frame(GOAWAY, 0, 0, bytes(8)),
                "no streams, then GOAWAY": frame(4, 0, 0, struct.pack(">HI", 3, 0))
                                           + frame(GOAWAY, 0, 0, bytes(8)),
                "GOAWAY within an answer": SETTINGS + answer + frame(GOAWAY, 0, 0, bytes(8)),
                "refused": SETTINGS + frame(RST, 0, 1, struct.pack(">I", 7)) + frame(DATA, 0, 3),
                "reset within an answer": SETTINGS + answer + frame(RST, 0, 1, struct.pack(">I", 8))
                                          + frame(GOAWAY, 0, 0, bytes(8)),
                "large trailers": SETTINGS + answer + frame(HEADERS, END_STREAM, 1, parts[0])
                                  + b"".join(frame(CONTINUATION, 0, 1, part) for part in parts[1:-1])
                                  + frame(CONTINUATION, END_HEADERS, 1, parts[-1])
                                  + frame(GOAWAY, 0, 0, bytes(8)),
                "continued forever": SETTINGS + frame(HEADERS, 0, 1, HEAD) + flood
                                      + frame(DATA, 0, 1),
                "interim forever": SETTINGS + 2000 * frame(HEADERS, END_HEADERS, 1,
                                                            fields((b":status", b"100"))) + frame(DATA, 0, 3),
                "data before a head": SETTINGS + frame(DATA, 0, 1, bytes(5)) + frame(DATA, 0, 3)}.items():
            with self.subTest(name):
                one = Hostile("one", said)
                self.addCleanup(one.close)
                gateway = self.gateway(one, first_byte_timeout_ms=2000, idle_timeout_ms=2000)
                self.connect(gateway)
                call = self.ask()
                is_unseen = name in ("GOAWAY", "no streams, then GOAWAY", "refused")
                self.assertEqual(failure(call)[0], Code.RESOURCE_EXHAUSTED if is_unseen
                                 else Code.UNAVAILABLE)
                self.wait_figure(gateway, "requests_open", 0)
                self.assertTrue(one.ended.get(timeout=WAIT_SECONDS))

    def test_a_server_that_does_not_read(self):
        """Its connections end with their calls, also when it cannot be notified of their ends."""
        window = struct.pack(">I", 1 << 30)
        one = Hostile("one", frame(4, 0, 0, struct.pack(">H", 4) + window)
                      + frame(WINDOW_UPDATE, 0, 0, window), reads=False)
        self.addCleanup(one.close)
        gateway = self.gateway(one, first_byte_timeout_ms=500)
        self.connect(gateway)
        message = named("echo") + b"\x3a\x80\x80\x80\x04" + bytes(8 << 20)
        for _ in range(6):
            self.assertEqual(failure(self.ask(message))[0], Code.UNAVAILABLE)
        open_files = f"/proc/{gateway.process.pid}/fd"
        wait_until(lambda: sum(os.path.exists(link) and os.readlink(link).startswith("socket:")
                               for link in map(f"{open_files}/{{}}".format, os.listdir(open_files))) < 8,
                   "connections to end")

    def test_messages_count_until_their_server_takes_them(self):
        """Also when they need not be kept for another server; one call per connection."""
        one = Hostile("one", frame(4, 0, 0, struct.pack(">HI", 3, 1))
                      + frame(HEADERS, END_HEADERS, 1, HEAD), reads=False)
        self.addCleanup(one.close)
        gateway = self.gateway(one, body_mib_max=4, bodies_mib_max=10)
        self.connect(gateway)
        message, calls = padded(named("echo"), 3 << 20), []
        for _ in range(2):
            requests, call = self.stream()
            requests.put(message)
            call.initial_metadata()
            calls.append(call)
        self.assertGreater(gateway.figures()["bodies_bytes"], 6 << 20)
        requests, call = self.stream()
        requests.put(message)
        self.assertEqual(failure(call), (Code.UNAVAILABLE,
                                         "the gateway holds as many bytes of requests as it may"))
        self.assertEqual(gateway.figures()["bodies_full_total"], 1)
        for call in calls:
            call.cancel()
        self.wait_figure(gateway, "bodies_bytes", 0)

    def test_a_server_that_reads_late(self):
        """Its client is paused, and every message arrives."""
        gateway = self.start("one")
        goes_on = threading.Event()
        self.addCleanup(goes_on.set)

        def behave(messages, context):
            context.send_initial_metadata(())
            goes_on.wait(WAIT_SECONDS)
            yield from messages
        self.fakes[0].behave = behave
        sent = [padded(named("echo"), 3 << 20), named("echo"), *(padded(named("echo"), 1 << 20)
                                                                for _ in range(4)), named("echo")]
        requests, call = self.stream()
        for message in (*sent, None):
            requests.put(message)
        wait_until(lambda: gateway.figures()["paused_total"] > 0, gateway.read_log)
        goes_on.set()
        self.assertEqual(list(call), sent)
        self.wait_figure(gateway, "bodies_bytes", 0)

    def test_keys(self):
        self.start("one", files={"keys.yaml": 'keys: [{name: a, sha256: '
                                 '"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}]'},
                   keys="keys.yaml")
        self.assertEqual(failure(self.ask())[0], Code.UNAUTHENTICATED)
        self.assertEqual(self.ask(metadata=(("authorization", "Bearer test"),)).result(), named("echo"))
        self.assertNotIn("authorization", dict(self.fakes[0].calls[0][1].invocation_metadata()))

    def test_a_route_rewrites_the_name(self):
        fake = Fake("one")
        self.addCleanup(fake.close)
        fake.keys |= {"labels": {"zone": "a"}}
        self.fakes = [fake]
        route = f"""
kind: InferencePool
apiVersion: inference.networking.k8s.io/v1
metadata: {{ name: pool }}
spec: {{ selector: {{ matchLabels: {{ zone: a }} }}, targetPorts: [ {{ number: {fake.port} }} ] }}
---
kind: LLMRoute
metadata: {{ name: red }}
spec: {{ backendRefs: [ {{ name: pool, adapter: {{ name: red }} }} ] }}
---
kind: InferenceModelRewrite
metadata: {{ name: canary }}
spec:
  poolRef: {{ name: pool }}
  rules:
  - matches: [ {{ model: {{ value: red }} }} ]
    targets: [ {{ modelRewrite: a-longer-name, weight: 1 }} ]
"""
        gateway = self.gateway(fake, files={"routes.yaml": route}, resources="routes.yaml")
        self.connect(gateway)
        self.assertEqual(self.ask(b"\x12\x011" + named("red")).result(),
                         b"\x12\x011" + b"\x0a\x0da-longer-name\x12\x011")
        self.assertEqual(failure(self.ask(named("blue")))[0], Code.NOT_FOUND)
        large = padded(b"", 1 << 20)  # which goes on in parts
        self.assertEqual(self.ask(large + named("red") + large).result(),
                         large + b"\x0a\x0da-longer-name\x12\x011" + large)
        self.fakes[0].behave = lambda messages, _: messages
        requests, call = self.stream()
        for _ in range(2):
            requests.put(named("red"))
            self.assertEqual(next(call), b"\x0a\x0da-longer-name\x12\x011")
        requests.put(named("blue"))
        self.assertEqual(failure(call)[0], Code.INVALID_ARGUMENT)

    def test_streams(self):
        gateway = self.start("one", "two")
        told = threading.Event()

        def behave(messages, context):
            context.add_callback(told.set)
            for message in messages:
                yield message
                if message == named("end"):
                    context.abort(Code.DATA_LOSS, "at its end")
        for fake in self.fakes:
            fake.behave = behave
        requests, call = self.stream()
        for _ in range(3):
            requests.put(named("echo"))
            self.assertEqual(next(call), named("echo"))
        call.cancel()
        self.assertTrue(told.wait(WAIT_SECONDS))
        requests, call = self.stream()
        requests.put(named("end"))
        self.assertEqual(next(call), named("end"))
        with self.assertRaises(grpc.RpcError) as caught:
            next(call)
        self.assertEqual((caught.exception.code(), caught.exception.details()),
                         (Code.DATA_LOSS, "at its end"))
        for fake in self.fakes:  # decline once each: the messages are sent again
            fake.behave = fail(Code.UNAVAILABLE)
        self.fakes[0].behave = behave
        requests, call = self.stream()
        requests.put(named("echo"))
        self.assertEqual(next(call), named("echo"))
        requests.put(None)
        self.assertEqual(list(call), [])
        self.wait_figure(gateway, "requests_open", 0)

    def test_a_client_that_does_not_read(self):
        sent = []

        def behave(_, context):
            for number in range(2000):
                sent.append(number)
                yield bytes(64 << 10)
        gateway = self.start("one")
        self.fakes[0].behave = behave
        requests, call = self.stream()
        requests.put(named("echo"))
        wait_until(lambda: gateway.figures()["paused_total"] >= 1, gateway.read_log)
        self.assertLess(len(sent), 2000)
        requests.put(None)
        self.assertEqual(sum(len(message) for message in call), 2000 * (64 << 10))

    def test_tls_on_both_sides(self):
        certificates = self.enterContext(Certificates("ca"))
        certificates.sign("server", "ca")

        def read(path):
            with open(path, "rb") as file:
                return file.read()
        pair = read(certificates.key("server")), read(certificates.pem("server"))
        fake = Fake("one", grpc.ssl_server_credentials([pair]))
        self.addCleanup(fake.close)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.pem("server"), certificates.key("server"))
        fake.socket = context.wrap_socket(fake.socket, server_side=True)
        fake.keys |= {"scheme": "https"}
        gateway = self.gateway(fake, endpoints_ca=certificates.pem("ca"),
                               tls_certificate=certificates.pem("server"),
                               tls_key=certificates.key("server"))
        trust = grpc.ssl_channel_credentials(read(certificates.pem("ca")))
        self.link = self.enterContext(grpc.secure_channel(f"127.0.0.1:{gateway.port}", trust))
        self.assertEqual(self.ask().result(), named("echo"))


if __name__ == "__main__":
    main()
