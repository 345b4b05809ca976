# SPDX-License-Identifier: Apache-2.0
"""A gRPC caller that is no library's, and keeps to as much of HTTP/2 as a test wants.

    with Http2(("127.0.0.1", port), window=0) as caller:
        stream = caller.ask("/package.Service/Method", message)

It acknowledges settings and answers pings only when told to, reads only when told to, and leaves
streams open. Headers are literals, so that each frame stands by itself.
"""

import contextlib
import socket
import struct

from shoal_fixture import WAIT_SECONDS

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request_headers(path, **more):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "test",
              "te": "trailers", "content-type": "application/grpc", **more}
    return b"".join(literal(name, value) for name, value in fields.items())


def grpc_message(data):
    return struct.pack(">BI", 0, len(data)) + data


class Http2:
    def __init__(self, address, window=65535, source=None, acknowledge=True):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, WAIT_SECONDS, source)
        self.socket.settimeout(WAIT_SECONDS)
        self.next_stream = 1
        self.stream_room = 65535  # of a new stream
        self.rooms = {0: 65535}  # what may be sent: of the connection, and streams that send_body knows
        self.ended = set()
        self.kinds = set()  # of frames that came
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings)
                  + (frame(SETTINGS, ACK, 0) if acknowledge else b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def streams(self, count):
        first = self.next_stream
        self.next_stream += 2 * count
        return range(first, self.next_stream, 2)

    def ask(self, path, message=b"", count=1, **headers):
        """Sends whole requests; the last one's number."""
        block = request_headers(path, **headers)
        body = grpc_message(message)
        for stream in self.streams(count):
            self.send(frame(HEADERS, END_HEADERS, stream, block)
                      + frame(DATA, END_STREAM, stream, body))
        return self.next_stream - 2

    def send_body(self, stream, body):
        """A message that may be larger than the windows, the stream's end behind it. Reads what comes
        meanwhile; gives up when the other side ends the stream."""
        self.rooms[stream] = self.stream_room
        while body and stream in self.rooms:
            count = min(len(body), self.rooms[0], self.rooms[stream], 16384)
            if count <= 0:
                self.answer_ping(*self.read_frame())
                continue
            self.send(frame(DATA, 0 if len(body) > count else END_STREAM, stream, body[:count]))
            body = body[count:]
            self.rooms[0] -= count
            self.rooms[stream] -= count

    def open_window(self, stream, count=65535):
        """0: the connection's, which all streams use up."""
        self.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", count)))

    def is_open(self):
        """Reads what has come, without waiting; whether the other side has kept the connection."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65536):
                pass
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.socket.settimeout(WAIT_SECONDS)

    def read_exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("closed")
            data += more
        return data

    def read_frame(self):
        head = self.read_exactly(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        payload = self.read_exactly(int.from_bytes(head[:3], "big"))
        self.kinds.add(kind)
        if kind == WINDOW_UPDATE and stream in self.rooms:
            self.rooms[stream] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            found = dict(struct.iter_unpack(">HI", payload)).get(INITIAL_WINDOW_SIZE, 65535)
            for each in self.rooms.keys() - {0}:
                self.rooms[each] += found - self.stream_room
            self.stream_room = found
        elif kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.ended.add(stream)
            self.rooms.pop(stream, None)
        return kind, flags, stream, payload

    def answer_ping(self, kind, flags, _, payload):
        if kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))

    def answer_pings_until_closed(self):
        """Reads all that the other side sends."""
        with contextlib.suppress(EOFError):
            while True:
                self.answer_ping(*self.read_frame())

    def read_settings(self):
        """The other side's settings, by number."""
        while True:
            kind, flags, _, payload = self.read_frame()
            if kind == SETTINGS and not flags & ACK:
                return dict(struct.iter_unpack(">HI", payload))

    def read_data(self, stream, count):
        """Reads until at least so many bytes of the stream have come, and answers pings."""
        data = b""
        while len(data) < count:
            kind, flags, of, payload = self.read_frame()
            self.answer_ping(kind, flags, of, payload)
            if of == stream and kind == DATA:
                data += payload
        return data

    def wait_end(self, stream):
        """Reads until the stream has ended, and answers pings; the data that came."""
        data = b""
        while stream not in self.ended:
            kind, flags, of, payload = self.read_frame()
            self.answer_ping(kind, flags, of, payload)
            if of == stream and kind == DATA:
                data += payload
        return data
