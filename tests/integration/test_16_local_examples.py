# SPDX-License-Identifier: Apache-2.0
"""examples/local: the clients in C and Python say what their README promises, with a node and
without one; and the Python module keeps its word: buffers of every kind, NumPy's or not, with and
without a copy, several requests at a time, deadlines, cancellation, every failure an exception,
nothing used after its end. Against real daemons, through the real library.

Where the library is built with sanitizers, a process that is not has to load their run time first:
the test starts itself, and the Python client, so.
"""

import array
import os
import re
import subprocess
import sys
import unittest

from shoal_fixture import BIN, BUILD, EXAMPLES, SOURCE, WAIT_SECONDS, Shoald, node, pipeline, stage
import shoal_fixture

sys.path.insert(0, str(SOURCE / "examples" / "local"))

import shoal  # pylint: disable=wrong-import-position

try:
    import numpy
except ImportError:
    numpy = None

LIBRARY = str(BUILD / "lib" / "libshoal.so.1")
CLIENT_C = BIN / "shoal-local-client"
CLIENT_PY = SOURCE / "examples" / "local" / "client.py"
# tests/modelets/probe.h
PROBE_ECHO, PROBE_FAIL, PROBE_SLOW, PROBE_WAIT = 0, 1, 9, 10
OUT_OF_RANGE = 11


def sanitizers():
    """A library that must be loaded first."""
    done = subprocess.run(["ldd", LIBRARY], capture_output=True, text=True, check=True)
    return re.findall(r"=> (\S*/lib[a-z]+san\.so\S*)", done.stdout)


def with_sanitizers():
    """The environment of a program that is built without them, or None: it needs nothing."""
    found = sanitizers()
    if not found:
        return None
    # the interpreter's own memory at exit is not ours to judge
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return {**os.environ, "LD_PRELOAD": ":".join(found), "ASAN_OPTIONS": options,
            "SHOAL_ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "")}


def restart_with_sanitizers():
    environment = with_sanitizers()
    if environment is not None and "LD_PRELOAD" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def start(config):
    """A daemon that is not concerned by how this process was started."""
    plain = {"LD_PRELOAD": "", "ASAN_OPTIONS": os.environ.get("SHOAL_ASAN_OPTIONS", "")}
    return Shoald(config, ["--no-pin"], env=plain if "LD_PRELOAD" in os.environ else {})


def socket_of(shoald):
    return f"{shoald.counters}.local"


class TestPrograms(unittest.TestCase):
    def run_client(self, *command, socket=None, code=0):
        environment = {**os.environ, "SHOAL_BUILD_DIR": str(BUILD)}
        if socket is not None:
            environment["SHOAL_LOCAL"] = socket
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=WAIT_SECONDS, env=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_with_a_node(self):
        with start(EXAMPLES / "echo" / "echo.yaml") as shoald:
            socket = socket_of(shoald)
            self.assertEqual(self.run_client(CLIENT_C, 3, 1, 4, socket=socket), "3\n1\n4\n")
            self.assertEqual(self.run_client(CLIENT_C, socket=socket), "")
            for arguments in ((CLIENT_PY, 3, 1, 4), (CLIENT_PY, "--socket", socket, 3, 1, 4)):
                said = self.run_client(sys.executable, *arguments, socket=socket)
                self.assertEqual(said, "numbers [3.0, 1.0, 4.0]\n")
            said = self.run_client(sys.executable, CLIENT_PY, "--pipeline", "none", socket=socket,
                                   code=1)
            self.assertRegex(said, r"^client\.py: NOT_FOUND: .*none")

    def test_without_a_node(self):
        for command in ([CLIENT_C], [sys.executable, CLIENT_PY]):
            said = self.run_client(*command, 1, socket="/nowhere/counters.local", code=1)
            self.assertIn("/nowhere/counters.local", said)

    def test_without_the_library(self):
        said = self.run_client(sys.executable, CLIENT_PY, "--library", "/nowhere/libshoal.so", code=1)
        self.assertRegex(said, r"^client\.py: /nowhere/libshoal\.so")


class TestModule(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        local = {"local_clients": 4, "local_slots": 8}
        cls.shoald = cls.enterClassContext(start(node(
            pipeline("echo", stage("libecho.so"), **local),
            pipeline("scale", stage("libscale.so"), **local),
            pipeline("probe", stage("libprobe.so", workers=2), **local))))

    def client(self, name="echo", **options):
        client = shoal.Client(name, socket_of(self.shoald), library=LIBRARY, **options)
        self.addCleanup(client.close)
        return client

    def assert_error(self, status, wanted, function, *arguments, **named):
        with self.assertRaises(shoal.Error) as caught:
            function(*arguments, **named)
        self.assertEqual(caught.exception.status, status)
        self.assertRegex(str(caught.exception), f"^{status.name}: .*{wanted}")

    # ---- tensors

    def test_buffers(self):
        sent = {"floats": array.array("f", [1.5, -2]), "longs": array.array("q", [2**40]),
                "doubles": array.array("d", [0.1]), "bytes": b"\x00\xff",
                "square": memoryview(bytes(range(6))).cast("B", (2, 3)),
                "odd": memoryview(bytes(range(6)))[1::2],
                "scalar": memoryview(b"\x07").cast("B", ()),
                "flags": memoryview(b"\x01\x00").cast("?")}
        found = self.client().infer(sent, timeout=WAIT_SECONDS)
        self.assertEqual(list(found), list(sent))
        for name, buffer in sent.items():
            view = memoryview(buffer)
            self.assertEqual((found[name].tolist(), found[name].shape), (view.tolist(), view.shape),
                             name)

    def test_empty(self):
        found = self.client().infer({"none": array.array("f")})
        self.assertEqual((found["none"].tolist(), found["none"].format), ([], "f"))

    def test_bytes_elements(self):
        client = self.client()
        with client.request() as request:
            request.put("texts", [b"one", b"", b"three"])
            request.put("halves", b"\x00\x3c", shoal.Datatype.BF16, (1, 1))
            request.submit()
            request.wait()
            found = request.outputs()
            self.assertEqual(shoal.unpack_bytes(found["texts"]), [b"one", b"", b"three"])
            self.assertEqual(found["halves"].tolist(), [0, 0x3c])

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_numpy(self):
        client = self.client()
        square = numpy.arange(12, dtype=numpy.int32).reshape(3, 4)
        found = client.infer({"square": square, "turned": square.T})
        self.assertTrue(numpy.array_equal(numpy.asarray(found["square"]), square))
        self.assertTrue(numpy.array_equal(numpy.asarray(found["turned"]), square.T))
        with client.request() as request:
            there = numpy.asarray(request.input("x", shoal.Datatype.FP32, (2, 2)))
            there[:] = [[1, 2], [3, 4]]
            request.submit()
            request.wait()
            self.assertEqual(numpy.asarray(request.outputs()["x"]).tolist(), [[1, 2], [3, 4]])

    def test_without_a_copy(self):
        with self.client("scale").request() as request:
            x = request.input("x", shoal.Datatype.FP32, (1, 3))
            x[0, 0], x[0, 1], x[0, 2] = 1, 2, 3
            request.submit()
            request.wait()
            found = request.outputs()["x"]
            self.assertEqual((found.tolist(), found.readonly), ([[2, 4, 6]], True))

    # ---- failures

    def test_errors(self):
        client = self.client("scale")
        self.assert_error(shoal.Status.INVALID_ARGUMENT, '"y"', client.infer,
                          {"y": array.array("f", [1])})
        self.assertEqual(client.infer({"x": array.array("f", [1])})["x"].tolist(), [2])
        with client.request() as request:
            request.put("x", b"\x00")
            self.assert_error(shoal.Status.ALREADY_EXISTS, "x", request.put, "x", b"\x00")
            self.assert_error(shoal.Status.ALREADY_EXISTS, "x", request.submit)
            self.assert_error(shoal.Status.FAILED_PRECONDITION, "not submitted", request.wait)
        with self.client("probe").request() as request:
            request.put("probe", array.array("q", [PROBE_FAIL, OUT_OF_RANGE, 0]))
            request.submit()
            self.assert_error(shoal.Status.OUT_OF_RANGE, ".", request.wait)
            self.assert_error(shoal.Status.FAILED_PRECONDITION, "before", request.put, "x", b"")
        with client.request() as request:
            with self.assertRaises(TypeError):
                request.put("x", memoryview(b"a").cast("c"))
            with self.assertRaises(ValueError):
                request.input("x", shoal.Datatype.BYTES, (1,))

    def test_deadlines_and_cancellation(self):
        client = self.client("probe")
        self.assert_error(shoal.Status.DEADLINE_EXCEEDED, "", client.infer,
                          {"probe": array.array("q", [PROBE_SLOW, 1500, 0])}, timeout=0.02)
        with client.request() as request:
            request.put("probe", array.array("q", [PROBE_WAIT, 0, 0]))
            request.submit()
            with self.assertRaises(TimeoutError):
                request.wait(0.001)
            self.assertEqual(request.status, shoal.Status.UNSET)
            request.cancel()
            self.assert_error(shoal.Status.CANCELLED, "", request.wait)

    def test_limits(self):
        client = self.client(requests_max=2)
        with client.request(), client.request():
            self.assert_error(shoal.Status.RESOURCE_EXHAUSTED, "", client.request)
        client.request().release()

    # ---- many, and ends

    def test_many_at_a_time(self):
        client = self.client("probe")
        self.assertEqual(list(client.answered()), [])
        sent = {}
        for number in range(8):
            request = client.request()
            request.put("probe", array.array("q", [PROBE_ECHO, 0, number]))
            request.submit()
            sent[request] = number
        for request in client.answered():
            self.assertEqual(request.outputs()["probe"][2], sent.pop(request))
            request.release()
        self.assertEqual(sent, {})
        with client.request():  # one that is not submitted is not waited for
            self.assertEqual(list(client.answered()), [])

    def test_nothing_after_the_end(self):
        client = self.client()
        request, other = client.request(), client.request()
        request.release()
        request.release()
        client.close()
        client.close()
        other.release()
        for function in (request.submit, request.outputs, other.wait, client.request):
            with self.assertRaises(ValueError):
                function()
        self.assertEqual(list(client.answered()), [])


if __name__ == "__main__":
    restart_with_sanitizers()
    shoal_fixture.main()
