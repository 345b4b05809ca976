# SPDX-License-Identifier: Apache-2.0
"""Envoy's side of ext_proc: messages built by hand from their field numbers, over python3-grpcio.

    with Processor(address) as processor:
        stream = processor.open()
        stream.send(request_headers({":path": "/v1/completions"}), request_body(b"{}", end=True))
        answer = stream.receive()           # an Answer
"""

import queue
import threading

import grpc

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
HEALTH = "/grpc.health.v1.Health/Check"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
DESTINATION = "x-gateway-destination-endpoint"
STREAMED, BUFFERED, DUPLEX = 1, 2, 4
PHASES = {1: "request_headers", 2: "response_headers", 3: "request_body", 4: "response_body",
          5: "request_trailers", 6: "response_trailers", 7: "immediate_response"}
WAIT_SECONDS = 60


# ---- protobuf's wire format ----

def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def run(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def fields(data):
    """{number: [value...]}, values as int or bytes."""
    found, at = {}, 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = take()
        value = take()
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        found.setdefault(tag >> 3, []).append(value)
    return found


def inside(data, *path):
    """The last value at this path of field numbers, or None."""
    for step in path:
        values = fields(data).get(step) if data is not None else None
        data = values[-1] if values else None
    return data


# ---- what Envoy sends ----

def header_map(headers):
    return b"".join(run(1, run(1, key) + run(3, value)) for key, value in headers.items())


def text_map(entries):
    """map<string, Message> as field 1."""
    return b"".join(run(1, run(1, key) + run(2, value)) for key, value in entries.items())


def subset_hint(*addresses):
    values = b"".join(run(1, run(3, address)) for address in addresses)
    return run(8, text_map({"envoy.lb.subset_hint": text_map(
        {"x-gateway-destination-endpoint-subset": run(6, values)})}))


def modes(request=DUPLEX, response=DUPLEX):
    return run(11, number(1, request) + number(2, response))


def attributes(**values):
    content = text_map({key.replace("__", "."): run(3, value) for key, value in values.items()})
    return run(9, run(1, "envoy.filters.http.ext_proc") + run(2, content))


def headers_message(field, headers, end):
    return run(field, run(1, header_map(headers)) + (number(3, 1) if end else b""))


def request_headers(headers, end=False):
    return headers_message(2, headers, end)


def response_headers(headers, end=False):
    return headers_message(3, headers, end)


def body_message(field, body, end):
    return run(field, run(1, body) + (number(2, 1) if end else b""))


def request_body(body, end=False):
    return body_message(4, body, end)


def response_body(body, end=False):
    return body_message(5, body, end)


def request_trailers(headers=None):
    return run(6, run(1, header_map(headers or {})))


def response_trailers(headers=None):
    return run(7, run(1, header_map(headers or {})))


# ---- what comes back ----

class Answer:
    def __init__(self, data):
        self.data = data
        self.number = next(field for field in fields(data) if field in PHASES)
        self.phase = PHASES[self.number]
        self.content = inside(data, self.number)
        self.common = inside(self.content, 1) if self.number <= 4 else None

    @property
    def headers(self):
        mutation = inside(self.content, 2) if self.number == 7 else inside(self.common, 2)
        options = fields(mutation).get(1, []) if mutation is not None else []
        values = [fields(inside(option, 1)) for option in options]
        assert all(2 not in value for value in values), "value instead of raw_value"
        return {value[1][0].decode(): value[3][0].decode() for value in values}

    @property
    def removed(self):
        return [name.decode() for name in fields(inside(self.common, 2)).get(2, [])]

    @property
    def clears_route(self):
        return inside(self.common, 5) == 1

    @property
    def metadata(self):
        lb = inside(self.data, 8, 1)
        if lb is None or inside(lb, 1) != b"envoy.lb":
            return None
        entry = inside(lb, 2, 5, 1)
        assert inside(entry, 1) == DESTINATION.encode()
        return inside(entry, 2, 3).decode()

    @property
    def picked(self):
        """The destination, which header and metadata must both have."""
        assert self.headers[DESTINATION] == self.metadata, (self.headers, self.metadata)
        return self.metadata

    @property
    def piece(self):
        return inside(self.common, 3, 3, 1) or b""

    @property
    def is_end(self):
        return inside(self.common, 3, 3, 2) == 1

    @property
    def new_body(self):
        return inside(self.common, 3, 1)

    @property
    def status(self):
        return inside(self.content, 1, 1)

    @property
    def body(self):
        return inside(self.content, 3)


class Stream:
    def __init__(self, channel):
        self.requests = queue.Queue()
        self.call = channel.stream_stream(PROCESS)(iter(self.requests.get, None),
                                                   timeout=WAIT_SECONDS)

    def send(self, *messages):
        for message in messages:
            self.requests.put(message)

    def receive(self):
        return Answer(next(self.call))

    def receive_body(self):
        """(bytes, number of pieces) up to the piece that ends a body."""
        pieces = []
        while not pieces or not pieces[-1].is_end:
            pieces.append(self.receive())
        assert len({piece.phase for piece in pieces}) == 1, [piece.phase for piece in pieces]
        assert all(len(piece.piece) <= 62000 for piece in pieces)
        return b"".join(piece.piece for piece in pieces), len(pieces)

    def end(self):
        """Half-closes; the status and the remaining messages."""
        self.requests.put(None)
        try:
            rest = [Answer(data) for data in self.call]
        except grpc.RpcError:
            rest = []
        return self.call.code(), rest

    def cancel(self):
        self.call.cancel()
        self.requests.put(None)


class Processor:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, [
            ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def open(self):
        return Stream(self.channel)

    def health(self, service=""):
        call = self.channel.unary_unary(HEALTH)
        return inside(call(run(1, service) if service else b"", timeout=WAIT_SECONDS), 1)


def in_threads(count, work):
    """Runs work(i) for each i below count at the same time; raises what one of them raised."""
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)
    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
