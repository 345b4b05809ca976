# SPDX-License-Identifier: Apache-2.0
"""libshoal in Python, through ctypes: inference on the same host through shared memory.

    with Client("echo") as client:
        numbers = client.infer({"input": array.array("f", [1, 2, 3])})["input"]

A tensor is any object with Python's buffer protocol: an array.array, bytes, a NumPy array (NumPy is
not required). Outputs are memoryviews with element type and shape, which numpy.asarray accepts; for
FP16, BF16 and BYTES, which memoryview does not support, they are plain bytes. infer() copies in and
out. Without copies, and with several requests at a time:

    with client.request() as request:
        pixels = request.input("image", Datatype.FP32, (1, 64))
        pixels[0, 5] = 0.25                 # in shared memory
        request.submit(timeout=0.5)
        ...
        request.wait()
        print(request.outputs()["label"][0])  # likewise; valid until the request is released

Failures raise Error, with the status and the node's text. Times are in seconds. <shoal/client.h> is
the manual; as there, a client and its requests may be used by one thread at a time.

This file depends only on the library and may be copied.
"""

import ctypes as c
import enum
import math
import struct
import time

NEVER_NS = 2**63 - 1
TURN_NS = 100_000_000  # a wait comes back to Python so often, so that Ctrl-C is heard
RANK_MAX = 8

Status = enum.IntEnum("Status", [
    ("UNSET", -1), ("OK", 0), ("CANCELLED", 1), ("UNKNOWN", 2), ("INVALID_ARGUMENT", 3),
    ("DEADLINE_EXCEEDED", 4), ("NOT_FOUND", 5), ("ALREADY_EXISTS", 6), ("PERMISSION_DENIED", 7),
    ("RESOURCE_EXHAUSTED", 8), ("FAILED_PRECONDITION", 9), ("ABORTED", 10), ("OUT_OF_RANGE", 11),
    ("UNIMPLEMENTED", 12), ("INTERNAL", 13), ("UNAVAILABLE", 14), ("DATA_LOSS", 15),
    ("UNAUTHENTICATED", 16)])
Datatype = enum.IntEnum("Datatype", [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32",
    "FP64", "BYTES", "BF16"])

# Formats of memoryview; tensors of other datatypes are seen as bytes.
FORMATS = {"BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b",
           "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d"}
KINDS = {"?": "BOOL", **dict.fromkeys("BHILQN", "UINT"), **dict.fromkeys("bhilqn", "INT"),
         **dict.fromkeys("efd", "FP")}


class Error(Exception):
    """`status` is the kind of failure, `text` the library's message."""

    def __init__(self, status, text):
        super().__init__(f"{Status(status).name}: {text}")
        self.status = Status(status)
        self.text = text


# ---- shoal/client.h


class _Options(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("requests_max", c.c_uint32),
                ("pipeline", c.c_char_p), ("socket", c.c_char_p),
                ("message_bytes_max", c.c_uint64), ("connect_timeout_ns", c.c_int64),
                ("spin_ns", c.c_int64)]


class _Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("datatype", c.c_uint32), ("rank", c.c_uint32),
                ("shape", c.c_int64 * RANK_MAX), ("data", c.c_void_p), ("bytes", c.c_size_t)]


_POINTER = c.c_void_p
_STATUS = c.c_int32
_FUNCTIONS = {
    "client_open": (_STATUS, c.POINTER(_Options), c.POINTER(_POINTER), c.c_char_p),
    "client_close": (None, _POINTER),
    "client_wait_any": (_POINTER, _POINTER, c.c_int64),
    "request_begin": (_STATUS, _POINTER, c.POINTER(_POINTER), c.c_char_p),
    "request_input_bytes": (_POINTER, _POINTER, c.c_char_p, c.c_uint32, c.c_uint32,
                            c.POINTER(c.c_int64), c.c_size_t),
    "request_submit": (_STATUS, _POINTER, c.c_int64),
    "request_wait": (_STATUS, _POINTER, c.c_int64),
    "request_cancel": (None, _POINTER),
    "request_status": (_STATUS, _POINTER),
    "request_text": (c.c_char_p, _POINTER),
    "request_output_count": (c.c_uint32, _POINTER),
    "request_output": (c.POINTER(_Tensor), _POINTER, c.c_uint32),
    "request_release": (None, _POINTER),
}


class _Library:
    """The library's functions with their types, named without `shoal_`."""

    def __init__(self, path):
        library = c.CDLL(path)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, f"shoal_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


# ---- tensors


def datatype_of(view):
    """Returns the datatype of a buffer's elements."""
    kind = KINDS.get(view.format.lstrip("@=<"))
    if kind is None:
        raise TypeError(f"no datatype has elements of the format {view.format!r}")
    return Datatype[kind if kind == "BOOL" else f"{kind}{8 * view.itemsize}"]


def pack_bytes(elements):
    """Returns the contents of a BYTES tensor."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def unpack_bytes(contents):
    """Returns the elements of a BYTES tensor."""
    contents, elements, at = bytes(contents), [], 0
    while at < len(contents):
        (length,) = struct.unpack_from("<I", contents, at)
        elements.append(contents[at + 4:at + 4 + length])
        at += 4 + length
    return elements


def _shaped(flat, datatype, shape):
    """Views bytes as elements of a shape; flat if empty, as memoryview allows no dimension of 0."""
    form = FORMATS.get(Datatype(datatype).name)
    if form is None:
        return flat
    return flat.cast(form) if 0 in shape else flat.cast(form, shape)


def _memory(address, count):
    if count == 0:
        return memoryview(bytearray())
    return memoryview((c.c_char * count).from_address(address)).cast("B")


# ---- requests


def _deadline_ns(timeout):
    return NEVER_NS if timeout is None else time.monotonic_ns() + int(timeout * 1e9)


class Request:
    """Made by Client.request(). A context manager, which releases it at its end."""

    def __init__(self, client, pointer):
        self._client = client
        self._library = client.library
        self._pointer = pointer
        self._submitted = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    @property
    def pointer(self):
        if self._pointer is None:
            raise ValueError("the request has been released, or its client closed")
        return self._pointer

    @property
    def pointer_to_build(self):
        pointer = self.pointer
        if self._submitted:
            raise Error(Status.FAILED_PRECONDITION, "the request was submitted before")
        return pointer

    def input(self, name, datatype, shape):
        """Adds an input and returns its memory, to be filled before the request is submitted."""
        if datatype == Datatype.BYTES:
            raise ValueError("a BYTES tensor is added with put(): its size must be known")
        itemsize = struct.calcsize(FORMATS.get(Datatype(datatype).name, "H"))
        memory = self._add(name, datatype, shape, itemsize * math.prod(shape))
        return _shaped(memory, datatype, shape)

    def put(self, name, data, datatype=None, shape=None):
        """Adds an input and copies a buffer into it. Datatype and shape default to the buffer's; a
        list or tuple of bytes becomes a BYTES tensor."""
        if isinstance(data, (list, tuple)):
            datatype, shape = Datatype.BYTES, (len(data),) if shape is None else shape
            data = pack_bytes(data)
        view = memoryview(data)
        datatype = datatype_of(view) if datatype is None else datatype
        contents = view.tobytes()
        memory = self._add(name, datatype, view.shape if shape is None else shape, len(contents))
        memory[:] = contents

    def _add(self, name, datatype, shape, count):
        sizes = (c.c_int64 * RANK_MAX)(*shape[:RANK_MAX])
        address = self._library.request_input_bytes(self.pointer_to_build, name.encode(),
                                                    datatype, len(shape), sizes, count)
        if not address:
            self._raise()
        return _memory(address, count)

    def submit(self, timeout=None):
        """Submits the request; its inputs must not be touched afterwards."""
        pointer = self.pointer_to_build
        if self._library.request_submit(pointer, _deadline_ns(timeout)) != Status.OK:
            self._raise()
        self._submitted = True

    def wait(self, timeout=None):
        """Waits for the answer. TimeoutError: not answered yet; the request goes on."""
        until_ns = _deadline_ns(timeout)
        pointer, status = self.pointer, Status.UNSET
        if not self._submitted:
            raise Error(Status.FAILED_PRECONDITION, "the request was not submitted")
        while status == Status.UNSET:
            turn_ns = min(until_ns, time.monotonic_ns() + TURN_NS)
            status = self._library.request_wait(pointer, turn_ns)
            if status == Status.UNSET and turn_ns == until_ns:
                raise TimeoutError("the request is not answered yet")
        if status != Status.OK:
            self._raise()

    @property
    def status(self):
        return Status(self._library.request_status(self.pointer))

    def outputs(self):
        """Returns {name: memoryview} in the node's memory, valid until the request is released."""
        found = {}
        for index in range(self._library.request_output_count(self.pointer)):
            tensor = self._library.request_output(self.pointer, index).contents
            memory = _memory(tensor.data, tensor.bytes).toreadonly()
            found[tensor.name.decode()] = _shaped(memory, tensor.datatype,
                                                  tensor.shape[:tensor.rank])
        return found

    def cancel(self):
        """Cancels the request: it is answered with CANCELLED."""
        self._library.request_cancel(self.pointer)

    def release(self):
        """Releases the request; memory from input() and outputs() must not be used afterwards."""
        if self._pointer is not None:
            del self._client.requests[self._pointer]
            self._library.request_release(self._pointer)
            self._pointer = None

    def forget(self):
        """Called when the client closes."""
        self._pointer = None

    def _raise(self):
        text = self._library.request_text(self.pointer).decode(errors="replace")
        raise Error(self.status, text)


class Client:
    """A connection to a pipeline of the node. A context manager, which closes it at its end.
    `socket` defaults to $SHOAL_LOCAL, else to the socket of the user's own node."""

    def __init__(self, pipeline, socket=None, requests_max=0, library="libshoal.so.1"):
        self.library = _Library(library)
        self.requests = {}
        self._pointer = c.c_void_p()
        options = _Options(struct_size=c.sizeof(_Options), requests_max=requests_max,
                           pipeline=pipeline.encode(), socket=socket.encode() if socket else None)
        self._call(self.library.client_open, c.byref(options), c.byref(self._pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _call(self, function, *arguments):
        error = c.create_string_buffer(256)
        status = function(*arguments, error)
        if status != Status.OK:
            raise Error(status, error.value.decode(errors="replace"))

    def close(self):
        """Closes the client with all its requests; requests in flight do not run."""
        for request in self.requests.values():
            request.forget()
        self.requests.clear()
        self.library.client_close(self._pointer)
        self._pointer = c.c_void_p()

    def request(self):
        """Begins a request."""
        if not self._pointer:
            raise ValueError("the client is closed")
        pointer = c.c_void_p()
        self._call(self.library.request_begin, self._pointer, c.byref(pointer))
        request = Request(self, pointer.value)
        self.requests[pointer.value] = request
        return request

    def answered(self):
        """Yields each request in flight once, as it is answered, until none is in flight."""
        while self._pointer:
            turn_ns = time.monotonic_ns() + TURN_NS
            found = self.library.client_wait_any(self._pointer, turn_ns)
            if found:
                yield self.requests[found]
            elif time.monotonic_ns() < turn_ns:
                return

    def infer(self, inputs, timeout=None):
        """Sends {name: buffer} and returns {name: memoryview}; copies both ways."""
        with self.request() as request:
            for name, data in inputs.items():
                request.put(name, data)
            request.submit(timeout)
            request.wait()
            return {name: _copied(view) for name, view in request.outputs().items()}


def _copied(view):
    copy = memoryview(view.tobytes())
    return copy.cast(view.format, view.shape) if view.nbytes else copy.cast(view.format)
