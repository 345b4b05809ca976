# SPDX-License-Identifier: Apache-2.0
"""A gRPC caller that is no library's, and keeps to as much of HTTP/2 as a test wants.

    with Http2(("127.0.0.1", port), window=0) as caller:
        stream = caller.ask("/package.Service/Method", message)

It acknowledges settings and answers pings only when told to, reads only when told to, and leaves
streams open. Headers are literals, so that each frame stands by itself.
"""

import socket
import struct

from shoal_fixture import WAIT_SECONDS

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
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

    def open_window(self, stream):
        self.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 65535)))

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
                raise ConnectionResetError("closed")
            data += more
        return data

    def read_frame(self):
        head = self.read_exactly(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        return kind, flags, stream, self.read_exactly(int.from_bytes(head[:3], "big"))

    def wait_end(self, stream):
        """Reads until the stream has ended, and answers pings; the data that came."""
        data = b""
        while True:
            kind, flags, of, payload = self.read_frame()
            if kind == PING and not flags & ACK:
                self.send(frame(PING, ACK, 0, payload))
            if of == stream and kind == DATA:
                data += payload
            if of == stream and (kind == RST_STREAM or flags & END_STREAM):
                return data
