#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A local client in Python: libshoal through ctypes, arrays that lie in shared memory.

    client.py [--socket PATH] [--pipeline echo] NUMBER...

The pipeline's `local_clients` must be at least 1. Class Client is small enough to be copied.
"""

import argparse
import ctypes as c
import sys

NEVER = 2**63 - 1
FP32 = 11


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("requests_max", c.c_uint32),
                ("pipeline", c.c_char_p), ("socket", c.c_char_p),
                ("message_bytes_max", c.c_uint64), ("connect_timeout_ns", c.c_int64),
                ("spin_ns", c.c_int64)]


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("datatype", c.c_uint32), ("rank", c.c_uint32),
                ("shape", c.c_int64 * 8), ("data", c.c_void_p), ("bytes", c.c_size_t)]


def library(path="libshoal.so.1"):
    shoal = c.CDLL(path)
    shoal.shoal_client_open.argtypes = [c.POINTER(Options), c.POINTER(c.c_void_p), c.c_char_p]
    shoal.shoal_client_close.argtypes = [c.c_void_p]
    shoal.shoal_request_begin.argtypes = [c.c_void_p, c.POINTER(c.c_void_p), c.c_char_p]
    shoal.shoal_request_input.argtypes = [c.c_void_p, c.c_char_p, c.c_uint32, c.c_uint32,
                                          c.POINTER(c.c_int64)]
    shoal.shoal_request_input.restype = c.c_void_p
    shoal.shoal_request_submit.argtypes = [c.c_void_p, c.c_int64]
    shoal.shoal_request_wait.argtypes = [c.c_void_p, c.c_int64]
    shoal.shoal_request_status.argtypes = [c.c_void_p]
    shoal.shoal_request_text.argtypes = [c.c_void_p]
    shoal.shoal_request_text.restype = c.c_char_p
    shoal.shoal_request_output.argtypes = [c.c_void_p, c.c_uint32]
    shoal.shoal_request_output.restype = c.POINTER(Tensor)
    shoal.shoal_request_release.argtypes = [c.c_void_p]
    return shoal


class Client:
    def __init__(self, pipeline, socket=None, path="libshoal.so.1"):
        self.shoal = library(path)
        self.client = c.c_void_p()
        error = c.create_string_buffer(256)
        options = Options(struct_size=c.sizeof(Options), pipeline=pipeline.encode(),
                          socket=socket.encode() if socket else None)
        if self.shoal.shoal_client_open(c.byref(options), c.byref(self.client), error) != 0:
            raise RuntimeError(error.value.decode())

    def floats(self, name, numbers):
        """Sends one FP32 vector, and returns the first output as a list."""
        request = c.c_void_p()
        error = c.create_string_buffer(256)
        if self.shoal.shoal_request_begin(self.client, c.byref(request), error) != 0:
            raise RuntimeError(error.value.decode())
        try:
            shape = (c.c_int64 * 1)(len(numbers))
            data = self.shoal.shoal_request_input(request, name.encode(), FP32, 1, shape)
            if data:
                (c.c_float * len(numbers)).from_address(data)[:] = numbers
            if self.shoal.shoal_request_submit(request, NEVER) == 0:
                self.shoal.shoal_request_wait(request, NEVER)
            if self.shoal.shoal_request_status(request) != 0:
                raise RuntimeError(self.shoal.shoal_request_text(request).decode())
            output = self.shoal.shoal_request_output(request, 0).contents
            return list((c.c_float * (output.bytes // 4)).from_address(output.data))
        finally:
            self.shoal.shoal_request_release(request)

    def close(self):
        self.shoal.shoal_client_close(self.client)


def main():
    parser = argparse.ArgumentParser(description="Send numbers through a pipeline")
    parser.add_argument("--socket")
    parser.add_argument("--pipeline", default="echo")
    parser.add_argument("--library", default="libshoal.so.1")
    parser.add_argument("numbers", nargs="*", type=float)
    arguments = parser.parse_args()
    try:
        client = Client(arguments.pipeline, arguments.socket, arguments.library)
    except (OSError, RuntimeError) as error:
        sys.exit(f"client.py: {error}")
    print(*client.floats("input", arguments.numbers))
    client.close()


if __name__ == "__main__":
    main()
